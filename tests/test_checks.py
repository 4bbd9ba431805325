"""Each reason for an invalid run and each doubt of its answers, provoked one by one."""

from typing import Any

import numpy as np
import pytest
from make_records import make_record

from bench.config import Settings
from bench.queues.digest import DigestPlan
from bench.results.checks import judge
from bench.results.metrics import Stamps
from bench.results.record import Verdict
from bench.stamps import COMPLETED, COMPUTE_END, H2D_START, INTENDED, SENT, STAMPS, WIDTH

ROWS = 5
PLAN = DigestPlan.of(numel=8, itemsize=4, rows=2)
VALUES = [[float(8 * payload + k) for k in range(PLAN.elements)] for payload in range(4)]
ALIKE = "answers could not be checked: different payloads have too similar answers"


def settings(**changes: Any) -> Settings:
    given = {"num_iters": ROWS - 1, "batch_size": 2, "compile": False, "device.name": "cpu"} | changes
    return Settings.from_mapping(make_record(given).settings)


def stamps(rows: int = ROWS, apart_ns: int = 100) -> Stamps:
    return np.array([[10**9 + apart_ns * row + column for column in range(WIDTH)] for row in range(rows)])


def answers(rows: int = ROWS) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The kept elements of right answers, as they lie in shared memory."""
    kept = np.zeros((rows, PLAN.stride), dtype=np.float32)
    kept[:, : PLAN.elements] = [VALUES[row % 4] for row in range(rows)]
    return kept


def backend(**changes: Any) -> dict[str, Any]:
    """What a backend says that ran what `settings()` asks for; on the CPU a layout has no buffers of its own."""
    return {
        "device": "cpu",
        "dtype": "float32",
        "input_shape": [2, 3, 250, 250],
        "output_dtype": "float32",
        "compiled": False,
        "compilations": 0,
        "compilations_in_window": 0,
        "stream_layout": "pipelined",
        "compute_threads": 4,
        "streams": 6,
        "buffers": 0,
        "intraop_threads": 1,
        "references": {"values": VALUES, "rtol": 1e-4, "atol": 5e-3},
    } | changes


def verdict(
    given: Settings | None = None,
    rows: Stamps | None = None,
    said: dict[str, Any] | None = None,
    kept: np.ndarray[Any, np.dtype[np.float32]] | None = None,
    in_flight_ns: int | None = None,
) -> Verdict:
    digests = (answers() if kept is None else kept).tobytes()
    return judge(
        given or settings(), stamps() if rows is None else rows, said or backend(), digests, PLAN, in_flight_ns
    )


def test_a_good_run_is_valid() -> None:
    """Nothing is held against it."""
    assert verdict() == Verdict("valid", [], [])


def test_request_without_an_answer_makes_a_run_invalid() -> None:
    """One of five was never answered."""
    rows = stamps()
    rows[3, COMPLETED] = 0
    found = verdict(rows=rows)
    assert found.status == "invalid"
    assert found.reasons == ["5 requests were due, 5 were sent and 4 answered"]


@pytest.mark.parametrize("column", [k for k in range(1, WIDTH) if k != SENT])
def test_stamp_that_goes_back_in_time_makes_a_run_invalid(column: int) -> None:
    """Whichever stamp it is, it is named, with its request."""
    rows = stamps()
    rows[2, column] = rows[2, column - 1] - 1
    rows[4, column] = rows[4, column - 1] - 1
    found = verdict(rows=rows)
    assert found.status == "invalid"
    assert found.reasons == [f"stamps out of order in 2 requests, first {STAMPS[column]} of request 2"]


def test_request_sent_before_it_was_meant_to_be_is_out_of_order() -> None:
    """A load pattern that sends early would flatter the latency."""
    rows = stamps()
    rows[1, INTENDED] = rows[1, SENT] + 1
    assert verdict(rows=rows).reasons[0].startswith("stamps out of order in 1 requests")


def test_stages_that_were_not_stamped_are_passed_over() -> None:
    """The cold first request has no stages of its own."""
    rows = stamps()
    rows[0, H2D_START : COMPUTE_END + 1] = 0
    assert verdict(rows=rows).status == "valid"


@pytest.mark.parametrize("element", range(PLAN.elements))
def test_one_wrong_element_of_one_answer_makes_a_run_invalid(element: int) -> None:
    """Every kept element counts, and the message says which request, what came and what was due."""
    kept = answers()
    kept[3, element] += 1
    found = verdict(kept=kept)
    assert found.status == "invalid"
    assert found.reasons == [
        f"1 of 5 answers are wrong, first that to request 3: {24 + (element == 0):g} where 24 was due"
    ]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_answer_that_is_no_number_is_wrong(value: float) -> None:
    """NaN compares as neither near nor far; it must not pass."""
    kept = answers()
    kept[:, 1] = value
    assert verdict(kept=kept).reasons[0].startswith("5 of 5 answers are wrong")


def test_answer_to_another_payload_is_wrong() -> None:
    """All answers are right ones, each given to the next request but for the first, whose payload is the last's."""
    assert verdict(kept=np.roll(answers(), 1, axis=0)).reasons[0].startswith("4 of 5 answers are wrong")


