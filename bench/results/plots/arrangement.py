"""Which cells a picture shows, and as which line of which panel. Pure."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.results.headline import highest_percentile
from bench.results.summary import Cell, Summary
from bench.results.text import shown

COLOURS = 7  # that can be told apart
_MOST_LINES, _FEW_LINES, _MOST_PANELS = 8, 6, 12
_VALUE_WIDTH, _LABEL_WIDTH = 28, 72  # characters

Combination = tuple[str, ...]  # the values of some axes as JSON, since 1, 1.0 and true are equal to Python


@dataclass(frozen=True)
class Look:
    """Colour and line style by their numbers; lines that share a number share a value."""

    colour: int
    style: int


@dataclass(frozen=True)
class Line:
    """The cells that differ in x only, in the order of x."""

    label: str
    look: Look
    cells: list[Cell]


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes; the title is empty where there is one panel."""

    title: str
    lines: list[Line]


@dataclass(frozen=True)
class Curves:
    """Panels over the axis `x`; `note` says what was left out."""

    x: str
    panels: list[Panel]
    note: str

    @property
    def looks(self) -> dict[Look, str]:
        """Each look and what it stands for; panels share them."""
        return {line.look: line.label for panel in self.panels for line in panel.lines}

    @property
    def cells(self) -> list[Cell]:
        """All that are shown."""
        return [cell for panel in self.panels for line in panel.lines for cell in line.cells]


def measured(summary: Summary) -> list[Cell]:
    """The cells with a valid run that has figures."""
    return [cell for cell in summary.cells if {"throughput", "average_latency"} <= cell.metrics.keys()]


def curves(summary: Summary) -> Curves | None:
    """Lines over the first numeric axis. None where there is none, or nothing else is equal along it."""
    cells = measured(summary)
    levels = _levels(cells, summary)
    x = next((axis for axis, values in levels.items() if _is_numeric(values)), None)
    if x is None:
        return None
    others = [axis for axis, values in levels.items() if axis != x and len(values) > 1]
    groups = _group(cells, summary, others)
    if max(map(len, groups.values())) < 2:
        return None
    for group in groups.values():
        group.sort(key=lambda cell: (cell.axes[x] is not None, cell.axes[x] or 0))
    split = _split(others, groups)
    if split is None:
        best = sorted(groups, key=lambda c: -max(cell.metrics["throughput"].mean for cell in groups[c]))
        kept = [c for c in groups if c in best[:_FEW_LINES]]
        note = f"The {len(kept)} of {len(groups)} lines with the highest throughput; all are in summary.csv."
        return Curves(x, [Panel("", _lines(others, {c: groups[c] for c in kept}))], note)
    facets = [axis for axis in others if axis not in split]
    looks = _looks(split, dict.fromkeys(_part(c, others, split) for c in groups))
    panels: dict[Combination, Panel] = {}
    for combination, group in groups.items():
        mine = _part(combination, others, split)
        line = Line(named(split, mine), looks[mine], group)
        place = _part(combination, others, facets)
        panels.setdefault(place, Panel(named(facets, place), [])).lines.append(line)
    return Curves(x, list(panels.values()), "")


def looks_of(cells: Sequence[Cell], summary: Summary) -> list[Look]:
    """A look for each of a few cells."""
    axes = [axis for axis, values in _levels(cells, summary).items() if len(values) > 1]
    combinations = [_combination(cell, summary, axes) for cell in cells]
    looks = _looks(axes, combinations)
    return [looks[combination] for combination in combinations]


def labels_of(cells: Sequence[Cell], summary: Summary) -> tuple[str, list[str]]:
    """A heading and a label for each cell: `axis=value` without a heading where that is short."""
    axes = list(summary.place(cells[0])) if cells else []
    rows = [[cut(shown(value)) for value in summary.place(cell).values()] for cell in cells]
    whole = [", ".join(f"{axis}={value}" for axis, value in zip(axes, row, strict=True)) for row in rows]
    if max(map(len, whole), default=0) <= _LABEL_WIDTH // 2:
        return "", whole
    return ", ".join(axes), [cut(", ".join(row), _LABEL_WIDTH) for row in rows]


def in_words(cell: Cell, summary: Summary) -> str:
    """`axis=value` of every axis, for a sentence."""
    return ", ".join(f"{axis}={cut(shown(value))}" for axis, value in summary.place(cell).items())


