"""What each two-level axis of a sweep does, and each pair of them together. Pure."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.results.statistics import t_quantile

Levels = tuple[Any, Any]
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
    combinations: int  # of the other axes' values that it is an average over


def effects(cells: Sequence[tuple[Mapping[str, Any], Sequence[float]]]) -> list[Effect]:
    """Main effects of the axes with two levels, then the interactions of each two of them.

    A full factorial on the logarithm of the metric: geometric means, every combination with equal weight, each
    cell with its own noise (Welch-Satterthwaite). A combination of the other axes in which a cell is missing, has
    no run or a value that is not positive is left out. Intervals are not corrected for their number.

    Args:
        cells: the axes of a cell and its runs' values. All have the same axes; levels go by first appearance.
    """
    if not cells:
        return []
    axes = list(cells[0][0])
    levels = {axis: list({repr(at[axis]): at[axis] for at, _ in cells}.values()) for axis in axes}
    two = [axis for axis in axes if len(levels[axis]) == 2]
    known = {
        tuple(repr(at[axis]) for axis in axes): _moments(values) for at, values in cells if values and min(values) > 0
    }
    found = []
    for chosen in [*((axis,) for axis in two), *itertools.combinations(two, 2)]:
        contrasts = list(_contrasts(known, [axes.index(axis) for axis in chosen], levels, axes))
        if contrasts:
            pairs = tuple((levels[axis][0], levels[axis][1]) for axis in chosen)
            found.append(Effect(chosen, pairs, *_estimate(contrasts), combinations=len(contrasts)))
    return found


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


def _estimate(contrasts: Sequence[Sequence[tuple[int, _Moments]]]) -> tuple[float, float | None, float | None]:
    """The average contrast as a ratio, with its interval."""
    terms = [term for contrast in contrasts for term in contrast]
    shift = sum(sign * mean for sign, (mean, _, _) in terms) / len(contrasts)
    if min(n for _, (_, _, n) in terms) < 2:
        return math.exp(shift), None, None
    parts = np.array([variance / n for _, (_, variance, n) in terms]) / len(contrasts) ** 2
    free = np.array([n - 1 for _, (_, _, n) in terms])
    if not parts.any():
        return math.exp(shift), math.exp(shift), math.exp(shift)
    df = parts.sum() ** 2 / (parts**2 / free).sum()
    half = float(t_quantile(df)) * math.sqrt(float(parts.sum()))
    return math.exp(shift), math.exp(shift - half), math.exp(shift + half)


def _moments(values: Sequence[float]) -> _Moments:
    logs = np.log(np.asarray(values, dtype=np.float64))
    return float(logs.mean()), float(logs.var(ddof=1)) if len(logs) > 1 else 0.0, len(logs)
