"""What the load asked and got, from stamps written by hand, against numbers worked out by hand."""

import numpy as np
import pytest

from bench.config import Settings
from bench.job import compose
from bench.results.load import load_metrics, step_metrics
from bench.results.metrics import Stamps
from bench.stamps import COMPLETED, INTENDED, SENT, WIDTH

MS = 1_000_000
OPEN = ("load=constant", "load.rate=10")


def settings(*overrides: str) -> Settings:
    return compose("batch_size=3", *overrides)


def stamps(intended_ms: list[float], sent_ms: list[float], completed_ms: list[float]) -> Stamps:
    """Requests by their three times, from a moment that is not 0."""
    rows = np.zeros((len(sent_ms), WIDTH))
    for column, times in ((INTENDED, intended_ms), (SENT, sent_ms), (COMPLETED, completed_ms)):
        rows[:, column] = [1000 + time for time in times]
    whole: Stamps = np.rint(rows * MS).astype(np.int64)
    return whole


# Due every 100 ms; the second is sent 20 ms late; answers after 50, 130, 250 and 150 ms of waiting.
ROWS = stamps([0, 100, 200, 300], [0, 120, 200, 301], [50, 230, 450, 450])


def test_an_open_load_tells_what_was_asked_and_what_came_of_it() -> None:
    """Four requests of batch 3, due at 10 a second."""
    assert load_metrics(settings(*OPEN, "slo.latency_ms=150"), ROWS) == pytest.approx(
        {
            "drain": 0.149,  # from the last send, 301 ms, to the last answer, 450 ms
            "window_throughput": 2 * 3 / 0.301,  # two answers came by the last send
            "asked_rate": 3 / 0.3,
            "delivered_rate": 3 / 0.301,
            "late_share": 0.0,  # 20 ms is less than the interval of 100 ms
            "schedule_delay_max": 0.020,
            "slo_share": 3 / 4,  # 50, 130 and 150 ms of what was due, the limit included, and not 250 ms
            "goodput": 3 * 3 / 0.45,
        }
    )


def test_a_promise_counts_from_when_a_request_was_due() -> None:
    """The second request was sent 20 ms late and answered 110 ms later: 130 ms for its user."""
    shares = [load_metrics(settings(*OPEN, f"slo.latency_ms={limit}"), ROWS)["slo_share"] for limit in (49, 129, 130)]
    assert shares == [0, 1 / 4, 2 / 4]


def test_goodput_without_a_good_request_is_0() -> None:
    """It is known to be 0, and so not absent."""
    metrics = load_metrics(settings("slo.latency_ms=1"), ROWS)
    assert (metrics["slo_share"], metrics["goodput"]) == (0, 0)


def test_without_a_promise_there_is_no_goodput() -> None:
    """Absent, not 0 and not the throughput."""
    assert {"slo_share", "goodput"}.isdisjoint(load_metrics(settings(*OPEN), ROWS))


def test_a_burst_has_a_drain_only() -> None:
    """It has no rate, and its window of sending says nothing."""
    assert load_metrics(settings(), ROWS) == pytest.approx({"drain": 0.149})


def test_a_closed_loop_has_a_window_and_no_schedule() -> None:
    """Answers drive it, so no rate was asked for and nothing can be late."""
    assert load_metrics(settings("load=closed"), ROWS) == pytest.approx(
        {"drain": 0.149, "window_throughput": 2 * 3 / 0.301}
    )


def test_late_is_more_than_an_interval_and_more_than_a_millisecond() -> None:
    """Due every 10 ms: 10 ms late is not yet late, 11 ms is. Due every 0.1 ms: 1.5 ms is late and 0.9 ms not."""
    wide = stamps([0, 10, 20, 30], [0, 20, 31, 30], [40, 40, 40, 40])
    assert load_metrics(settings(*OPEN), wide)["late_share"] == 1 / 4
    close = stamps([0, 0.1, 0.2, 0.3], [0, 1.0, 1.7, 1.8], [3, 3, 3, 3])
    assert load_metrics(settings(*OPEN), close)["late_share"] == 2 / 4


def test_a_single_request_has_no_rate() -> None:
    """One time spans nothing: what divides by it is absent."""
    assert load_metrics(settings(*OPEN), ROWS[:1]) == pytest.approx(
        {"drain": 0.050, "late_share": 0.0, "schedule_delay_max": 0.0}
    )


def test_requests_without_an_answer_do_not_count() -> None:
    """As if they had not been there; without any answer nothing is known."""
    rows = ROWS.copy()
    rows[3, COMPLETED] = 0
    for asked in (settings(), settings(*OPEN, "slo.latency_ms=150")):
        assert load_metrics(asked, rows) == load_metrics(asked, ROWS[:3])
        assert load_metrics(asked, rows[3:]) == {}


def test_each_step_of_a_ramp_has_its_own_metrics() -> None:
    """Step 0 due every 100 ms, step 2 every 50 ms; step 1 was never answered and has no row."""
    rows = stamps([0, 100, 200, 250, 300, 350], [0, 100, 200, 250, 300, 350], [10, 130, 999, 260, 320, 380])
    rows[2, COMPLETED] = 0
    first, last = step_metrics(rows, np.array([0, 0, 1, 2, 2, 2]), 3)
    assert first == pytest.approx(
        {
            "step": 0,
            "asked_rate": 10,
            "average_latency": 0.020,
            "min_latency": 0.010,
            "max_latency": 0.030,
            "throughput": 2 * 3 / 0.130,
            "window": 0.130,
        }
    )
    assert last["step"] == 2
    assert last["asked_rate"] == pytest.approx(20)
    assert last["average_latency"] == pytest.approx(0.020)
    assert last["throughput"] == pytest.approx(3 * 3 / 0.130)


def test_a_step_of_one_request_has_no_rate() -> None:
    """Absent, since one time spans nothing."""
    (row,) = step_metrics(ROWS[:1], np.array([0]), 3)
    assert "asked_rate" not in row
    assert row["average_latency"] == pytest.approx(0.050)


def test_percentiles_of_a_step_need_its_own_requests() -> None:
    """5 requests support a median; the 4 of the other step do not."""
    times = [float(100 * k) for k in range(9)]
    rows = stamps(times, times, [time + 10 for time in times])
    many, few = step_metrics(rows, np.array([0] * 5 + [1] * 4), 1)
    assert many["latency_p50"] == pytest.approx(0.010)
    assert "latency_p50" not in few
