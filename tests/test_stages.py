"""Stage shares, percentiles and tail evidence of stamps written by hand, against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.results.metrics import STAGES, Stamps
from bench.results.stages import (
    ADVICE,
    TAIL_NEEDS,
    Tail,
    missing_percentiles,
    stage_metrics,
    stage_shares,
    tail_evidence,
)
from bench.stamps import COMPLETED, STAMPS

MS = 1_000_000
# Of each stage in ms; the latency is 20 ms.
PLAN = {
    "schedule_delay": 1,
    "queue_wait": 4,
    "h2d": 1,
    "compute_wait": 2,
    "compute": 8,
    "d2h_wait": 1,
    "d2h": 1,
    "respond": 2,
}


def requests(count: int, every_ms: float = 1000, **stages_ms: list[float]) -> Stamps:
    """Stamps of `count` requests like PLAN; a list in `stages_ms` gives the first of them another stage."""
    ns = np.array([[PLAN[name]] * count for name in STAGES], dtype=float)
    for name, values in stages_ms.items():
        ns[list(STAGES).index(name), : len(values)] = values
    intended = 10**12 + np.arange(count) * every_ms * MS
    edges = np.vstack([intended, intended + np.cumsum(ns, axis=0) * MS])  # 9 of the 11 stamps
    stamps = np.insert(edges, 2, edges[1], axis=0)  # received as soon as sent
    stamps = np.insert(stamps, 9, stamps[8], axis=0)  # replied when copied back
    whole: Stamps = np.rint(stamps.T).astype(np.int64)
    return whole


def tail(stamps: Stamps, *, burst: bool = False) -> Tail:
    found = tail_evidence(stamps, burst=burst)
    assert found is not None
    return found


def test_the_requests_of_these_tests_are_what_they_say() -> None:
    """Every stage of the constructed stamps has its length."""
    assert requests(3).shape == (3, len(STAMPS))
    assert stage_metrics(requests(3)) == pytest.approx(
        {**{name: ms / 1000 for name, ms in PLAN.items()}, "service_latency": 0.019}
    )


def test_shares_of_the_mean_latency() -> None:
    """Of a mean latency of 25 ms, compute being 8 and 18 ms, compute is 52 % and queue wait 16 %; all sum to 1."""
    shares = stage_shares(requests(2, compute=[18]))
    assert shares == pytest.approx({**{name: ms / 25 for name, ms in PLAN.items()}, "compute": 13 / 25})
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)


@given(seed=st.integers(0, 2**32), count=st.integers(TAIL_NEEDS, 700))
def test_no_nanosecond_is_lost(seed: int, count: int) -> None:
    """For any stamps in order the shares sum to 1, and the stages of each group to its latency."""
    rows = np.cumsum(np.random.default_rng(seed).integers(0, 10**8, (count, len(STAMPS))), axis=1) + 1
    assert sum(stage_shares(rows).values()) == pytest.approx(1, abs=1e-12)
    found = tail(rows)
    for group in (found.slow, found.middle):
        assert sum(group[name] for name in STAGES) == pytest.approx(group["latency"], abs=1e-12)
    assert sum(found.explains.values()) == pytest.approx(1, abs=1e-9)


def test_percentiles_of_stages_where_they_are_supported() -> None:
    """With compute taking 1…100 ms its p50, p90, p95 are 50, 90, 95 ms, and there is no p99 of 100 requests."""
    metrics = stage_metrics(requests(100, compute=list(np.random.default_rng(0).permutation(100) + 1.0)))
    assert {name: value for name, value in metrics.items() if name.startswith("compute_p")} == pytest.approx(
        {"compute_p50": 0.05, "compute_p90": 0.09, "compute_p95": 0.095}
    )
    assert metrics["compute"] == pytest.approx(0.0505)
    assert (metrics["service_latency_p50"], metrics["queue_wait_p95"]) == pytest.approx((0.061, 0.004))


def test_percentiles_that_are_missing_say_what_they_need() -> None:
    """100 requests lack 199 for p99 and 2895 for p99.9; 2995 lack none; none at all lack 5 for the median."""
    assert missing_percentiles(100) == {"p99": 199, "p99_9": 2895}
    assert missing_percentiles(2995) == {}
    assert missing_percentiles(0)["p50"] == 5


def test_the_groups_are_the_slowest_and_the_middle() -> None:
    """Of compute times 1…100 ms in any order the slowest 5 have a mean of 98 ms, and the middle 10 of 50.5 ms."""
    found = tail(requests(100, compute=list(np.random.default_rng(0).permutation(100) + 1.0)))
    assert (found.slow_requests, found.middle_requests) == (5, 10)
    assert (found.slow["compute"], found.middle["compute"]) == pytest.approx((0.098, 0.0505))


WAITS = {"queue_wait": "backend takes", "compute_wait": "workers take"}  # for a worker: in the queue, and behind it


@pytest.mark.parametrize("stage", WAITS)
def test_tail_of_a_wait_for_a_worker(stage: str) -> None:
    """11 of 1000 requests wait 60 ms longer now and then: p99 is 80 ms, and that wait explains all.

    One request is due each second, and waits for 4 + 1 + 2 ms, so that one is waiting 1 % of the time.
    """
    found = tail(requests(1000, 1000, **{stage: [PLAN[stage] + 60.0] * 11}))
    assert (found.slow_requests, found.middle_requests, found.stage) == (10, 100, stage)
    assert (found.slow["latency"], found.middle["latency"]) == pytest.approx((0.08, 0.02))
    assert (found.slow[stage], found.middle[stage]) == pytest.approx((PLAN[stage] / 1e3 + 0.06, PLAN[stage] / 1e3))
    assert found.explains == pytest.approx({name: float(name == stage) for name in STAGES})
    assert found.sentence == (
        f"p99 is 4 times p50; all of the difference is {stage.replace('_', ' ')}: requests came faster, at times, "
        f"than the {WAITS[stage]} them (a request was waiting 1 % of the time)"
    )
    assert found.advice == ADVICE[stage][1]


@pytest.mark.parametrize("stage", WAITS)
def test_tail_of_a_saturated_backend(stage: str) -> None:
    """Requests come each 10 ms and each waits 9 ms longer than the last: one is waiting all the time."""
    found = tail(requests(400, every_ms=10, **{stage: [9.0 * k for k in range(400)]}))
    assert found.stage == stage
    assert (
        f"{stage.replace('_', ' ')}: the backend is saturated (a request was waiting 100 % of the time)"
        in found.sentence
    )
    assert "larger batch_size" in found.advice


@pytest.mark.parametrize("stage", WAITS)
def test_tail_of_a_burst_is_called_a_backlog(stage: str) -> None:
    """Of requests sent at once the last wait longest, which says nothing of one request, and the sentence says so."""
    found = tail(requests(400, every_ms=0, **{stage: [PLAN[stage] + 8.0 * k for k in range(400)]}), burst=True)
    words = f"all of the difference is {stage.replace('_', ' ')}: all requests were sent at once"
    assert found.sentence.startswith(f"p99 is 1.97 times p50; {words}")
    assert "backlog" in found.sentence
    assert "load=closed" in found.advice


@pytest.mark.parametrize("stage", [name for name in STAGES if name not in WAITS])
def test_each_stage_is_named_and_has_advice(stage: str) -> None:
    """A stage that is 90 ms longer in 5 of 50 requests, while another is 10 ms longer, is named with its 90 %."""
    other = "h2d" if stage != "h2d" else "d2h"
    longer: dict[str, list[float]] = {stage: [PLAN[stage] + 90] * 5, other: [PLAN[other] + 10] * 5}
    found = tail(requests(50, 1000, **longer))
    assert found.stage == stage
    assert found.explains[stage] == pytest.approx(0.9)
    assert found.sentence.startswith(
        "the slowest 5 of 50 requests took 6 times as long as those around p50; 90 % of the difference is "
    )
    assert found.sentence.endswith(ADVICE[stage][0])
    assert found.advice == ADVICE[stage][1]


def test_a_difference_that_no_stage_makes_alone() -> None:
    """40, 35 and 25 ms more in three stages: the first two are named."""
    found = tail(requests(50, compute=[48] * 5, respond=[37] * 5, d2h=[26] * 5))
    assert "no stage is most of the difference, compute (40 %) and respond (35 %) come first" in found.sentence


def test_a_stage_that_was_shorter_counts_against() -> None:
    """Compute 44 ms longer and the queue wait 4 ms shorter: compute is 110 % of the difference, called all of it."""
    found = tail(requests(50, compute=[52] * 5, queue_wait=[0] * 5))
    assert (found.explains["compute"], found.explains["queue_wait"]) == pytest.approx((1.1, -0.1))
    assert "all of the difference is compute" in found.sentence


@pytest.mark.parametrize("longer_ms", [0, 1])
def test_where_there_is_no_tail_none_is_explained(longer_ms: float) -> None:
    """All alike, or 5 % longer: nothing is named and nothing is advised."""
    found = tail(requests(300, compute=[8 + longer_ms] * 10))
    assert (found.stage, found.advice) == (None, "")
    assert found.sentence == f"p99 is {1.05 if longer_ms else 1} times p50: no tail to explain"


def test_too_few_requests_are_no_evidence() -> None:
    """Of 19 requests the slowest 5 and the middle 5 are nearly neighbours; of 20 there is evidence."""
    assert tail_evidence(requests(19, compute=[100])) is None
    assert tail(requests(20, compute=[100])).slow_requests == 5


def test_requests_without_an_answer_do_not_count() -> None:
    """A failed run's last request has no stages; a run without answers has no shares, metrics or evidence."""
    stamps = requests(30)
    stamps[7, COMPLETED] = 0
    assert stage_shares(stamps)["compute"] == pytest.approx(0.4)
    nothing = np.zeros((30, len(STAMPS)), dtype=np.int64)
    assert (stage_shares(nothing), stage_metrics(nothing), tail_evidence(nothing)) == ({}, {}, None)
