"""Two cells compared by the ratio of a metric, over a table of comparisons. Pure: numbers in, numbers out."""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.results.statistics import CONFIDENCE, Floats, t_quantile

Test = Literal["welch", "mann-whitney"]
Outcome = Literal["faster", "slower", "higher", "lower", "same", "unsure"]

MARGIN = 0.02  # cells whose ratio is within ±2 % are the same

_SKEWED_RUNS = 4  # in each cell: a rank test of 3 and 3 runs can never reach 5 %, whatever they say
_SKEWED_Z = 2.576  # called skewed: 1 % of cells that are not
ROUNDING = 1e-12  # relative; below this a difference is the arithmetic's
_MOST_REPEATS = 1000  # that are worth telling from each other


@dataclass(frozen=True)
class Comparison:
    """A metric of the second cell over that of the first, with a 95 % interval and a test of ratio 1.

    The ratio is that of the geometric means (Welch) or the median over all pairs of runs (Mann-Whitney).
    Interval, p-value and test are None where a cell has a single run.
    """

    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    test: Test | None
    sizes: tuple[int, int]
    variances: tuple[float, float]  # of the logarithms; 0 for a single run
    higher_is_better: bool | None  # None where neither is

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies within 1/(1 + margin) … 1 + margin."""
        if self.low is None or self.high is None:
            return False
        return 1 / (1 + margin) <= self.low and self.high <= 1 + margin


@dataclass(frozen=True)
class Judgement:
    """What a table says of one of its comparisons: the second cell is faster, slower, the same, or who knows.

    `higher` or `lower` of a metric that is not better for either.
    """

    outcome: Outcome
    p_value: float | None  # corrected for the table
    more_repeats: int | None  # of each cell, for `unsure`


_SMALLEST = 1e-100  # of what a ratio can be made; no measured value is near it


def compare(first: Sequence[float], second: Sequence[float], *, higher_is_better: bool | None) -> Comparison | None:
    """Compare the runs of two cells. None where a ratio means nothing: no run, or a value that is not positive.

    Welch's t-test on the logarithms, since noise of a throughput or latency is in proportion to it. Where both
    cells have 4 runs and their logarithms are skewed (tested at 1 %), Mann-Whitney's test, with the interval that
    belongs to it (Hodges-Lehmann), both by the normal approximation. With fewer runs it is always Welch's: ranks
    of 3 and 3 runs cannot reach 5 %, and skew cannot be told from so few.
    """
    if not first or not second or not _SMALLEST < min(*first, *second) <= max(*first, *second) < 1 / _SMALLEST:
        return None
    a, b = (np.log(np.asarray(values, dtype=np.float64)) for values in (first, second))
    shift, low, high, p_value, test = _test(a, b)
    variances = tuple(float(x.var(ddof=1)) if len(x) > 1 else 0.0 for x in (a, b))
    return Comparison(
        ratio=math.exp(shift),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        p_value=p_value,
        test=test,
        sizes=(len(a), len(b)),
        variances=(variances[0], variances[1]),
        higher_is_better=higher_is_better,
    )


def judge(comparisons: Sequence[Comparison], margin: float = MARGIN) -> list[Judgement]:
    """A verdict for each comparison of a table, Holm-corrected over the table.

    `same` when the interval lies within the margin, though a test may see a difference; else `faster` or `slower`
    (`higher` or `lower`) when the corrected p is below 5 %; else `unsure`.
    """
    known = {k: comparison.p_value for k, comparison in enumerate(comparisons) if comparison.p_value is not None}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    judgements = []
    for k, comparison in enumerate(comparisons):
        outcome: Outcome = "unsure"
        if comparison.within(margin):
            outcome = "same"
        elif corrected.get(k, 1.0) < 1 - CONFIDENCE:
            outcome = _direction(comparison)
        more = more_repeats(comparison, margin, len(known)) if outcome == "unsure" else None
        judgements.append(Judgement(outcome, corrected.get(k), more))
    return judgements


def _direction(comparison: Comparison) -> Outcome:
    if comparison.higher_is_better is None:
        return "higher" if comparison.ratio > 1 else "lower"
    return "faster" if (comparison.ratio > 1) == comparison.higher_is_better else "slower"


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number: the chance of any false alarm among them stays below the level."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = raised
    return [float(value) for value in corrected]


def more_repeats(comparison: Comparison, margin: float = MARGIN, comparisons: int = 1) -> int:
    """Repeats to add to each cell until the comparison is settled, if its ratio and noise stay as they are.

    Settled is a difference significant among so many `comparisons` (Bonferroni's bound), or an interval within
    the margin, whichever comes first. At least 1, 1 where a cell has a single run; 1001 where 1000 are too few.
    """
    n, m = comparison.sizes
    if comparison.p_value is None:
        return 1
    shift = abs(math.log(comparison.ratio))
    tail = (1 - CONFIDENCE) / 2

    def settled(more: int) -> bool:
        error, df = _welch(comparison.variances, (n + more, m + more))
        differs = t_quantile(df, tail / max(1, comparisons)) * error < shift
        return bool(differs or t_quantile(df, tail) * error <= math.log1p(margin) - shift)

    return 1 + bisect.bisect_left(range(1, _MOST_REPEATS + 1), True, key=settled)


def repeats_in_words(more: int, *, short: bool = False) -> str:
    """`5 more repeats`, `over 1000 more repeats`; in short `5`, `>1000`."""
    if short:
        return f">{_MOST_REPEATS}" if more > _MOST_REPEATS else str(more)
    if more > _MOST_REPEATS:
        return f"over {_MOST_REPEATS} more repeats"
    return f"{more} more repeat{'s' * (more != 1)}"


def _test(a: Floats, b: Floats) -> tuple[float, float | None, float | None, float | None, Test | None]:
    """Shift from `a` to `b`, its interval, p-value and the test."""
    if min(len(a), len(b)) < 2:
        return float(b.mean() - a.mean()), None, None, None, None
    if min(len(a), len(b)) >= _SKEWED_RUNS and _skewed(np.concatenate([a - a.mean(), b - b.mean()])):
        return *_mann_whitney(a, b), "mann-whitney"
    from scipy.special import stdtr

    shift = float(b.mean() - a.mean())
    error, df = _welch((float(a.var(ddof=1)), float(b.var(ddof=1))), (len(a), len(b)))
    half = float(t_quantile(df) * error)
    return shift, shift - half, shift + half, float(2 * stdtr(df, -abs(shift) / error)), "welch"


def _welch(variances: tuple[float, float], sizes: tuple[int, int]) -> tuple[float, float]:
    """Standard error of a difference of means, and its degrees of freedom (Welch-Satterthwaite)."""
    u, v = (max(variance, ROUNDING**2) / size for variance, size in zip(variances, sizes, strict=True))
    return math.sqrt(u + v), (u + v) ** 2 / (u**2 / (sizes[0] - 1) + v**2 / (sizes[1] - 1))


def _mann_whitney(a: Floats, b: Floats) -> tuple[float, float, float, float]:
    """Median shift of all pairs, its interval, and the p-value."""
    from scipy.special import ndtri
    from scipy.stats import mannwhitneyu

    shifts = np.sort(np.subtract.outer(b, a), axis=None)
    pairs = len(shifts)
    spread = math.sqrt(pairs * (len(a) + len(b) + 1) / 12)
    # The largest U that the test, with its correction for continuity, still calls significant.
    beyond = math.floor(pairs / 2 - 0.5 + float(ndtri((1 - CONFIDENCE) / 2)) * spread)
    p_value = float(mannwhitneyu(a, b, method="asymptotic").pvalue)
    return float(np.median(shifts)), float(shifts[beyond]), float(shifts[pairs - 1 - beyond]), p_value


def _skewed(residuals: Floats) -> bool:
    """Whether the sample skewness is more than that of normal values (standard error by Fisher)."""
    n = len(residuals)
    variance = float((residuals**2).mean())
    if variance <= ROUNDING**2:
        return False
    skewness = float((residuals**3).mean()) / math.sqrt(variance) ** 3
    return abs(skewness) > _SKEWED_Z * math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
