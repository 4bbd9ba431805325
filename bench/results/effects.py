"""What each two-level axis of a sweep does, and each pair of them together. Pure."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.results.compare import ROUNDING
from bench.results.statistics import t_quantile
from bench.results.summary import rank

Levels = tuple[Any, Any]
Measured = tuple[Mapping[str, Any], Sequence[float]]  # a cell's axes, and its runs' values
_Place = tuple[str, ...]  # a cell's value on each axis, as text: lists cannot be keys, and 1 equals True
_Moments = tuple[float, float, int]  # mean and variance of the logarithms, and n


@dataclass(frozen=True)
class Effect:
    """A ratio on average over the other axes, with its 95 % interval (None where a cell has a single run).

    Of one axis: the metric at its second level over that at its first. Of two: the first axis' ratio at the
    second level of the other over its ratio at the first level; 1 where neither changes what the other does.
    """

    axes: tuple[str, ...]
    levels: tuple[Levels, ...]
    ratio: float
    low: float | None
    high: float | None
    p_value: float | None  # of ratio 1
    combinations: int  # of the other axes' values that it is an average over


def effects(cells: Sequence[Measured]) -> list[Effect]:
    """Main effects of the axes with two levels, then the interactions of each two of them, as `effect` has them.

    Intervals and p-values are not corrected for their number.
    """
    two = [axis for axis, values in _levels(cells).items() if len(values) == 2]
    found = [effect(cells, *chosen) for chosen in [*((axis,) for axis in two), *itertools.combinations(two, 2)]]
    return [one for one in found if one is not None]


def effect(cells: Sequence[Measured], *chosen: str) -> Effect | None:
    """The effect of one axis or the interaction of two; None where nothing can be compared.

    A full factorial on the logarithm of the metric: geometric means, every combination with equal weight, each
    cell with its own noise (Welch-Satterthwaite). A combination of the other axes in which a cell is missing, has
    no run or a value that is not positive is left out.

    Args:
        cells: the axes of a cell and its runs' values. All have the same axes; levels go in the order of their values.
        chosen: axes with two levels.
    """
    levels = _levels(cells)
    if any(len(levels.get(axis, ())) != 2 for axis in chosen):
        return None
    axes = list(levels)
    known = {
        tuple(repr(at[axis]) for axis in axes): _moments(values) for at, values in cells if values and min(values) > 0
    }
    contrasts = list(_contrasts(known, [axes.index(axis) for axis in chosen], levels, axes))
    if not contrasts:
        return None
    pairs = tuple((levels[axis][0], levels[axis][1]) for axis in chosen)
    return Effect(chosen, pairs, *_estimate(contrasts), combinations=len(contrasts))


def _levels(cells: Sequence[Measured]) -> dict[str, list[Any]]:
    """The values of each axis, each once, in their order."""
    if not cells:
        return {}
    return {axis: sorted({repr(at[axis]): at[axis] for at, _ in cells}.values(), key=rank) for axis in cells[0][0]}


def _contrasts(
    known: Mapping[_Place, _Moments], places: Sequence[int], levels: Mapping[str, list[Any]], axes: Sequence[str]
) -> Iterator[list[tuple[int, _Moments]]]:
    """For each combination of the other axes, the cells at all levels of those in `places`, with their signs."""
    rest = dict.fromkeys(tuple("" if k in places else text for k, text in enumerate(cell)) for cell in known)
    for combination in rest:
        terms = []
        for choice in itertools.product((0, 1), repeat=len(places)):
            cell = list(combination)
            for k, level in zip(places, choice, strict=True):
                cell[k] = repr(levels[axes[k]][level])
            sign = -1 if (len(places) - sum(choice)) % 2 else 1
            terms.append((sign, known.get(tuple(cell))))
        if all(moments is not None for _, moments in terms):
            yield [(sign, moments) for sign, moments in terms if moments is not None]


def _estimate(
    contrasts: Sequence[Sequence[tuple[int, _Moments]]],
) -> tuple[float, float | None, float | None, float | None]:
    """The average contrast as a ratio, with its interval and the p-value of 1."""
    terms = [term for contrast in contrasts for term in contrast]
    shift = sum(sign * mean for sign, (mean, _, _) in terms) / len(contrasts)
    if min(n for _, (_, _, n) in terms) < 2:
        return math.exp(shift), None, None, None
    from scipy.special import stdtr

    # No cell is without any noise: what looks so is the arithmetic's.
    parts = np.array([max(variance, ROUNDING**2) / n for _, (_, variance, n) in terms]) / len(contrasts) ** 2
    free = np.array([n - 1 for _, (_, _, n) in terms])
    df, error = parts.sum() ** 2 / (parts**2 / free).sum(), math.sqrt(float(parts.sum()))
    half = float(t_quantile(df)) * error
    return math.exp(shift), math.exp(shift - half), math.exp(shift + half), float(2 * stdtr(df, -abs(shift) / error))


def _moments(values: Sequence[float]) -> _Moments:
    logs = np.log(np.asarray(values, dtype=np.float64))
    return float(logs.mean()), float(logs.var(ddof=1)) if len(logs) > 1 else 0.0, len(logs)
