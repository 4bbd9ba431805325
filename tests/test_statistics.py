"""Statistics over repeats, against textbook values, exact enumeration and simulation."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.results.statistics import Statistic, drift, spearman, t_quantile

values = st.lists(st.integers(100, 10**9).map(lambda value: value / 1000), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("df", "quantile"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (29, 2.0452), (120, 1.9799)]
)
def test_quantiles_are_those_of_printed_tables(df: int, quantile: float) -> None:
    """Two-sided 95 % values of Student's t."""
    assert t_quantile(df) == pytest.approx(quantile, abs=5e-5)


def test_interval_worked_out_by_hand() -> None:
    """Of 9, 10, 11, 12, 13: mean 11, variance 10/4, half width 2.7764 × √(2.5 / 5)."""
    statistic = Statistic.of([9, 10, 11, 12, 13])
    assert (statistic.mean, statistic.n) == (11, 5)
    assert statistic.std == pytest.approx(math.sqrt(2.5))
    assert statistic.interval == pytest.approx((11 - 1.96324, 11 + 1.96324), abs=1e-4)
    assert statistic.cv == pytest.approx(math.sqrt(2.5) / 11)
    assert statistic.relative_half_width == pytest.approx(1.96324 / 11, abs=1e-5)


def test_of_one_run_no_spread_is_known() -> None:
    """Deviation, interval, and coefficient of variation of a single value are absent, not 0 or NaN."""
    statistic = Statistic.of([7.0])
    assert (statistic.mean, statistic.n) == (7.0, 1)
    assert [statistic.std, statistic.interval, statistic.cv, statistic.relative_half_width] == [None] * 4


def test_nothing_is_relative_to_a_mean_of_zero() -> None:
    """The interval is known, what would be divided by the mean is absent."""
    statistic = Statistic.of([-1.0, 1.0])
    assert statistic.interval == pytest.approx((-12.7062, 12.7062), abs=1e-3)
    assert statistic.cv is statistic.relative_half_width is None


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    """Of 4000 simulated cells of 4 runs between 94 and 96 % have the true mean in their 95 % interval."""
    cells = np.random.default_rng(1).normal(10, 1, (4000, 4))
    intervals = [Statistic.of(cell.tolist()).interval for cell in cells]
    share = np.mean([interval is not None and interval[0] <= 10 <= interval[1] for interval in intervals])
    assert 0.94 <= share <= 0.96


