"""Metrics from stamps written by hand, against numbers worked out by hand."""

import numpy as np
import pytest

from bench.results.metrics import STAGES, Stamps, durations, percentile, requests_needed, run_metrics
from bench.stamps import COMPLETED, INTENDED, STAMPS

MS = 1_000_000
# intended, sent, received, h2d, h2d, compute, compute, d2h, d2h, replied, completed
PLAN = [0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55]


def request(start_ms: int, times_ms: list[int] = PLAN) -> list[int]:
    return [(1000 + start_ms + time) * MS for time in times_ms]


def of_latencies(latencies_ms: list[int]) -> Stamps:
    """A cold request, then one request a second for each latency."""
    rows = [request(0)]
    rows += [request(1000 * k, [*PLAN[:10], latency]) for k, latency in enumerate(latencies_ms, 1)]
    return np.array(rows)


def test_every_metric_of_two_requests() -> None:
    """Two measured requests of batch 3, the second 30 ms later and 20 ms longer in its forward pass."""
    longer = [time + 20 * (k >= 6) for k, time in enumerate(PLAN)]
    metrics = run_metrics(np.array([request(0), request(500), request(530, longer)]), 3, 0)
    assert metrics == pytest.approx(
        {
            "warmup_latency": 0.055,
            "average_latency": 0.065,
            "min_latency": 0.055,
            "max_latency": 0.075,
            # 2 × 3 samples from the first sent (501 ms) to the last completed (605 ms)
            "window": 0.104,
            "throughput": 6 / 0.104,
        }
    )


def test_every_duration_of_a_request() -> None:
    """Each stage, in nanoseconds, is what lies between its two stamps."""
    assert {name: each.tolist() for name, each in durations(np.array([request(0)])).items()} == {
        "schedule_delay": [1 * MS],
        "queue_wait": [5 * MS],
        "h2d": [4 * MS],
        "compute_wait": [5 * MS],
        "compute": [6 * MS],
        "d2h_wait": [7 * MS],
        "d2h": [8 * MS],
        "respond": [19 * MS],
        "latency": [55 * MS],
        "service_latency": [54 * MS],
    }


def test_stages_add_up_to_the_latency() -> None:
    """No nanosecond of a latency is missing from its stages, and none counts twice."""
    rows = np.cumsum(np.random.default_rng(0).integers(0, 10**9, (50, len(STAMPS))), axis=1)
    each = durations(rows)
    assert np.array_equal(np.sum([each[stage] for stage in STAGES], axis=0), each["latency"])


def test_percentiles_are_nearest_ranks() -> None:
    """Of 1…20 ms the median is 10 ms, p90 18 ms and p95 19 ms: values that were measured, none above the largest."""
    ordered = np.arange(1, 21) * MS
    assert [percentile(ordered, q) / MS for q in (0.5, 0.9, 0.95, 0.99, 1.0)] == [10, 18, 19, 20, 20]
    assert percentile(np.array([7]), 0.5) == 7


@pytest.mark.parametrize(
    ("name", "quantile", "needed"),
    [("p50", 0.5, 5), ("p90", 0.9, 29), ("p95", 0.95, 59), ("p99", 0.99, 299), ("p99_9", 0.999, 2995)],
)
def test_percentile_is_absent_until_the_requests_support_it(name: str, quantile: float, needed: int) -> None:
    """With one request fewer than 1 − quantile ** n >= 0.95 asks for there is no such metric."""
    assert requests_needed(quantile) == needed
    assert 1 - quantile**needed >= 0.95 > 1 - quantile ** (needed - 1)
    assert f"latency_{name}" not in run_metrics(of_latencies(list(range(100, 100 + needed - 1))), 1, 0)
    metrics = run_metrics(of_latencies(list(range(100, 100 + needed))), 1, 0)
    assert metrics[f"latency_{name}"] <= metrics["max_latency"]


def test_percentiles_do_not_depend_on_the_order_of_requests() -> None:
    """The 5 latencies 90, 50, 70, 60, 80 ms have the median 70 ms."""
    assert run_metrics(of_latencies([90, 50, 70, 60, 80]), 1, 0)["latency_p50"] == pytest.approx(0.07)


def test_warm_up_requests_stay_out_of_the_window() -> None:
    """Two slow warm-up requests have an average of their own and change nothing else."""
    metrics = run_metrics(of_latencies([900, 700, 100, 200]), 1, 2)
    assert metrics["warmup_iters_average_latency"] == pytest.approx(0.8)
    assert (metrics["average_latency"], metrics["max_latency"]) == pytest.approx((0.15, 0.2))
    assert metrics["warmup_latency"] == pytest.approx(0.055)


def test_requests_without_an_answer_do_not_count() -> None:
    """A failed run's metrics are of the answered requests, and throughput does not count the others."""
    rows = of_latencies([100, 100, 100])
    rows[2, COMPLETED] = 0
    metrics = run_metrics(rows, 4, 0)
    assert metrics["average_latency"] == pytest.approx(0.1)
    assert metrics["throughput"] == pytest.approx(2 * 4 / (2 + 0.1 - 0.001))  # sent at 1.001 s, completed at 3.1 s


def test_latency_holds_the_delay_of_the_client_itself() -> None:
    """A request meant for 0 ms and sent 40 ms late has that in its latency and not in its service latency."""
    late = [0, *[time + 40 for time in PLAN[1:]]]
    rows = np.array([request(0), request(100, late)])
    assert run_metrics(rows, 1, 0)["average_latency"] == pytest.approx(0.095)
    each = durations(rows)
    assert [each[name][1] / MS for name in ("latency", "service_latency", "schedule_delay")] == [95, 54, 41]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_of_a_run_without_answers_nothing_is_known(rows: int) -> None:
    """No metric is better than 0, NaN or a warning about an empty mean."""
    stamps = np.zeros((rows, len(STAMPS)), dtype=np.int64)
    stamps[:, INTENDED] = 1
    assert run_metrics(stamps, 1, 0) == {}
