"""A digest keeps the elements that its plan names, and they can be compared with a reference."""

import math
from array import array
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.queues.digest import CODES, DigestBook, DigestPlan, announce_outputs, output_plan
from bench.queues.memory import CONTROL_WORDS, DIGEST_BYTES
from bench.results.checks import decode

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64]
SHAPES = [
    (1, 1000),
    (2, 1000),
    (5, 1000),
    (33, 1000),
    (1, 1),
    (2, 1),
    (33, 1),
    (5, 2),
    (5, 3, 4, 4),
    (33, 7),
    (1,),
    (5,),
    (),
]
plans = st.builds(
    lambda itemsize, rows, width: (itemsize, rows, max(rows, 1) * width),
    st.sampled_from(sorted(CODES)),
    st.integers(0, 300),
    st.integers(1, 5000),
)


def positions(plan: DigestPlan) -> list[int]:
    """Places in the flattened output, in the order in which they are kept."""
    return [position for piece in plan.pieces for position in range(*piece)]


def plan_of(output: torch.Tensor, batch_size: int) -> DigestPlan:
    """The plan as the frontend reads it from the control block."""
    control = memoryview(array("q", bytes(8 * CONTROL_WORDS)))
    announce_outputs(control, output, slots=3, batch_size=batch_size)
    return output_plan(control)


def digests_of(outputs: list[torch.Tensor], plan: DigestPlan, rows: list[int], count: int) -> bytes:
    """The digests of a run of `count` requests, of which those in `rows` were answered with `outputs`."""
    kept = bytearray(DIGEST_BYTES * count)
    book = DigestBook(plan, memoryview(kept))
    for row, output in zip(rows, outputs, strict=True):
        raw: Any = output.contiguous().flatten().view(torch.uint8).numpy()
        book.keep(row, book.sources(memoryview(raw)))
    return bytes(kept)


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random whole numbers that every dtype holds exactly, negative ones among them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=generator).to(dtype)


@given(plans)
@settings(deadline=None)
def test_a_plan_fits_the_output_and_the_digest(case: tuple[int, int, int]) -> None:
    """Whatever the output, the kept elements are distinct, lie inside it, and fit into a digest; there are some."""
    itemsize, rows, numel = case
    plan = DigestPlan.of(numel, itemsize, rows)
    kept = positions(plan)
    assert min(kept) >= 0
    assert max(kept) < numel
    assert len(set(kept)) == len(kept) == plan.elements
    assert plan.elements * itemsize <= plan.stride * itemsize <= DIGEST_BYTES


@given(plans)
@settings(deadline=None)
def test_rows_are_those_that_pieces_touch(case: tuple[int, int, int]) -> None:
    """The reference computes exactly the rows that are kept: at most four, spread from the first to one of the last."""
    itemsize, rows, numel = case
    plan = DigestPlan.of(numel, itemsize, rows)
    if not rows:
        assert plan.rows == ()
        return
    touched = {position // (numel // rows) for position in positions(plan)}
    assert touched == set(plan.rows)
    assert list(plan.rows) == sorted(touched)
    assert len(plan.rows) == min(rows, 4)
    assert plan.rows[0] == 0
    assert rows - plan.rows[-1] <= 3


@given(plans)
@settings(deadline=None)
def test_a_plan_spends_what_a_digest_holds(case: tuple[int, int, int]) -> None:
    """Two numbers of each row where they fit, one where not; of an output without rows as many as there is room for."""
    itemsize, rows, numel = case
    plan = DigestPlan.of(numel, itemsize, rows)
    room = min(8, DIGEST_BYTES // itemsize)
    if rows < 2:
        assert plan.elements == min(numel, room)
    else:
        each = 2 if numel > rows and 2 * len(plan.rows) <= room else 1
        assert plan.elements == each * len(plan.rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kept_elements_are_the_outputs_own(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """What is kept of three answers, decoded, is exactly the planned elements of each, and no other row is touched."""
    outputs = [values(shape, dtype, seed) for seed in range(3)]
    plan = plan_of(outputs[0], batch_size=shape[0] if shape else 1)
    digests = digests_of(outputs, plan, [0, 2, 3], 5)
    decoded = decode(digests, plan, str(dtype).removeprefix("torch."), 5)
    assert decoded.shape == (5, plan.elements)
    for row, output in zip([0, 2, 3], outputs, strict=True):
        assert decoded[row].tolist() == output.flatten()[positions(plan)].double().tolist()
    assert not decoded[[1, 4]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -0.0, 1e-40, 3.14159])
def test_decoding_keeps_every_number(number: float, dtype: torch.dtype) -> None:
    """Infinity, not-a-number and numbers too small to be normal come out as they went in."""
    output = torch.tensor([[number]], dtype=dtype)
    plan = plan_of(output, batch_size=1)
    decoded = decode(digests_of([output], plan, [0], 1), plan, str(dtype).removeprefix("torch."), 1)
    assert decoded[0, 0] == pytest.approx(output.double().item(), rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_reference_of_a_few_rows_agrees_with_the_whole_answer(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The elements taken from only the rows that a plan needs are those taken from the full output."""
    from bench.backend.references import _kept

    output = values(shape, dtype)
    plan = plan_of(output, batch_size=shape[0] if shape else 1)
    computed = output[list(plan.rows)] if plan.rows else output
    assert _kept(computed, plan).tolist() == output.flatten()[positions(plan)].tolist()


def test_references_of_a_model_agree_with_its_answers() -> None:
    """References, computed from four rows of each payload, equal what is kept of whole answers."""
    from bench.backend.references import references

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 10)).double()
    generator = torch.Generator().manual_seed(0)
    pool = [torch.randn(33, 3, 4, dtype=torch.float64, generator=generator) for _ in range(4)]
    with torch.inference_mode():
        outputs = [model(payload) for payload in pool]
        plan = plan_of(outputs[0], batch_size=33)
        found: dict[str, Any] = references(model, pool, plan, torch.device("cpu"))
    assert len(plan.rows) == 4
    decoded = decode(digests_of(outputs, plan, [0, 1, 2, 3], 4), plan, "float64", 4)
    for row in range(4):
        assert decoded[row].tolist() == pytest.approx(found["values"][row], rel=1e-12)


@pytest.mark.parametrize("shape", [(7, 40), (40,), ()], ids=str)
def test_an_output_that_is_not_a_row_a_sample_is_taken_whole(shape: tuple[int, ...]) -> None:
    """Where the first dimension is not the batch no row can be computed alone, so the plan names none."""
    output = values(shape, torch.float32)
    plan = plan_of(output, batch_size=5)
    assert plan.rows == ()
    assert plan.elements == min(8, output.numel())
