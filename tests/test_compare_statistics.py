"""Comparison of cells and effects of axes, against hand-worked values, scipy and simulation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.results.compare import Comparison, compare, holm, judge, more_repeats, repeats_in_words
from bench.results.effects import effect, effects

# Thousandths, since what differs by less than a float's rounding is neither equal nor different.
values = st.lists(st.integers(500, 2000).map(lambda value: value / 1000), min_size=2, max_size=12)


def compared(first: Any, second: Any, higher_is_better: bool = True) -> Comparison:
    """The comparison of two cells that can be compared."""
    comparison = compare([float(v) for v in first], [float(v) for v in second], higher_is_better=higher_is_better)
    assert comparison is not None
    return comparison


def interval(comparison: Comparison) -> tuple[float, float]:
    """Its interval, which must be known."""
    assert comparison.low is not None
    assert comparison.high is not None
    return comparison.low, comparison.high


def called_different(comparison: Comparison) -> bool:
    """At 5 %, uncorrected."""
    assert comparison.p_value is not None
    return comparison.p_value < 0.05


def outcome(comparison: Comparison, margin: float = 0.02) -> str:
    """The verdict in a table of one."""
    return judge([comparison], margin)[0].outcome


def test_comparison_worked_out_by_hand() -> None:
    """Logarithms 1…5 and 3…7: shift 2, standard error 1, 8 degrees of freedom, so p = 0.0805 and 2 ± 2.306."""
    comparison = compared(np.exp(range(1, 6)), np.exp(range(3, 8)))
    assert comparison.ratio == pytest.approx(math.exp(2))
    assert interval(comparison) == pytest.approx((math.exp(-0.306), math.exp(4.306)), rel=1e-3)
    assert comparison.p_value == pytest.approx(0.0805, abs=5e-5)
    assert (comparison.test, comparison.sizes) == ("welch", (5, 5))
    assert comparison.variances == pytest.approx((2.5, 2.5))


def test_welch_is_that_of_scipy() -> None:
    """For cells of different noise and size, down to 2 runs."""
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (2, 9), (10, 4)):
        first, second = rng.lognormal(0, 0.02, n), rng.lognormal(0.03, 0.1, m)
        comparison, known = compared(first, second), ttest_ind(np.log(second), np.log(first), equal_var=False)
        assert comparison.p_value == pytest.approx(known.pvalue)
        assert interval(comparison) == pytest.approx(tuple(np.exp(known.confidence_interval(0.95))))


def test_cell_compared_with_itself() -> None:
    """A/A: of 5000 comparisons under 3 % noise with 10 runs between 4 and 6 % are called different at 5 %."""
    cells = np.random.default_rng(1).lognormal(0, 0.03, (5000, 2, 10))
    assert 0.04 <= np.mean([called_different(compared(*pair)) for pair in cells]) <= 0.06


@pytest.mark.parametrize("n", [2, 3, 4])
def test_small_cells_compared_with_themselves(n: int) -> None:
    """No more than 6 % of false alarms with few runs, and intervals that hold the ratio 1 as often as the test says."""
    comparisons = [compared(*pair) for pair in np.random.default_rng(n).lognormal(0, 0.03, (3000, 2, n))]
    assert np.mean([called_different(one) for one in comparisons]) <= 0.06
    assert all(called_different(one) == (not interval(one)[0] <= 1 <= interval(one)[1]) for one in comparisons)


def test_true_difference_is_found() -> None:
    """5 % under noise of 3 % with 10 runs: called faster in at least 90 % of 2000 comparisons, slower in none."""
    cells = np.random.default_rng(2).lognormal(0, 0.03, (2000, 2, 10)) * [[1], [1.05]]
    outcomes = [outcome(compared(*pair)) for pair in cells]
    assert outcomes.count("faster") >= 0.9 * len(outcomes)
    assert "slower" not in outcomes


def test_intervals_hold_the_ratio() -> None:
    """Of 3000 intervals of a true ratio 1.2 under unequal noise 94 to 96 % hold it."""
    rng = np.random.default_rng(3)
    pairs = [(rng.lognormal(0, 0.02, 6), 1.2 * rng.lognormal(0, 0.06, 9)) for _ in range(3000)]
    share = np.mean([low <= 1.2 <= high for low, high in (interval(compared(*pair)) for pair in pairs)])
    assert 0.94 <= share <= 0.96


def test_skewed_cells_are_compared_by_ranks() -> None:
    """Where most runs are alike and some much slower; no more than 6 % of false alarms, consistent intervals."""
    rng = np.random.default_rng(4)
    cells = rng.lognormal(0, 0.01, (1000, 2, 10)) * (1 + 0.5 * (rng.random((1000, 2, 10)) < 0.1))
    comparisons = [compared(*pair) for pair in cells]
    assert np.mean([one.test == "mann-whitney" for one in comparisons]) > 0.6
    assert np.mean([called_different(one) for one in comparisons]) <= 0.06
    assert all(called_different(one) == (not interval(one)[0] <= 1 <= interval(one)[1]) for one in comparisons)


def test_one_slow_run_does_not_hide_a_difference() -> None:
    """Two outliers swamp the means; ranks still see that the other runs differ by 5 %."""
    first = [100, 101, 102, 100.5, 101.5, 100.2, 101.2, 20]
    comparison = compared(first, [1.05 * value for value in first])
    assert comparison.test == "mann-whitney"
    assert comparison.ratio == pytest.approx(1.05, rel=0.01)
    assert outcome(comparison) == "faster"


def test_four_runs_with_one_outlier() -> None:
    """The fewest that ranks are used for: 5 % is seen beside a run that took off, as Welch's test would not."""
    comparison = compared([100, 100.1, 99.9, 100.05], [105, 105.1, 104.9, 180])
    assert (comparison.test, outcome(comparison)) == ("mann-whitney", "faster")
    assert interval(comparison) == pytest.approx((104.9 / 100.1, 180 / 99.9))


