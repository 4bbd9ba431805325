"""The rule that says when the client fell behind its schedule."""

import numpy as np
import pytest

from bench.frontend.schedules import constant
from bench.results.pace import behind

MS = 1_000_000


def test_a_client_on_time_is_not_behind() -> None:
    """Sent 0.1 ms late each: the delay is reported, the rate is delivered, nobody is late."""
    due = constant(1000, num_iters=1001)
    pace = behind(due, due + MS // 10)
    assert (pace.late_share, pace.fell_behind) == (0, False)
    assert (pace.asked_rate, pace.delivered_rate) == pytest.approx((1000, 1000))
    assert pace.delay == dict.fromkeys(("p50", "p90", "p95", "p99", "max"), 0.0001)


@pytest.mark.parametrize(("late", "fell_behind"), [(10, False), (11, True)])
def test_more_than_one_request_in_a_hundred_may_not_be_late(late: int, fell_behind: bool) -> None:
    """Of 1000 requests 10 may come 3 ms late, not 11."""
    due = constant(1000, num_iters=1000)
    pace = behind(due, due + np.where(np.arange(1000) < late, 3 * MS, 0))
    assert (pace.late_share, pace.fell_behind) == (late / 1000, fell_behind)


@pytest.mark.parametrize(
    ("rate", "delay_ms", "late"),
    [(20_000, 1.0, False), (20_000, 1.001, True), (10, 99, False), (10, 101, True)],
)
def test_late_is_later_than_an_interval_and_a_millisecond(rate: float, delay_ms: float, late: bool) -> None:
    """At 20,000 requests/s the millisecond decides, at 10 requests/s the interval of 100 ms."""
    due = constant(rate, num_iters=100)
    assert behind(due, due + round(delay_ms * MS)).fell_behind is late


def test_a_client_that_is_too_slow_delivers_its_own_rate() -> None:
    """Asked for 2000 requests/s and able to send 1000, it falls behind and the delivered rate says so."""
    pace = behind(constant(2000, num_iters=1000), constant(1000, num_iters=1000))
    assert pace.fell_behind
    assert (pace.asked_rate, pace.delivered_rate) == pytest.approx((2000, 1000))


def test_of_a_burst_and_of_one_request_there_is_no_rate() -> None:
    """All at one time and sent at once: no rate that means anything, no request late."""
    for due in (np.zeros(9, dtype=np.int64), np.zeros(1, dtype=np.int64)):
        pace = behind(due, due)
        assert (pace.asked_rate, pace.delivered_rate, pace.fell_behind) == (None, None, False)