@given(values, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_of_runs_does_not_change_a_statistic(runs: list[float], random: object) -> None:
    """Not by a single bit, so that tables written twice are equal."""
    shuffled = sorted(runs, key=lambda _: random.random())  # type: ignore[attr-defined] # a random.Random
    assert Statistic.of(shuffled) == Statistic.of(runs)


@given(values, st.floats(1e-3, 1e3))
@settings(deadline=None)
def test_unit_does_not_change_what_is_relative(runs: list[float], factor: float) -> None:
    """Seconds or milliseconds: the same coefficient of variation and relative half width."""
    one, other = Statistic.of(runs), Statistic.of([factor * run for run in runs])
    assert other.cv == pytest.approx(one.cv, rel=1e-6, abs=1e-12)
    assert other.relative_half_width == pytest.approx(one.relative_half_width, rel=1e-6, abs=1e-12)


@given(values, st.floats(0.001, 1))
@settings(deadline=None)
def test_more_repeats_are_as_many_as_it_takes(runs: list[float], target: float) -> None:
    """With them the half width would be within the target, with one less not; none are asked where it is."""
    statistic = Statistic.of(runs)
    more = statistic.more_repeats(target)
    within = [
        (half := Statistic(statistic.mean, statistic.std, statistic.n + k).half_width) is not None
        and half <= target * statistic.mean
        for k in (0, more - 1, more)
    ]
    if more == 0:
        assert within[0]
    elif more < 1000:
        assert within == [False, False, True]
    else:
        assert not within[1]


def test_more_repeats_of_a_known_cell() -> None:
    """With 10 % deviation a half width of 5 % takes 18 runs: t(17) / √18 = 0.497, t(16) / √17 = 0.514."""
    assert Statistic(100.0, 10.0, 5).more_repeats(0.05) == 13
    assert Statistic(100.0, 10.0, 18).more_repeats(0.05) == 0


def test_more_repeats_are_bounded() -> None:
    """One for a cell with a single run, the bound where it takes more or no number will do, none for equal runs."""
    assert Statistic.of([3.0]).more_repeats(0.05) == 1
    assert Statistic(100.0, 80.0, 5).more_repeats(0.01, at_most=20) == 20
    assert Statistic.of([-1.0, 1.0]).more_repeats(0.05, at_most=20) == 20
    assert Statistic.of([0.0, 0.0]).more_repeats(0.05) == Statistic.of([2.0, 2.0]).more_repeats(0.05) == 0


@pytest.mark.parametrize(
    ("order", "rho", "p_value"),
    [
        ([1, 2, 3, 4, 5], 1.0, 2 / 120),
        ([6, 5, 4, 3, 2, 1], -1.0, 2 / 720),
        ([2, 1, 3, 4, 5, 6], 0.943, 0.0167),
        ([1, 3, 2, 4, 5, 7, 6], 0.929, 0.0067),
        ([2, 1, 4, 3, 5, 7, 6], 0.893, 0.0123),
    ],
)
def test_p_values_of_few_runs_are_exact(order: list[float], rho: float, p_value: float) -> None:
    """Two-sided, as printed tables of Spearman's coefficient have them."""
    found = spearman(order)
    assert found == pytest.approx((rho, p_value), abs=5e-4)


def test_correlation_is_that_of_scipy() -> None:
    """With and without ties; the p-value of 30 values is near the t approximation's."""
    from scipy.stats import spearmanr

    rng = np.random.default_rng(2)
    for runs in (rng.normal(size=30) + np.arange(30) / 20, rng.integers(0, 4, 30) + np.arange(30) / 10 // 1):
        found, known = spearman(runs.tolist()), spearmanr(np.arange(30), runs)
        assert found is not None
        assert found[0] == pytest.approx(known.statistic)
        assert found[1] == pytest.approx(known.pvalue, abs=0.01)


@pytest.mark.parametrize(("n", "alarms"), [(5, 0), (6, 2)])
def test_false_alarms_of_drift_counted_over_every_order(n: int, alarms: int) -> None:
    """5 runs can never show drift at 1 %, 6 only where they rise or fall throughout."""
    assert sum(drift(order) is not None for order in itertools.permutations(range(n))) == alarms


def test_false_alarms_of_drift_are_at_most_one_percent() -> None:
    """Over every order of 7 runs exactly, over 5000 simulated cells of 10 runs within three standard errors."""
    found = [drift(order) is not None for order in itertools.permutations(range(7))]
    assert 0.005 < np.mean(found) <= 0.01
    cells = np.random.default_rng(3).lognormal(0, 0.03, (5000, 10))
    alarms = np.mean([drift(cell.tolist()) is not None for cell in cells])
    assert 0.01 - 0.0043 <= alarms <= 0.01 + 0.0043


def test_real_drift_is_found() -> None:
    """A machine that slows down by 1 % a run under noise of 1 % shows in at least 95 % of cells of 10 runs."""
    noise = np.random.default_rng(4).normal(0, 0.01, (500, 10))
    found = [drift(cell.tolist()) for cell in 1 - 0.01 * np.arange(10) + noise]
    assert np.mean([one is not None and one.rho < 0 for one in found]) >= 0.95


def test_drift_says_which_way() -> None:
    """In words for a table's reader."""
    assert str(drift([9, 8, 7, 6, 5, 4, 3])) == "falls from run to run (Spearman's ρ = -1.00, p = 0.0004, n = 7)"


@pytest.mark.parametrize("runs", [[], [1.0], [1.0, 2.0, 3.0, 4.0], [5.0] * 10])
def test_no_drift_without_evidence(runs: list[float]) -> None:
    """Too few runs, or equal ones, for which no correlation exists."""
    assert drift(runs) is None


@given(st.lists(st.floats(0.1, 1e3), min_size=5, max_size=10))
@settings(deadline=None)
def test_drift_does_not_depend_on_the_scale(runs: list[float]) -> None:
    """Only the order of values counts: any unit and the reversed order say the same, the latter mirrored."""
    one, doubled, mirrored = spearman(runs), spearman([2 * run for run in runs]), spearman(runs[::-1])
    assert one == doubled
    if one is not None and mirrored is not None:
        assert mirrored[0] == pytest.approx(-one[0])
        assert mirrored[1] == pytest.approx(one[1], abs=0.02)


def test_scipy_stays_out_until_it_computes() -> None:
    """Importing loads no scipy, and a run's own checks never the slow part of it."""
    code = (
        "import sys, numpy as np; from bench.results import compare, effects, statistics, steadiness;"
        "assert 'scipy' not in sys.modules;"
        "times = np.arange(1000) * 1000; steadiness.unsteady(times); steadiness.saturated(times, times + 5);"
        "statistics.Statistic.of([1, 2]).interval; statistics.drift(list(range(9)));"
        "compare.compare([1, 2], [2, 3], higher_is_better=True);"
        "assert 'scipy.special' in sys.modules and 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