def test_rounding_is_not_wrong() -> None:
    """An answer within the tolerance of its type passes; one just beyond does not."""
    tolerance = 1e-4 * VALUES[2][0] + 5e-3 * max(VALUES[-1])
    kept = answers()
    kept[2, 0] = VALUES[2][0] + 0.99 * tolerance
    assert verdict(kept=kept).status == "valid"
    kept[2, 0] = VALUES[2][0] + 1.01 * tolerance
    assert verdict(kept=kept).status == "invalid"


@pytest.mark.parametrize("spread", [0.0, 1e-3])
def test_references_too_alike_are_said_to_check_nothing(spread: float) -> None:
    """If all payloads have the same answer, a wrong slot would go unseen; that is said and not passed over."""
    values = [[1 + spread * payload] * PLAN.elements for payload in range(4)]
    said = backend(references={"values": values, "rtol": 1e-4, "atol": 5e-3})
    kept = answers()
    kept[:, : PLAN.elements] = [values[row % 4] for row in range(ROWS)]
    assert verdict(said=said, kept=kept) == Verdict("valid", [], [ALIKE])


def test_two_of_the_payloads_alike_are_enough_for_that_warning() -> None:
    """Their two slots could be exchanged unseen, however much the others differ."""
    values = [VALUES[0], VALUES[1], VALUES[1], VALUES[3]]
    kept = answers()
    kept[2] = kept[1]
    said = backend(references={"values": values, "rtol": 1e-4, "atol": 5e-3})
    assert verdict(said=said, kept=kept).warnings == [ALIKE]


def test_one_payload_is_said_to_check_nothing() -> None:
    """Every answer is the same then, and the warning says what to set."""
    said = backend(references={"values": VALUES[:1], "rtol": 1e-4, "atol": 5e-3})
    kept = answers()
    kept[:] = kept[0]
    (warning,) = verdict(settings(payloads=1), said=said, kept=kept).warnings
    assert "with one payload" in warning
    assert "Set payloads=4" in warning


def test_backend_without_references_is_warned_of() -> None:
    """verify=true without anything to compare with is no success."""
    said = backend()
    del said["references"]
    assert verdict(said=said).warnings == ["answers were not checked: the backend gave no references"]


def test_verify_off_checks_no_answer_and_warns_of_nothing() -> None:
    """The user asked for it."""
    kept = answers()
    kept[:] = -1
    assert verdict(settings(verify=False), kept=kept) == Verdict("valid", [], [])


