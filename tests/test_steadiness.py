"""Steadiness and saturation: false alarms and finds, counted over seeded simulations."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from bench.results.statistics import Floats
from bench.results.steadiness import Times, saturated, unsteady

MS = 1e6


def completions(intervals_ms: Floats) -> Times:
    """Completion times of runs, a row each, from their service intervals."""
    return (1e12 + np.cumsum(intervals_ms * MS, axis=1)).astype(np.int64)


def alarms(intervals_ms: Floats) -> float:
    """Share of runs called unsteady."""
    return float(np.mean([unsteady(run) is not None for run in completions(intervals_ms)]))


def autoregressive(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """AR(1) with ρ = 0.5 around 1, 10 % deviation."""
    noise = rng.normal(0, 0.1 * np.sqrt(0.75), shape)
    noise[:, 0] /= np.sqrt(0.75)
    for k in range(1, shape[1]):
        noise[:, k] += 0.5 * noise[:, k - 1]
    return 1 + noise


STEADY: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "exponential": lambda rng, shape: rng.exponential(1, shape),
    "normal": lambda rng, shape: rng.normal(1, 0.05, shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1, shape),
    "autoregressive": autoregressive,
}


@pytest.mark.parametrize("name", STEADY)
@pytest.mark.parametrize("n", [30, 100, 300, 1000, 10_000])
def test_steady_runs_are_rarely_called_unsteady(name: str, n: int) -> None:
    """At most 5 % of simulated runs whose service intervals do not change, be they skewed or correlated."""
    runs = 200 if n == 10_000 else 1000
    assert alarms(STEADY[name](np.random.default_rng(n), (runs, n))) <= 0.05


@pytest.mark.parametrize("together", [2, 4, 8, 32])
@pytest.mark.parametrize("n", [30, 100, 1000])
def test_answers_in_bunches_are_steady(together: int, n: int) -> None:
    """Workers or batches that answer together make intervals of 0 and long ones; no phase of it is an alarm."""
    pattern = np.tile([0.0] * (together - 1) + [together], n)
    runs = np.stack([pattern[phase : phase + n] for phase in range(together)])
    assert alarms(np.maximum(runs, 1e-3)) == 0


def test_change_of_speed_is_found() -> None:
    """Service that slows down by 20 % over 300 requests under 5 % noise, in at least 99 % of runs."""
    rng = np.random.default_rng(5)
    slope = np.linspace(1, 1.2, 300)
    assert alarms(slope * rng.normal(1, 0.05, (500, 300))) >= 0.99
    assert alarms(slope[::-1] * rng.normal(1, 0.05, (500, 300))) >= 0.99


def test_unsteady_run_tells_its_three_rates() -> None:
    """Thirds at 1, 2 and 4 ms a request are 1000, 500 and 250 requests/s, whatever the order they are given in."""
    times = completions(np.repeat([[1.0, 2.0, 4.0]], 100, axis=1))[0]
    times = np.concatenate([[times[0] - int(MS)], times])
    found = unsteady(times[::-1])
    assert found is not None
    assert found.rates == pytest.approx((1000, 500, 250))
    assert str(found) == "unsteady: 1000, 500 and 250 requests/s in the three thirds of the window"


def test_change_too_small_to_matter_is_no_alarm() -> None:
    """1 % over the window is beyond doubt at 10,000 requests and 1 % noise, and not worth a warning."""
    intervals = np.linspace(1, 1.01, 10_000) * np.random.default_rng(6).normal(1, 0.01, (20, 10_000))
    assert alarms(intervals) == 0


def test_one_stall_does_not_make_a_run_unsteady() -> None:
    """A pause as long as 100 requests is in one batch, which the confidence interval takes in."""
    intervals = np.random.default_rng(7).normal(1, 0.05, (300, 300))
    intervals[np.arange(300), np.arange(300)] += 100
    assert alarms(intervals) <= 0.05


@pytest.mark.parametrize("n", [0, 1, 2, 10, 27])
def test_too_few_completions_say_nothing(n: int) -> None:
    """Even where each takes longer than the one before."""
    assert unsteady(np.cumsum(np.arange(n, dtype=np.int64) * 1000)) is None


def test_completions_at_one_time_are_no_error() -> None:
    """A clock that stands still gives no rates."""
    assert unsteady(np.full(100, 5, dtype=np.int64)) is None


def mm1(load: float, requests: int, runs: int, seed: int) -> tuple[Times, Times]:
    """Sent and completed times of M/M/1 queues, a row a run, at 1000 requests/s, by Lindley's recursion."""
    rng = np.random.default_rng(seed)
    sent = completions(rng.exponential(1, (runs, requests)))
    service = (rng.exponential(load, (runs, requests)) * MS).astype(np.int64)
    completed = np.empty_like(sent)
    free: npt.NDArray[np.int64] = np.zeros(runs, dtype=np.int64)
    for k in range(requests):
        free = np.maximum(free, sent[:, k]) + service[:, k]
        completed[:, k] = free
    return sent, completed


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize("requests", [100, 300, 2000])
def test_stable_queues_are_rarely_called_saturated(load: float, requests: int) -> None:
    """At most 2 % of 1000 simulated M/M/1 queues at ρ = 0.5 and 0.8, which are empty when the window begins."""
    queues = zip(*mm1(load, requests, 1000, 8), strict=True)
    share = np.mean([saturated(sent, completed) is not None for sent, completed in queues])
    assert share <= 0.02


