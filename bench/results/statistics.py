"""Statistics over the repeats of a cell. Pure: numbers in, numbers out; an unknown number is absent.

scipy is imported where it computes, and never `scipy.stats`, which takes most of a second to import.
"""

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95

_DRIFT_RUNS = 5
_DRIFT_P = 0.01  # small, since every metric of every cell is looked at
_ALL_ORDERS = 8  # runs up to which every order is tried: 8! = 40,320
_ORDERS = 20_000  # tried at random beyond
_ORDERS_SIZE = 1_000_000  # numbers in all tried orders together
_AT_ONCE = 100_000  # of these numbers, so that a supervisor takes no memory to speak of for them
_TIE = 1e-9  # sums of ranks that differ by less are equal

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Statistic:
    """Mean and sample standard deviation (ddof=1; None for a single value) of `n` values."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Statistic":
        """The statistic of `values`, at least one. It does not depend on their order."""
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.mean(values), std, len(values))

    def times(self, factor: float) -> "Statistic":
        """The same in a unit that is so many times smaller."""
        return Statistic(self.mean * factor, None if self.std is None else self.std * factor, self.n)

    @property
    def half_width(self) -> float | None:
        """Of the 95 % t-interval of the mean; None for a single value."""
        if self.std is None:
            return None
        return float(t_quantile(self.n - 1)) * self.std / math.sqrt(self.n)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % t-interval of the mean; None for a single value."""
        half = self.half_width
        return None if half is None else (self.mean - half, self.mean + half)

    @property
    def relative_half_width(self) -> float | None:
        """Half width of the interval over the mean; None for a single value or a mean of 0."""
        half = self.half_width
        return None if half is None or self.mean == 0 else half / abs(self.mean)

    @property
    def cv(self) -> float | None:
        """Coefficient of variation, std over mean; None for a single value or a mean of 0."""
        return None if self.std is None or self.mean == 0 else self.std / abs(self.mean)

    def more_repeats(self, relative_ci: float, at_most: int = 1000) -> int:
        """Repeats to add until the half width is within `relative_ci` of the mean, if the deviation stays.

        0 when it is within already, else from 1 (so for a single value) to `at_most` (so where no number will do).
        """
        if self.std is None:
            return min(1, at_most)

        def within(more: int) -> bool:
            half = replace(self, n=self.n + more).half_width
            return half is not None and half <= relative_ci * abs(self.mean)

        return bisect.bisect_left(range(at_most), True, key=within)


@dataclass(frozen=True)
class Drift:
    """A trend of `n` repeats with the order in which they ran."""

    rho: float
    p_value: float
    n: int

    def __str__(self) -> str:
        """`falls from run to run (Spearman's ρ = -0.95, p = 0.0002, n = 10)`."""
        way = "rises" if self.rho > 0 else "falls"
        return f"{way} from run to run (Spearman's ρ = {self.rho:.2f}, p = {self.p_value:.2g}, n = {self.n})"


def drift(values: Sequence[float]) -> Drift | None:
    """The trend of `values`, in the order in which the runs started, where there is evidence of one.

    The rule: at least 5 runs and p < 0.01. The p-value is exact, so that no order of 5 runs is evidence
    enough (the smallest p is 1/60), and of 6 only the two that rise or fall throughout.
    """
    if len(values) < _DRIFT_RUNS:
        return None
    found = spearman(values)
    if found is None or found[1] >= _DRIFT_P:
        return None
    return Drift(*found, n=len(values))


def spearman(values: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's rank correlation of `values` with their order, and its two-sided p-value.

    None for fewer than 2 values or equal ones. The p-value is the share of orders in which the correlation
    is as strong: of all orders up to 8 values, of 20,000 or fewer seeded random ones beyond. (The usual
    t approximation reports a trend of 9 or 10 values at p < 0.01 in 1.3 % of the cases without one.)
    """
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if n < 2 or (array == array[0]).all():
        return None
    ranks = _ranks(array)
    time = np.arange(n) - (n - 1) / 2
    observed = float(time @ ranks)
    rho = observed / math.sqrt(float(time @ time) * float(ranks @ ranks))
    orders = _orders(n)
    as_strong = sum(
        int((np.abs(some @ ranks) >= abs(observed) - _TIE).sum())
        for some in np.array_split(orders, 1 + orders.size // _AT_ONCE)
    )
    if n <= _ALL_ORDERS:
        return rho, as_strong / math.factorial(n)
    return rho, (as_strong + 1) / (len(orders) + 1)  # the observed order is one of those possible


def t_quantile(df: Any, tail: float = (1 - CONFIDENCE) / 2) -> Any:
    """What Student's t with `df` degrees of freedom exceeds with probability `tail`; numbers or arrays."""
    from scipy.special import stdtrit

    return stdtrit(df, 1 - tail)


def _ranks(values: Floats) -> Floats:
    """Average ranks, less their mean."""
    ordered = np.sort(values)
    below, not_above = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return (below + not_above - len(values)) / 2


@lru_cache(maxsize=2)  # 1 or 2 MiB each; cells of one sweep have as many runs as each other, or one more
def _orders(n: int) -> npt.NDArray[Any]:
    """Orders of `n` runs, a row each, as places in time: integers as small as will do."""
    kind = np.min_scalar_type(n)
    if n <= _ALL_ORDERS:
        return np.array(list(itertools.permutations(range(n))), dtype=kind)
    count = max(999, min(_ORDERS, _ORDERS_SIZE // n))
    return np.random.default_rng(0).permuted(np.tile(np.arange(n, dtype=kind), (count, 1)), axis=1)