@pytest.mark.parametrize(
    ("asked", "key", "ran", "wanted"),
    [
        ({}, "dtype", "bfloat16", "float32"),
        ({}, "input_shape", [1, 3, 250, 250], [2, 3, 250, 250]),
        ({}, "compiled", True, False),
        ({}, "stream_layout", "serial", "pipelined"),
        ({}, "compute_threads", 1, 4),
        ({"num_workers": 3}, "compute_threads", 4, 3),
        ({}, "streams", 1, 6),
        ({}, "buffers", 8, 0),
        ({}, "device", "cuda:0", "cpu"),
        ({"device.name": "cuda", "device.index": 1}, "device", "cuda:0", "cuda:1"),
        ({"stream_layout.intraop_threads": 2}, "intraop_threads", 1, 2),
        ({}, "compilations_in_window", 1, 0),
        ({}, "dtype", None, "float32"),
    ],
)
def test_backend_that_ran_something_else_makes_a_run_invalid(
    asked: dict[str, Any], key: str, ran: Any, wanted: Any
) -> None:
    """Whatever it attests that was not asked for is named, with what was."""
    found = verdict(settings(**asked), said=backend(**{key: ran}))
    assert found.status == "invalid"
    assert f"the backend ran {key}={ran} where {wanted} was asked" in found.reasons


@pytest.mark.parametrize(
    ("asked", "ran", "wanted"),
    [
        ({}, 4, 8),
        ({"stream_layout.buffers_per_worker": 3}, 8, 12),
        ({"stream_layout.name": "async"}, 8, 4),
        ({"stream_layout.name": "serial"}, 8, 1),
    ],
)
def test_buffers_of_a_gpu_must_be_as_many_as_asked(asked: dict[str, Any], ran: int, wanted: int) -> None:
    """They limit what is in flight, and so the latency."""
    on_gpu = settings(**{"device.name": "cuda", "device.index": 0}, **asked)
    layout = {"stream_layout": on_gpu.stream_layout.name, "compute_threads": on_gpu.compute_threads}
    said = backend(device="cuda:0", streams=on_gpu.streams, **layout)
    assert verdict(on_gpu, said=said | {"buffers": wanted}).reasons == []
    (reason,) = verdict(on_gpu, said=said | {"buffers": ran}).reasons
    assert reason == f"the backend ran buffers={ran} where {wanted} was asked"


def test_compile_that_compiled_nothing_makes_a_run_invalid() -> None:
    """compile=true and an eager run must not stand in one table cell."""
    asked = settings(compile=True)
    assert verdict(asked, said=backend(compiled=True)).reasons == ["compile=true, but the compiler made no graph"]
    assert verdict(asked, said=backend(compiled=True, compilations=1)).status == "valid"


def in_turn(latency_ns: int, rows: int = ROWS) -> Stamps:
    """Requests one after the other, each with that latency, stamps evenly spread."""
    steps = np.linspace(0, latency_ns, WIDTH, dtype=np.int64)
    return np.array([10**9 + 2 * latency_ns * row + steps for row in range(rows)])


def broken(rows: Stamps, counted_ns: float) -> list[str]:
    """Reasons of a run whose requests in flight were counted as so many nanoseconds."""
    asked = settings(num_iters=len(rows) - 1)
    return verdict(asked, rows, kept=answers(len(rows)), in_flight_ns=round(counted_ns)).reasons


@pytest.mark.parametrize(
    ("count", "off", "is_broken"),
    [
        (400, 0.0, False),
        (400, 0.19, False),  # 4 / √400
        (400, -0.19, False),
        (400, 0.21, True),
        (400, -0.21, True),
        (400, -0.999, True),
        (16, 0.49, False),  # never more than a half
        (16, 0.51, True),
        (10_000, 0.049, False),  # never less than 5 %
        (10_000, 0.051, True),
    ],
)
def test_requests_in_flight_must_agree_with_the_latencies(count: int, off: float, is_broken: bool) -> None:
    """Little's law: what was counted in flight against what the stamps say, with a tolerance by their number."""
    rows = in_turn(10**9, count + 1)
    reasons = broken(rows, (1 + off) * (rows[1:, COMPLETED] - rows[1:, SENT]).sum())
    assert [reason.split(":")[0] for reason in reasons] == ["Little's law is broken"] * is_broken