def test_overload_is_found_with_its_slope() -> None:
    """At ρ = 1.1 in at least 95 % of M/M/1 queues of 2000, the backlog growing by 91 of 1000 requests/s."""
    found = [saturated(sent, completed) for sent, completed in zip(*mm1(1.1, 2000, 500, 9), strict=True)]
    slopes = [one.slope for one in found if one is not None]
    assert len(slopes) >= 0.95 * len(found)
    assert np.mean(slopes) == pytest.approx(1000 - 1000 / 1.1, rel=0.1)


def test_overload_without_noise_is_measured_exactly() -> None:
    """A request every 1 ms, an answer every 1.25 ms: of 1000 sent in a second 200 are left over."""
    sent = np.arange(1, 1001, dtype=np.int64) * int(MS)
    completed = sent[0] + np.arange(1, 1001) * int(1.25 * MS)
    found = saturated(sent, completed)
    assert found is not None
    assert found.slope == pytest.approx(200, rel=0.01)
    assert found.low < found.slope < found.high
    assert found.sending_rate == pytest.approx(1000)
    assert "% of what is sent" in str(found)


def test_answers_that_never_come_stay_in_the_backlog() -> None:
    """Every fifth request unanswered is a backlog that grows by 200 of 1000 requests/s."""
    sent = np.arange(1, 1001, dtype=np.int64) * int(MS)
    completed = np.where(np.arange(1000) % 5, sent + 1000, 0)
    found = saturated(sent, completed)
    assert found is not None
    assert found.slope == pytest.approx(200, rel=0.01)


def test_tiny_growth_is_no_saturation() -> None:
    """An answer every 1.005 ms to a request every 1 ms: half a percent, though beyond doubt."""
    sent = np.arange(1, 5001, dtype=np.int64) * int(MS)
    assert saturated(sent, sent[0] + np.arange(1, 5001) * int(1.005 * MS)) is None


@pytest.mark.parametrize("n", [0, 1, 99])
def test_too_few_requests_say_nothing_of_saturation(n: int) -> None:
    """Not even when none is answered."""
    assert saturated(np.arange(1, n + 1, dtype=np.int64), np.zeros(n, dtype=np.int64)) is None


def test_requests_all_sent_at_once_have_no_rate() -> None:
    """A burst in one nanosecond is no open loop, and no error."""
    assert saturated(np.full(200, 7, dtype=np.int64), np.arange(200, dtype=np.int64) + 8) is None