def test_fewer_skewed_runs_are_not_compared_by_ranks() -> None:
    """Ranks of 3 and 3 runs cannot reach 5 %, so that twice the throughput would go unseen."""
    comparison = compared([100, 100.1, 98], [200, 200.1, 196])
    assert (comparison.test, outcome(comparison)) == ("welch", "faster")
    assert compared([100, 101, 102], [*range(100, 110), 300]).test == "welch"


@given(values, values)
@settings(deadline=None)
def test_swapped_cells_give_the_mirrored_comparison(first: list[float], second: list[float]) -> None:
    """A to B and B to A: inverse ratio and interval, the same p-value, the opposite verdict."""
    there, back = compared(first, second), compared(second, first)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert interval(back) == pytest.approx(tuple(1 / bound for bound in reversed(interval(there))), rel=1e-6)
    assert back.p_value == pytest.approx(there.p_value, abs=1e-3)
    opposite = {"faster": "slower", "slower": "faster"}
    assert outcome(back) == opposite.get(outcome(there), outcome(there))


@given(values, values, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_of_runs_does_not_change_a_comparison(first: list[float], second: list[float], random: object) -> None:
    """Runs of a cell are a set."""
    shuffled = sorted(first, key=lambda _: random.random())  # type: ignore[attr-defined] # a random.Random
    one, other = compared(first, second), compared(shuffled, second)
    assert other.ratio == pytest.approx(one.ratio)
    assert interval(other) == pytest.approx(interval(one))
    assert other.p_value == pytest.approx(one.p_value, abs=1e-3)


@given(values, values, st.sampled_from([1e-3, 4.0, 1e6]))
@settings(deadline=None)
def test_ratio_follows_the_scale(first: list[float], second: list[float], factor: float) -> None:
    """Another unit of both cells changes nothing, one of the second multiplies ratio and interval."""
    one = compared(first, second)
    both, scaled = compared(np.multiply(first, factor), np.multiply(second, factor)), np.multiply(second, factor)
    assert both.ratio == pytest.approx(one.ratio)
    assert both.p_value == pytest.approx(one.p_value, abs=1e-3)
    assert compared(first, scaled).ratio == pytest.approx(factor * one.ratio)
    assert interval(compared(first, scaled)) == pytest.approx(tuple(factor * bound for bound in interval(one)))


def test_equal_runs_are_the_same_and_others_differ() -> None:
    """Without any noise there is neither a division by zero nor a difference made of rounding."""
    same = compared([0.1 + 0.2] * 3, [0.3] * 3)
    assert same.p_value == pytest.approx(1, abs=1e-3)
    assert outcome(same) == "same"
    assert outcome(compared([1.0, 1.0], [1.1, 1.1])) == "faster"
    assert outcome(compared([1.0] * 5, [1.1] * 5)) == "faster"


def test_single_run_has_a_ratio_and_no_more() -> None:
    """No interval, no test, unsure, and at least one more repeat."""
    comparison = compared([100], [130, 131, 132])
    assert comparison.ratio == pytest.approx(1.31, rel=1e-3)
    assert [comparison.low, comparison.high, comparison.p_value, comparison.test] == [None] * 4
    judgement = judge([comparison])[0]
    assert (judgement.outcome, judgement.p_value, judgement.more_repeats) == ("unsure", None, 1)


@pytest.mark.parametrize(("first", "second"), [([], [1.0]), ([1.0], []), ([1.0, 0.0], [1.0]), ([1.0], [-1.0, 2.0])])
def test_what_has_no_ratio_is_not_compared(first: list[float], second: list[float]) -> None:
    """A cell without a run, or with a value that is not positive."""
    assert compare(first, second, higher_is_better=True) is None


def test_direction_decides_what_faster_is() -> None:
    """A throughput of 1.1 times is faster, a latency of 1.1 times slower."""
    first, second = [100, 101, 99], [110, 111, 109]
    assert outcome(compared(first, second, higher_is_better=True)) == "faster"
    assert outcome(compared(first, second, higher_is_better=False)) == "slower"


def test_difference_within_the_margin_is_the_same() -> None:
    """0.5 % beyond any doubt is `same` at a margin of 2 %, and `faster` where the user cares for 0.1 %."""
    noise = np.random.default_rng(5).lognormal(0, 0.001, (2, 10))
    comparison = compared(noise[0], 1.005 * noise[1])
    assert called_different(comparison)
    assert outcome(comparison) == "same"
    assert outcome(comparison, margin=0.001) == "faster"


def test_unsure_says_how_many_more_repeats_settle_it() -> None:
    """With as many repeats more at the same ratio and noise the verdict is there, with one less not."""
    for shift in (0.0, 0.01, 0.03, -0.04):
        comparison = compared(np.exp(0.04 * np.array([-1, 0, 1, 0])), np.exp(shift + 0.04 * np.array([-1, 0, 1, 0])))
        more = judge([comparison])[0].more_repeats
        assert more is not None
        assert [settled(comparison, more - 1), settled(comparison, more)] == [False, True]


def settled(comparison: Comparison, more: int) -> bool:
    """Whether cells of equal noise and size, with `more` runs, differ at 5 % or lie within 2 % of each other."""
    from scipy.stats import t

    n = comparison.sizes[0] + more
    half = t.ppf(0.975, 2 * n - 2) * math.sqrt(2 * comparison.variances[0] / n)
    shift = abs(math.log(comparison.ratio))
    return bool(half < shift or shift + half <= math.log(1.02))


def test_more_repeats_are_bounded_and_grow_with_the_table() -> None:
    """At least 1; beyond 1000 no number is told; a difference among 100 needs more runs than one alone."""
    comparison = compared([100, 104, 96, 100], [103, 107, 99, 103])
    assert 1 <= more_repeats(comparison) < more_repeats(comparison, margin=1e-6, comparisons=100)
    assert more_repeats(replace(comparison, ratio=1.0), margin=1e-6) == 1001
    assert [repeats_in_words(more) for more in (1, 1000, 1001)] == [
        "1 more repeat",
        "1000 more repeats",
        "over 1000 more repeats",
    ]


def test_holm_worked_out_by_hand() -> None:
    """0.01, 0.04, 0.03 and 0.005 become 3 × 0.01, then 0.06 twice since none falls below one before, and 4 × 0.005."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_tables_of_equal_cells_rarely_hold_a_false_alarm() -> None:
    """Holm over 10 comparisons: at most 5 % of 1000 tables call any of them different, within two standard errors.

    Without the correction it would be 40 %.
    """
    cells = np.random.default_rng(6).lognormal(0, 0.03, (1000, 10, 2, 6))
    alarms = []
    for table in cells:
        judgements = judge([compared(*pair) for pair in table], margin=0.0)
        alarms.append(any(one.outcome in ("faster", "slower") for one in judgements))
    assert 0.02 <= np.mean(alarms) <= 0.05 + 0.014


def test_table_leaves_single_runs_out_of_the_correction() -> None:
    """What cannot be tested does not make the others harder to see."""
    clear, single = compared([100, 101, 102], [103, 104.5, 106]), compared([1], [2])
    assert called_different(clear)
    assert [one.outcome for one in judge([single, clear, single])] == ["unsure", "faster", "unsure"]
    judgements = judge([clear, *[compared([1, 2], [2, 1])] * 9])
    assert [one.outcome for one in judgements] == ["unsure"] * 10
    assert judgements[0].more_repeats == more_repeats(clear, comparisons=10)
    assert more_repeats(clear, comparisons=10) > more_repeats(clear)


def test_effects_worked_out_by_hand() -> None:
    """Workers double the throughput, compiling adds 10 %, and 10 % × 1.2 with more workers."""
    noise = np.exp([-0.01, 0.0, 0.01])
    table = {(False, 1): 100.0, (True, 1): 110.0, (False, 2): 200.0, (True, 2): 264.0}
    cells = [({"compile": c, "num_workers": w}, list(mean * noise)) for (c, w), mean in table.items()]
    compiled, workers, both = effects(cells)
    assert (compiled.axes, compiled.levels, compiled.combinations) == (("compile",), ((False, True),), 2)
    assert compiled.ratio == pytest.approx(math.sqrt(1.1 * 1.32))
    assert workers.ratio == pytest.approx(math.sqrt(2 * 2.4))
    assert (both.axes, both.levels, both.combinations) == (("compile", "num_workers"), ((False, True), (1, 2)), 1)
    assert both.ratio == pytest.approx(1.2)
    # Each logarithm has variance 1e-4 / 3 and 2 degrees of freedom, so 8 in all; t is 2.306.
    half = 2.306 * math.sqrt(1e-4 / 3)
    assert (compiled.low, compiled.high) == pytest.approx(
        (compiled.ratio * math.exp(-half), compiled.ratio * math.exp(half)), rel=1e-5
    )
    assert (both.low, both.high) == pytest.approx((1.2 * math.exp(-2 * half), 1.2 * math.exp(2 * half)), rel=1e-5)


def test_effect_intervals_hold_the_truth() -> None:
    """Of 1000 sweeps with unequal noise 93.5 to 96.5 % hold each main effect, and an interaction that is none."""
    rng = np.random.default_rng(7)
    held = []
    for _ in range(1000):
        cells = []
        for batch in (1, 8, 64):
            for compiled in (False, True):
                for layout in ("serial", "async"):
                    mean = batch * 1.3**compiled * (0.9 if layout == "async" else 1)
                    runs = mean * rng.lognormal(0, 0.01 if batch > 1 else 0.04, 5)
                    cells.append(({"batch_size": batch, "compile": compiled, "layout": layout}, runs.tolist()))
        found = {effect.axes: effect for effect in effects(cells)}
        assert list(found) == [("compile",), ("layout",), ("compile", "layout")]
        truth = {
            ("compile",): 1.3,
            ("layout",): 1 / 0.9,  # from async to serial
            ("compile", "layout"): 1.0,
        }
        held.append([(e.low or 0) <= truth[axes] <= (e.high or 0) for axes, e in found.items()])
    shares = np.mean(held, axis=0)
    assert ((shares >= 0.935) & (shares <= 0.965)).all()


def test_missing_cell_costs_its_combination_only() -> None:
    """With one cell of six failed, compile's effect is of the two complete batch sizes; with no pair left, absent."""
    cells: list[tuple[dict[str, Any], list[float]]] = [
        ({"batch_size": batch, "compile": compiled}, [10.0 * batch * (2 if compiled else 1)] * 2)
        for batch in (1, 2, 4)
        for compiled in (False, True)
    ]
    cells[-1] = (cells[-1][0], [])
    (effect,) = effects(cells)
    assert (effect.axes, effect.combinations) == (("compile",), 2)
    assert effect.ratio == pytest.approx(2)
    assert effects([({"compile": False}, [1.0]), ({"compile": True}, [])]) == effects([]) == []


def test_effect_of_single_runs_has_no_interval() -> None:
    """The ratio is known, its interval absent; values are told apart as YAML does, lists and 1 from true too."""
    (effect,) = effects([({"shape": [1]}, [4.0]), ({"shape": [2]}, [5.0])])
    assert effect.ratio == pytest.approx(1.25)
    assert (effect.low, effect.high) == (None, None)
    assert effect.levels == (([1], [2]),)
    assert effect.p_value is None
    (odd,) = effects([({"x": 1}, [4.0]), ({"x": True}, [8.0])])
    assert odd.levels == ((True, 1),)
    assert odd.ratio == pytest.approx(0.5)


def test_effect_goes_in_the_order_of_the_values_whatever_came_first() -> None:
    """A sweep that has not reached a cell yet, or failed there, does not turn its effects around."""
    cells: list[tuple[dict[str, Any], list[float]]] = [
        ({"batch_size": 1, "compile": True}, [12.0, 12.1]),
        ({"batch_size": 8, "compile": False}, [20.0, 20.1]),
        ({"batch_size": 8, "compile": True}, [30.0, 30.1]),
    ]
    found = effect(cells, "compile")
    assert found is not None
    assert (found.levels, found.combinations) == (((False, True),), 1)
    assert found.ratio == pytest.approx(1.5, rel=1e-2)
    assert effect(cells, "num_workers") is None


@pytest.mark.parametrize("seed", range(5))
def test_effect_of_one_pair_is_the_comparison_of_its_cells(seed: int) -> None:
    """Ratio, interval and p-value are Welch's on the logarithms, as `compare` has them."""
    rng = np.random.default_rng(seed)
    first, second = (rng.lognormal(mean, 0.1, 3).tolist() for mean in (0.0, 0.2))
    found = effect([({"compile": False}, first), ({"compile": True}, second)], "compile")
    beside = compare(first, second, higher_is_better=True)
    assert found is not None
    assert beside is not None
    assert (found.ratio, found.low, found.high, found.p_value) == pytest.approx(
        (beside.ratio, beside.low, beside.high, beside.p_value)
    )
