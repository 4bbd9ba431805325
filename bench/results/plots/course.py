"""How a run went: its latencies and its throughput over time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results.plots import style
from bench.results.plots.arrangement import best_cells, labels_of
from bench.results.plots.notes import backlog, middle_runs, named_by, throughout
from bench.results.plots.runs import Floats, Runs, Window
from bench.results.summary import Cell, Summary

_MOST_CELLS = 6
_MOST_POINTS = 800
_SLOWEST = 100  # drawn of a run with more requests, whatever is left out
_MOST_BINS = 50
_LOG_FROM = 30  # times the shortest latency, from which the axis is logarithmic
_RATE: Mapping[str, Any] = {"color": style.PALETTE[0], "linewidth": 1.6}
_MEAN: Mapping[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))}
_ASKED: Mapping[str, Any] = {"color": style.PALETTE[1], "linewidth": 1.2, "linestyle": (0, (1, 1.5))}


def course(summary: Summary, runs: Runs) -> Figure | None:
    """For each of a few cells its middle run: a point a request, and below it samples/s over the same time."""
    cells, note = best_cells(summary, _MOST_CELLS)
    windows = {k: window for k, cell in enumerate(cells) if (window := runs.window(cell)) is not None}
    cells = [cells[k] for k in windows]
    if not cells:
        return None
    unit, factor = style.time_unit(window.median_s for window in windows.values())
    columns = 1 if len(cells) == 1 else 2 if len(cells) in (2, 4) else 3
    rows = math.ceil(len(cells) / columns)
    heading, labels = labels_of(cells, summary)
    notes = [note, *named_by(heading), *_notes(cells, list(windows.values())), throughout(summary)]
    size = {1: 8.0, 2: 9.0, 3: 11.0}[columns], 4.8 if rows == 1 else 3.5 * rows
    figure = style.canvas("Latency and throughput over the time of a run", notes, *size)
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[3, 2] * rows)
    for k, (window, title) in enumerate(zip(windows.values(), labels, strict=True)):
        above, below = grid[2 * (k // columns), k % columns], grid[2 * (k // columns) + 1, k % columns]
        if len(summary.cells) > 1:
            style.name_panel(above, title, columns)
        _latencies(above, window, factor)
        _rate(below, window)
        if k % columns == 0:
            above.set_ylabel(f"Latency ({unit})")
            below.set_ylabel("Samples/s")
        if k + columns >= len(cells):
            below.set_xlabel("Time since the first request was sent (s)")
    for k in range(len(cells), rows * columns):
        grid[2 * (k // columns), k % columns].remove()
        grid[2 * (k // columns) + 1, k % columns].remove()
    looks = [_RATE, _MEAN] + [_ASKED] * any(window.is_open for window in windows.values())
    words = ["answered", "answered, mean of the run", "asked for by the load"]
    style.legend(figure, [style.swatch(**one) for one in looks], words[: len(looks)])
    return figure


def _notes(cells: Sequence[Cell], windows: Sequence[Window]) -> list[str]:
    thinned = any(len(window.latency_s) > _MOST_POINTS for window in windows)
    some = "; of many requests some, the slowest among them." if thinned else "."
    return [middle_runs(cells), f"A point is a request, at the time of its answer{some}", *backlog(cells)]


def _latencies(axes: Axes, window: Window, factor: float) -> None:
    values = window.latency_s * factor
    kept = _thinned(window.latency_s)
    axes.plot(window.answered_s[kept], values[kept], ".", color=style.PALETTE[0], markersize=4, alpha=0.7)
    # A backlog grows from nothing in a straight line, which a logarithmic axis would bend.
    log_from = None if window.record.settings["load"]["name"] == "burst" else _LOG_FROM
    style.scale(axes, "y", [values.min(), values.max()], log_from=log_from)
    style.scale(axes, "x", [window.answered_s.max()], room=0.02)
    axes.tick_params(labelbottom=False)


def _rate(axes: Axes, window: Window) -> None:
    """Answers in each part of the run, their mean, and what an open load asked for."""
    edges = window.edges(_MOST_BINS)
    rates = window.rate(window.answered_s, edges)
    axes.stairs(rates, edges, baseline=None, **_RATE)
    shown = [*rates]
    mean = window.record.metrics.get("throughput")
    if mean is not None:
        axes.axhline(mean, **_MEAN)
        shown.append(mean)
    if window.is_open:
        asked = window.rate(window.intended_s, edges)
        axes.stairs(asked, edges, baseline=None, **_ASKED)
        shown += [*asked]
    style.scale(axes, "y", shown)
    style.scale(axes, "x", [edges[-1]], room=0.02)


def _thinned(values: Floats) -> npt.NDArray[np.int64]:
    """Places of at most `_MOST_POINTS` values: the largest, and the others at equal steps."""
    if len(values) <= _MOST_POINTS:
        return np.arange(len(values))
    slowest = np.argpartition(values, -_SLOWEST)[-_SLOWEST:]
    return np.union1d(slowest, np.linspace(0, len(values) - 1, _MOST_POINTS - _SLOWEST).astype(np.int64))