def best_cells(summary: Summary, most: int) -> tuple[list[Cell], str]:
    """At most `most` cells in the summary's order, and a note of which they are where some are left out.

    First come those that no other cell beats in both throughput and latency, then those of the highest throughput.
    A cell that is alone is shown whatever its verdict.
    """
    cells = summary.cells if len(summary.cells) == 1 else measured(summary)
    if len(cells) <= most:
        return cells, ""
    metric = highest_percentile(cells) or "average_latency"
    front = frontier([(c.metrics[metric].mean, c.metrics["throughput"].mean) for c in cells])
    chosen = {front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)} if most > 1 else {front[-1]}
    for k in sorted(range(len(cells)), key=lambda k: -cells[k].metrics["throughput"].mean):
        if len(chosen) < most:
            chosen.add(k)
    note = (
        f"{most} of {len(cells)} cells: those that none beats in both throughput and latency, "
        "then those with the highest throughput."
    )
    return [cells[k] for k in sorted(chosen)], note


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which of the (latency, throughput) points no other beats in one without losing in the other, by latency."""
    kept: list[int] = []
    for k in sorted(range(len(points)), key=lambda k: (points[k][0], -points[k][1])):
        if not kept or points[k][1] > points[kept[-1]][1]:
            kept.append(k)
    return kept


def cut(text: str, width: int = _VALUE_WIDTH) -> str:
    """`text` without its middle where it is longer than `width`: paths differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def named(axes: Sequence[str], combination: Combination) -> str:
    """`axis=value` of each axis; empty without axes."""
    pairs = zip(axes, combination, strict=True)
    return cut(", ".join(f"{axis}={cut(shown(json.loads(value)))}" for axis, value in pairs), _LABEL_WIDTH)


def _levels(cells: Iterable[Cell], summary: Summary) -> dict[str, dict[str, Any]]:
    """The distinct values of each axis, keyed by their JSON."""
    levels: dict[str, dict[str, Any]] = {}
    for cell in cells:
        for axis, value in summary.place(cell).items():
            levels.setdefault(axis, {})[json.dumps(value, sort_keys=True)] = value
    return levels


def _is_numeric(levels: dict[str, Any]) -> bool:
    """Whether there are two numbers and, but for null, nothing else."""
    known = [value for value in levels.values() if value is not None]
    return len(known) > 1 and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def _combination(cell: Cell, summary: Summary, axes: Sequence[str]) -> Combination:
    place = summary.place(cell)
    return tuple(json.dumps(place[axis], sort_keys=True) for axis in axes)


def _group(cells: Iterable[Cell], summary: Summary, axes: Sequence[str]) -> dict[Combination, list[Cell]]:
    groups: dict[Combination, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_combination(cell, summary, axes), []).append(cell)
    return groups


def _part(combination: Combination, axes: Sequence[str], wanted: Sequence[str]) -> Combination:
    return tuple(value for axis, value in zip(axes, combination, strict=True) if axis in wanted)


def _split(axes: Sequence[str], combinations: Iterable[Combination]) -> list[str] | None:
    """The axes that tell lines apart, so that the others make the fewest panels; None where no choice will do."""
    combinations = list(combinations)
    best: tuple[int, list[str]] | None = None
    for count in range(len(axes), -1, -1):
        for chosen in map(list, itertools.combinations(axes, count)):
            rest = [axis for axis in axes if axis not in chosen]
            lines = len({_part(c, axes, chosen) for c in combinations})
            panels = len({_part(c, axes, rest) for c in combinations})
            fits = lines <= _MOST_LINES and panels <= _MOST_PANELS
            if fits and (best is None or panels < best[0]):
                best = (panels, chosen)
    return None if best is None else best[1]


def _lines(axes: Sequence[str], groups: dict[Combination, list[Cell]]) -> list[Line]:
    looks = _looks(axes, groups)
    return [Line(named(axes, c), looks[c], group) for c, group in groups.items()]


def _looks(axes: Sequence[str], combinations: Iterable[Combination]) -> dict[Combination, Look]:
    """An axis of two values among several is the line style, the rest are the colours."""
    combinations = list(combinations)
    style = next(
        (i for i in reversed(range(len(axes))) if len(axes) > 1 and len({c[i] for c in combinations}) == 2), None
    )
    if style is None:
        return {c: Look(k % COLOURS, k // COLOURS) for k, c in enumerate(combinations)}
    styles = list(dict.fromkeys(c[style] for c in combinations))
    colours = list(dict.fromkeys(c[:style] + c[style + 1 :] for c in combinations))
    if len(colours) > COLOURS:
        return {c: Look(k % COLOURS, k // COLOURS) for k, c in enumerate(combinations)}
    return {c: Look(colours.index(c[:style] + c[style + 1 :]), styles.index(c[style])) for c in combinations}
