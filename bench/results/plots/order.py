"""Runs in the order in which they started, each beside the mean of its cell: a drift of the machine is a slope."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.results.metric_names import metric
from bench.results.plots import style
from bench.results.plots.arrangement import COLOURS, Look, labels_of, looks_of
from bench.results.plots.notes import throughout
from bench.results.record import Record
from bench.results.summary import Cell, Summary

_METRICS = ("throughput", "average_latency", "warmup_latency")
_MOST_COLOURED = 2 * COLOURS  # cells
_LEAST_MEDIAN = 18  # valid runs, from which a running median is drawn
_SMALL_FROM = 200  # runs, from which points are small
_MEDIAN: Mapping[str, Any] = {"color": "black", "linewidth": 1.4, "alpha": 0.8}
_BAD: Mapping[str, Any] = {"color": "#B00020", "marker": "x", "linestyle": "none", "markersize": 8, "mew": 2}


@dataclass(frozen=True)
class _Run:
    """A run with its cell and its place in the order of starts, from 1."""

    place: int
    record: Record
    cell: Cell

    def change(self, metric: str) -> float | None:
        """By how many percent it differs from its cell's mean; None where it does not count or stands alone."""
        statistic, value = self.cell.metrics.get(metric), self.record.metrics.get(metric)
        is_valid = self.record.verdict.status == "valid"
        if not is_valid or statistic is None or value is None or statistic.n < 2 or not statistic.mean:
            return None
        return 100 * (value / statistic.mean - 1)


def runs_in_order(summary: Summary) -> Figure | None:
    """A point a run. None where no cell has two valid runs."""
    pairs = sorted(((r, c) for c in summary.cells for r in c.records), key=lambda pair: pair[0].started)
    runs = [_Run(place, record, cell) for place, (record, cell) in enumerate(pairs, 1)]
    names = [name for name in _METRICS if any(run.change(name) is not None for run in runs)]
    if not names:
        return None
    cells = [cell for cell in summary.cells if cell.n > 1]
    is_coloured = len(cells) <= _MOST_COLOURED
    groups = [[run for run in runs if run.cell is cell] for cell in cells] if is_coloured else [runs]
    looks = looks_of(cells, summary) if is_coloured else [Look(0, 0)]
    notes = [
        "Each run beside the mean of its cell. Points that rise or fall from left to right: the machine drifts.",
        throughout(summary),
    ]
    height = 0.9 + 1.6 * len(names) + 0.09 * (len(cells) if is_coloured else 1)
    figure = style.canvas("Runs in the order in which they started", notes, 8, height)
    grid = figure.subplots(len(names), 1, squeeze=False, sharex=True)[:, 0]
    for name, axes in zip(names, grid, strict=True):
        axes.axhline(0, color=style.GREY, linewidth=1)
        for group, look in zip(groups, looks, strict=True):
            dots = style.look(look) | {"linestyle": "none", "markersize": 2.5 if len(runs) >= _SMALL_FROM else 5}
            axes.plot(*_points(group, name), **dots)
        axes.plot(*_medians(runs, name), **_MEDIAN)
        bad = [run.place for run in runs if run.record.verdict.status != "valid"]
        axes.plot(bad, [0.07] * len(bad), transform=axes.get_xaxis_transform(), **_BAD)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(_signed))
        axes.set_ylabel(f"{metric(name).title}\n(% off the mean)")
    grid[-1].set_xlabel("Run")
    grid[-1].set_xlim(0.5 - len(runs) / 100, len(runs) * 1.01 + 0.5)
    grid[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    grid[-1].xaxis.set_major_formatter(FuncFormatter(lambda place, _: style.plain(place) if place >= 1 else ""))
    _legend(figure, runs, cells if is_coloured else [], summary)
    return figure


def _points(runs: Sequence[_Run], metric: str) -> tuple[list[int], list[float]]:
    """Places and changes of the runs that have one."""
    known = [(run.place, change) for run in runs if (change := run.change(metric)) is not None]
    return [place for place, _ in known], [change for _, change in known]


def _medians(runs: Sequence[_Run], metric: str) -> tuple[list[int], list[float]]:
    """Medians of several runs in a row, each at the middle one; none of few runs."""
    places, changes = _points(runs, metric)
    if len(places) < _LEAST_MEDIAN:
        return [], []
    half = _span(runs) // 2
    middles = range(half, len(places) - half)
    return [places[k] for k in middles], [median(changes[k - half : k + half + 1]) for k in middles]


def _span(runs: Sequence[_Run]) -> int:
    """Of how many runs a median is: an odd number, more where there are many."""
    return max(9, len(runs) // 40 // 2 * 2 + 1)


def _legend(figure: Figure, runs: Sequence[_Run], cells: Sequence[Cell], summary: Summary) -> None:
    """The cells, where they can be told apart, and the marks that are there."""
    heading, labels = labels_of(cells, summary)
    looks = [style.look(look) | {"linestyle": "none"} for look in looks_of(cells, summary)]
    if not cells:
        labels, looks = ["a run"], [style.look(Look(0, 0)) | {"linestyle": "none"}]
    valid = sum(run.record.verdict.status == "valid" for run in runs)
    if valid >= _LEAST_MEDIAN:
        labels, looks = [*labels, f"median of {_span(runs)} in a row"], [*looks, dict(_MEDIAN)]
    if valid < len(runs):
        labels, looks = [*labels, "invalid or failed"], [*looks, dict(_BAD)]
    if len(labels) > 1:
        style.legend(figure, [style.swatch(**look) for look in looks], labels, heading)


def _signed(value: float, _position: int | None = None) -> str:
    return f"+{style.plain(value)}" if value > 0 else style.plain(value)
