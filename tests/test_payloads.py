"""Payloads lie in shared memory, in the model's dtype and layout, and follow from the seed alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from make_records import make_record

from bench.config import Settings
from bench.payloads import fill, pool_of
from bench.queues.memory import Board

DTYPES = ["float32", "bfloat16", "float16"]


def make_settings(**model: Any) -> Settings:
    """Two samples of 3×8×10 a request, in three payloads."""
    settings = Settings.from_mapping(make_record({"batch_size": 2, "payloads": 3}).settings)
    return replace(settings, model=replace(settings.model, **{"input_shape": [3, 8, 10], **model}))


def make_pool(settings: Settings, seed: int = 0) -> tuple[list[memoryview], list[torch.Tensor]]:
    """The memory of a new board and its payloads, filled."""
    board = Board(1, settings.payloads, settings.payload_bytes)
    memory = board.open(present=False).payloads
    board.memory.close()
    pool = pool_of(memory, settings)
    fill(pool, seed)
    return memory, pool


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_payloads_have_the_shape_and_type_of_the_settings(dtype: str, channels_last: bool) -> None:
    """Each of the three has the request's shape, the model's dtype, and strides in the asked memory format."""
    _, pool = make_pool(make_settings(dtype=dtype, channels_last=channels_last))
    assert len(pool) == 3
    form = torch.channels_last if channels_last else torch.contiguous_format
    for payload in pool:
        assert tuple(payload.shape) == (2, 3, 8, 10)
        assert payload.dtype == getattr(torch, dtype)
        assert payload.is_contiguous(memory_format=form)
        assert payload.stride() == ((240, 1, 30, 3) if channels_last else (240, 80, 10, 1))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_payloads_are_the_shared_memory_itself(dtype: str, channels_last: bool) -> None:
    """What one process writes the other sees: both have views of the same bytes, and nothing is copied."""
    settings = make_settings(dtype=dtype, channels_last=channels_last)
    memory, pool = make_pool(settings)
    other = pool_of(memory, settings)
    for mine, theirs in zip(pool, other, strict=True):
        assert mine.data_ptr() == theirs.data_ptr()
        mine[1, 2, 7, 9] = 5.0
        assert theirs[1, 2, 7, 9] == 5.0
    assert len({payload.data_ptr() for payload in pool}) == 3
    for part, payload in zip(memory, pool, strict=True):
        part[:] = bytes(len(part))
        assert not payload.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_seed_alone_decides(dtype: str) -> None:
    """The same seed gives the same payloads, another one others, and torch's own generator has no say."""
    settings = make_settings(dtype=dtype)
    torch.manual_seed(1)
    first = make_pool(settings, seed=3)[1]
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = make_pool(settings, seed=3)[1]
    assert torch.equal(torch.get_rng_state(), before)
    other = make_pool(settings, seed=4)[1]
    for k in range(3):
        assert torch.equal(first[k], again[k])
        assert not torch.equal(first[k], other[k])


@pytest.mark.parametrize("dtype", DTYPES)
def test_payloads_differ_and_are_standard_normal(dtype: str) -> None:
    """No two payloads are alike, nor two samples of one, and their values are as PyTorch's benchmark sends them."""
    _, pool = make_pool(make_settings(dtype=dtype, input_shape=[3, 32, 32]))
    samples = torch.cat(pool).float().flatten(1)
    assert len({tuple(sample[:8].tolist()) for sample in samples}) == 6
    assert samples.mean().item() == pytest.approx(0, abs=0.05)
    assert samples.std().item() == pytest.approx(1, abs=0.05)


def test_any_number_of_dimensions_will_do() -> None:
    """A payload need not be an image."""
    settings = make_settings(input_shape=[7])
    assert [tuple(payload.shape) for payload in make_pool(settings)[1]] == [(2, 7)] * 3
