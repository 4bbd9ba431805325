"""Where a setting with two values pays, along an axis of numbers: batch size, or workers. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.results.compare import MARGIN, holm
from bench.results.effects import Effect, effect
from bench.results.metric_names import metric
from bench.results.statistics import CONFIDENCE
from bench.results.summary import Cell, Summary
from bench.results.text import ratio_interval
from bench.results.words import setting

# What is asked of a server, and what is served: no choices of how to serve it.
_NO_CHOICE = ("experiment", "load", "slo", "num_iters", "duration_s", "warmup_iters", "seed", "payloads", "model")
_CHOICES_OF_MODEL = ("model.dtype", "model.channels_last")
_MOST_NAMED = 3  # values named one by one
_MANY = 2.0  # a ratio from which on it is a factor, not a percentage


@dataclass(frozen=True)
class _Step:
    """From one value of an axis to the other. `turned` goes from the second in order to the first."""

    summary: Summary
    axis: str
    metric: str
    name: str
    turned: bool

    @classmethod
    def of(cls, summary: Summary, cells: Sequence[Cell], axis: str, metric: str) -> "_Step":
        """Upwards for numbers and flags; words have no order, so towards the better one."""
        step = cls(summary, axis, metric, "compile", turned=False)
        overall = step.effect(cells)
        if axis == "compile" or overall is None:
            return step
        low, high = overall.levels[0]
        turned = isinstance(high, str) and not step.is_better(overall)
        if turned:
            low, high = high, low
        return replace(step, name=f"going from {setting(axis, low)} to {setting(axis, high)}", turned=turned)

    def effect(self, cells: Sequence[Cell]) -> Effect | None:
        """What the step does to the metric, on average over `cells`."""
        found = effect([(self.summary.place(cell), cell.values(self.metric)) for cell in cells], self.axis)
        if found is None or not self.turned:
            return found
        low, high = (None if bound is None else 1 / bound for bound in (found.high, found.low))
        return replace(found, ratio=1 / found.ratio, low=low, high=high)

    def is_better(self, found: Effect) -> bool:
        return (found.ratio > 1) == (metric(self.metric).better == "higher")

    def change(self, found: Effect) -> str:
        """In words, with the metric's name where it is not the throughput."""
        return ("" if self.metric == "throughput" else f"{metric(self.metric).words} ") + percent(found)

    def on_average(self, cells: Sequence[Cell], overall: Effect) -> str:
        """What is said where no group by itself says anything."""
        outcome = self.outcomes({"": cells})[""]
        if outcome == "unsure":
            return f"whether {self.name} pays is unsure: {self.change(overall)}"
        if outcome == "same":
            return f"{self.name} makes no difference on average, within {100 * MARGIN:g} %: {self.change(overall)}"
        return f"{self.name} {outcome} on average: {self.change(overall)}, unsure where"

    def outcomes(self, groups: Mapping[str, Sequence[Cell]]) -> dict[str, str]:
        """Of each group `pays`, `costs`, `same` (within the margin) or `unsure`, Holm-corrected for their number.

        A group with nothing to compare is left out.
        """
        found = {name: one for name, cells in groups.items() if (one := self.effect(cells)) is not None}
        tested = {name: one.p_value for name, one in found.items() if one.p_value is not None}
        corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
        outcomes = {}
        for name, one in found.items():
            outcomes[name] = "unsure"
            if one.low is not None and one.high is not None and 1 / (1 + MARGIN) <= one.low <= one.high <= 1 + MARGIN:
                outcomes[name] = "same"
            elif corrected.get(name, 1.0) < 1 - CONFIDENCE:
                outcomes[name] = "pays" if self.is_better(one) else "costs"
        return outcomes


def choices(summary: Summary) -> list[str]:
    """The axes with two values that are a way to serve, compile first."""
    found = []
    for axis in summary.axes:
        values = {repr(cell.axes[axis]) for cell in summary.cells}
        if len(values) == 2 and (axis in _CHOICES_OF_MODEL or axis.partition(".")[0] not in _NO_CHOICE):
            found.append(axis)
    return sorted(found, key=lambda axis: axis != "compile")