def test_broken_law_tells_both_sides() -> None:
    """400 requests one after the other, each in flight for 0.9 of 2 s (but the last): 0.45, where 0.9 was counted."""
    rows = in_turn(10**9, 401)
    (reason,) = broken(rows, 2 * (rows[1:, COMPLETED] - rows[1:, SENT]).sum())
    assert reason == (
        "Little's law is broken: 0.901 requests were in flight on average, throughput times mean latency is 0.451"
    )


def test_counting_an_answer_a_little_late_breaks_no_law() -> None:
    """Up to 20 µs a request, which is as long as a request of a fast backend takes."""
    rows = in_turn(10_000, 40_001)
    stamped = int((rows[1:, COMPLETED] - rows[1:, SENT]).sum())
    assert broken(rows, stamped + 40_000 * 19_000) == []
    assert len(broken(rows, stamped + 40_000 * 25_000)) == 1


@pytest.mark.parametrize("at_once", [1, 200])
def test_a_client_that_loses_its_core_once_breaks_no_law(at_once: int) -> None:
    """Some milliseconds between the stamps and the count weigh as much as all that was in flight meanwhile."""
    rows = np.tile(in_turn(1_000_000, 2)[1], (1 + at_once, 1))
    rows[1:] += 10**9
    stamped = int((rows[1:, COMPLETED] - rows[1:, SENT]).sum())
    assert broken(rows, stamped + at_once * 9_000_000) == []
    assert len(broken(rows, stamped + at_once * 11_000_000)) == 1


def test_what_was_not_counted_breaks_no_law() -> None:
    """Without a count there is nothing to hold the stamps against, nor is there without an answer."""
    assert verdict(in_flight_ns=None).reasons == []
    unanswered = in_turn(10**9)
    unanswered[:, COMPLETED] = 0
    assert [reason.split()[0] for reason in verdict(rows=unanswered, in_flight_ns=10**12).reasons] == ["5"]


def scheduled(late_ns: list[int], load: str = "constant") -> list[str]:
    """Reasons of a run of 200 requests, one due every 2 ms, of which the first were sent so late."""
    rows = in_turn(10**6, 201)
    rows[1 : 1 + len(late_ns), SENT:] += np.array(late_ns, dtype=np.int64)[:, None]
    asked = settings(num_iters=200, **{"load.name": load, "load.rate": 500.0, "load.clients": 1})
    return verdict(asked, rows, kept=answers(201)).reasons


@pytest.mark.parametrize(
    ("load", "is_told"), [("constant", True), ("poisson", True), ("burst", False), ("closed", False)]
)
def test_client_that_fell_behind_its_schedule_makes_a_run_invalid(load: str, is_told: bool) -> None:
    """3 of 200 requests sent a second late are not the load that was asked; a burst has no schedule."""
    reasons = scheduled([10**9] * 3, load)
    assert len(reasons) == is_told
    assert all(reason.startswith("the client fell behind: 1.5% of the requests were sent late") for reason in reasons)
    assert all("up to 1 s" in reason for reason in reasons)


@pytest.mark.parametrize("late_ns", [[10**9] * 2, [1_800_000] * 200, []])
def test_client_that_kept_its_schedule_nearly_did_not_fall_behind(late_ns: list[int]) -> None:
    """1 % of the requests may be late, and none is late by less than the interval."""
    assert scheduled(late_ns) == []


def test_warm_up_may_fall_behind() -> None:
    """The schedule is that of the measured requests; a cold backend holds up those before."""
    rows = in_turn(10**6)
    rows[:3, SENT:] += 10**9
    asked = settings(num_iters=2, warmup_iters=2, **{"load.name": "constant", "load.rate": 500.0})
    assert verdict(asked, rows).reasons == []


def test_all_reasons_are_told_at_once() -> None:
    """An unanswered request, a wrong device and a wrong answer: three reasons."""
    rows, kept = stamps(), answers()
    rows[1, COMPLETED] = 0
    kept[2] = 0
    assert len(verdict(rows=rows, said=backend(device="meta"), kept=kept).reasons) == 3
