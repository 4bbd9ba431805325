"""Schedules of the open-loop load patterns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from bench.errors import ConfigError
from bench.frontend.schedules import Step, constant, poisson, ramp, steps_of

S = 1_000_000_000
MS = 1_000_000

rates = st.floats(0.01, 1e6)
counts = st.integers(1, 2000)
seeds = st.integers(0, 2**63)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(rate=rates, count=counts)
def test_constant_is_on_the_grid_of_its_rate(rate: float, count: int) -> None:
    """Request k is due at k/rate, to the nanosecond, and there are as many as were asked."""
    offsets = constant(rate, num_iters=count)
    assert len(offsets) == count
    assert np.abs(offsets - np.arange(count) / rate * 1e9).max() <= 0.5 + 1e-12 * count / rate * 1e9


def test_constant_ends_before_its_duration() -> None:
    """At 4 requests/s one second holds those at 0, 250, 500 and 750 ms: the one at 1 s is out."""
    assert constant(4, duration_s=1).tolist() == [0, 250 * MS, 500 * MS, 750 * MS]
    assert constant(4, duration_s=1.001).tolist()[-1] == S


@given(rate=rates, count=counts, seed=seeds)
def test_poisson_is_monotone_and_starts_with_an_interval(rate: float, count: int, seed: int) -> None:
    """The times never go back, none is before the start, and there are as many as were asked."""
    offsets = poisson(rate, rng(seed), num_iters=count)
    assert (offsets.dtype, len(offsets)) == (np.dtype(np.int64), count)
    assert offsets[0] >= 0
    assert (np.diff(offsets) >= 0).all()


@given(rate=st.floats(1, 1e4), count=counts, more=counts, seed=seeds)
def test_poisson_is_given_by_its_seed(rate: float, count: int, more: int, seed: int) -> None:
    """The same seed gives the same times, and a longer run begins with the times of a shorter one."""
    short, long = poisson(rate, rng(seed), num_iters=count), poisson(rate, rng(seed), num_iters=count + more)
    assert (long[:count] == short).all()
    assert (poisson(rate, rng(seed + 1), num_iters=count) != short).any()


def test_poisson_does_not_show_its_chunks() -> None:
    """More requests than are drawn at once are the cumulated intervals of one generator."""
    whole = np.rint(np.cumsum(rng(5).exponential(S / 1000, 150_000))).astype(np.int64)
    assert (poisson(1000, rng(5), num_iters=150_000) == whole).all()
    assert (poisson(1000, rng(5), duration_s=140) == whole[whole < 140 * S]).all()


def test_poisson_intervals_are_exponential_and_independent() -> None:
    """Kolmogorov and Smirnov do not tell 20,000 intervals from exponential ones; constant ones fail the same test."""
    intervals = np.diff(poisson(20_000, rng(1), num_iters=20_001)) / S
    assert kstest(intervals, "expon", args=(0, 1 / 20_000)).pvalue > 0.05
    assert abs(np.corrcoef(intervals[1:], intervals[:-1])[0, 1]) < 3 / np.sqrt(len(intervals))
    assert kstest(np.diff(constant(20_000, num_iters=1000)) / S, "expon", args=(0, 1 / 20_000)).pvalue < 1e-6


@given(rate=st.floats(100, 1e5), seed=seeds)
def test_poisson_counts_are_those_of_its_rate(rate: float, seed: int) -> None:
    """In a window with 400 requests expected there are 400, within 6 of its standard deviations (20)."""
    offsets = poisson(rate, rng(seed), duration_s=400 / rate)
    assert offsets[-1] < 400 / rate * 1e9
    assert 280 < len(offsets) < 520


@given(rate=st.floats(1, 1e4), count=counts, duration_s=st.floats(0.01, 1), seed=seeds)
def test_the_first_reached_end_counts(rate: float, count: int, duration_s: float, seed: int) -> None:
    """With both ends set there are the requests that either end alone would leave."""
    both = constant(rate, num_iters=count, duration_s=duration_s)
    either = constant(rate, num_iters=count)
    assert (both == either[either < duration_s * 1e9]).all()
    drawn = poisson(rate, rng(seed), num_iters=count)
    if (kept := drawn[drawn < duration_s * 1e9]).size:
        assert (poisson(rate, rng(seed), num_iters=count, duration_s=duration_s) == kept).all()


def test_ramp_steps_follow_each_other() -> None:
    """A step ends at its time or with its requests, the next begins there, and each request knows its step."""
    offsets, steps = ramp([Step(2, duration_s=1), Step(10, requests=3), Step(4, duration_s=0.5, requests=9)])
    assert (offsets / MS).tolist() == [0, 500, 1000, 1100, 1200, 1300, 1550]
    assert steps.tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_ramp_ends_where_the_run_ends() -> None:
    """`num_iters` and `duration_s` cut a ramp like any other schedule."""
    steps = [Step(2, duration_s=1), Step(10, requests=3)]
    assert [part.tolist() for part in ramp(steps, num_iters=3)] == [[0, S // 2, S], [0, 0, 1]]
    assert [len(part) for part in ramp(steps, duration_s=1)] == [2, 2]


def test_ramp_with_random_intervals_keeps_each_rate() -> None:
    """Poisson steps of 100, 1000, 100 and 1 requests/s have such counts, and each begins where the last ends."""
    steps = [Step(100, duration_s=10), Step(1000, duration_s=10), Step(100, requests=1000), Step(1, requests=2)]
    offsets, index = ramp(steps, rng(3))
    assert (np.diff(offsets) >= 0).all()
    assert np.bincount(index).tolist() == pytest.approx([1000, 10_000, 1000, 2], rel=0.1)
    assert [int(offsets[index == k][0] // S) for k in range(3)] == [0, 10, 20]
    assert np.ptp(offsets[index == 2]) == pytest.approx(10 * S, rel=0.1)


def test_steps_from_yaml() -> None:
    """Mappings become steps; a misspelled key or a bare number is named with its place."""
    assert steps_of([{"rate": 5, "duration_s": 2}, {"rate": 7, "requests": 3}]) == [Step(5, 2), Step(7, requests=3)]
    with pytest.raises(ConfigError, match=r"load.steps\[1\].*seconds.*\n?load.steps\[2\]=7") as caught:
        steps_of([{"rate": 5}, {"rate": 5, "seconds": 2}, 7])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("rate", "num_iters", "duration_s", "message"),
    [
        (0, 1, None, "load.rate=0: must be"),
        (-1, 1, None, "load.rate=-1: must be"),
        (float("nan"), 1, None, "load.rate=nan: must be"),
        (float("inf"), 1, None, "load.rate=inf: must be"),
        (True, 1, None, "load.rate=True: must be"),
        (1, None, None, "num_iters=null, duration_s=null: nothing ends"),
        (1, 0, None, "num_iters=0: must be"),
        (1, 1, -1, "duration_s=-1: must be"),
        (1, 1, float("nan"), "duration_s=nan: must be"),
        (0.001, 10**8, None, "load.rate=0.001: 100000000 requests take over a year"),
        (1e6, None, 1e6, "duration_s=1000000.0: more than 100000000 requests"),
    ],
)
def test_values_that_make_no_schedule(
    rate: float, num_iters: int | None, duration_s: float | None, message: str
) -> None:
    """Each wrong value is named with its key by every pattern that has it, before memory is taken."""
    with pytest.raises(ConfigError, match="^" + message):
        constant(rate, num_iters=num_iters, duration_s=duration_s)
    with pytest.raises(ConfigError, match="^" + message):
        poisson(rate, rng(), num_iters=num_iters, duration_s=duration_s)


def test_ramp_names_its_wrong_step() -> None:
    """A wrong value in a step, a step without an end, no step at all, and steps too long together."""
    for steps, message in (
        ([Step(1, 1), Step(0, 1)], r"load.steps\[1\].rate=0: must be"),
        ([Step(1)], r"load.steps\[0\].requests=null, load.steps\[0\].duration_s=null: nothing ends"),
        ([], r"load.steps=\[\]"),
        ([Step(0.001, 3e7), Step(0.001, 3e7)], "load.steps: .*a year"),
    ):
        with pytest.raises(ConfigError, match=message):
            ramp(steps)


def test_a_window_without_requests_is_refused() -> None:
    """Poisson requests once in 1000 s leave nothing to send within a millisecond."""
    with pytest.raises(ConfigError, match="before the first request"):
        poisson(0.001, rng(), duration_s=0.001)


def test_twenty_thousand_a_second_cost_little() -> None:
    """A minute at 20,000 requests/s is 1.2 million offsets of 8 bytes, in order."""
    offsets = poisson(20_000, rng(), duration_s=60)
    assert offsets.nbytes == 8 * len(offsets)
    assert len(offsets) == pytest.approx(1_200_000, rel=0.01)
    assert (np.diff(offsets) >= 0).all()