def pays(summary: Summary, cells: Sequence[Cell], axis: str, metric: str) -> str:
    """`compile pays from batch 32 up: +14 % [11, 17]`; empty where no two cells can be compared."""
    step = _Step.of(summary, cells, axis, metric)
    overall = step.effect(cells)
    if overall is None:
        return ""
    if overall.p_value is None:
        return f"whether {step.name} pays is unsure, from single runs: {step.change(overall)}"
    groups = _groups(summary, cells, axis)
    outcomes = step.outcomes(groups)
    kinds = {kind: [name for name in groups if outcomes.get(name) == kind] for kind in ("pays", "costs", "unsure")}
    if len(kinds["unsure"]) == len(outcomes):
        return step.on_average(cells, overall)
    told = []
    if not kinds["pays"] and not kinds["unsure"]:
        told.append("pays nowhere" if kinds["costs"] else f"pays nowhere: {step.change(overall)}")
    for kind in ("pays", "costs"):
        if kinds[kind]:
            there = step.effect([cell for name in kinds[kind] for cell in groups[name]])
            told.append(f"{kind}{_where(kinds[kind], list(groups))}: {step.change(there or overall)}")
    if kinds["unsure"]:
        told.append(f"unsure{_where(kinds['unsure'], list(groups))}")
    return f"{step.name} {', '.join(told)}"


def percent(found: Effect) -> str:
    """`+14 % [11, 17]`, `×3.2 [3.0, 3.4]`, with the digits that the interval supports."""
    if found.low is None or found.high is None:
        return f"×{found.ratio:.3g}" if found.ratio >= _MANY else f"{100 * (found.ratio - 1):+.2g} %"
    if found.ratio >= _MANY:
        ratio, interval = ratio_interval(found.ratio, found.low, found.high, digits=1)
        return f"×{ratio} [{interval.replace(' to ', ', ')}]"
    shift, low, high = (100 * (ratio - 1) for ratio in (found.ratio, found.low, found.high))
    places = _places((high - low) / 2)
    low, high = (round(bound, places) + 0.0 for bound in (low, high))  # no -0
    return f"{shift:+.{places}f} % [{low:.{places}f}, {high:.{places}f}]"


def _groups(summary: Summary, cells: Sequence[Cell], axis: str) -> dict[str, list[Cell]]:
    """The cells at each value of the first other axis of numbers, in its order; all of them where there is none."""
    numeric = [
        other
        for other in summary.axes
        if other != axis
        and len({repr(cell.axes[other]) for cell in cells}) > 1
        and all(isinstance(cell.axes[other], (int, float)) and not isinstance(cell.axes[other], bool) for cell in cells)
    ]
    groups: dict[str, list[Cell]] = {}
    for other in numeric[:1]:
        for cell in sorted(cells, key=lambda cell: cell.axes[other]):
            groups.setdefault(setting(other, cell.axes[other]), []).append(cell)
    return groups or {"": list(cells)}


def _where(chosen: Sequence[str], names: Sequence[str]) -> str:
    """`chosen` of the values `names`, which are in order."""
    if len(chosen) == len(names):
        return " throughout" if len(names) > 1 else ""
    if len(chosen) > 1 and chosen == names[-len(chosen) :]:
        return f" from {chosen[0]} up"
    if len(chosen) > 1 and chosen == names[: len(chosen)]:
        return f" up to {chosen[-1]}"
    listed = [*chosen[:_MOST_NAMED], *([f"{len(chosen) - _MOST_NAMED} more"] if len(chosen) > _MOST_NAMED else [])]
    return f" at {' and '.join(filter(None, [', '.join(listed[:-1]), listed[-1]]))}"


def _places(half: float) -> int:
    """Decimals that a number with this half of an interval supports: its first digit, and at most two."""
    return min(2, max(0, -math.floor(math.log10(half)))) if half > 0 else 0
