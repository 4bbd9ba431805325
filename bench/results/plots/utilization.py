"""How busy the GPU and the host were over the time of a run, from its telemetry."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results.plots import style
from bench.results.plots.arrangement import Look, best_cells, labels_of
from bench.results.plots.notes import middle_runs, named_by, throughout
from bench.results.plots.runs import Floats, Runs
from bench.results.summary import Summary
from bench.results.telemetry_rows import LEAST_SAMPLES, ROWS, Column, Row

_MOST_CELLS = 4


def utilization(summary: Summary, runs: Runs) -> Figure | None:
    """A column for each of a few cells, of its middle run; None without enough telemetry."""
    cells, note = best_cells(summary, _MOST_CELLS)
    columns: dict[int, dict[str, Floats]] = {}
    for k, cell in enumerate(cells):
        window = runs.window(cell)
        samples = {} if window is None else runs.telemetry(window)
        if len(samples.get("time_s", ())) >= LEAST_SAMPLES:
            columns[k] = samples
    rows = [row for row in ROWS if _there(row, list(columns.values()))]
    if not rows:
        return None
    if len(columns) < len(cells):
        note = f"{note} Runs with fewer than {LEAST_SAMPLES} samples are left out."
    cells = [cells[k] for k in columns]
    heading, labels = labels_of(cells, summary)
    notes = [note, *named_by(heading), middle_runs(cells), throughout(summary)]
    size = {1: 8.0, 2: 9.0}.get(len(cells), 12.0), 0.7 + 1.7 * len(rows)
    figure = style.canvas("Utilization over the time of a run", notes, *size)
    grid = figure.subplots(len(rows), len(cells), squeeze=False, sharey="row", sharex="col")
    for k, (samples, label) in enumerate(zip(columns.values(), labels, strict=True)):
        if len(summary.cells) > 1:
            style.name_panel(grid[0, k], label, len(cells))
        for row, axes in zip(rows, grid[:, k], strict=True):
            _draw(axes, row, samples)
        grid[-1, k].set_xlabel("Time since the first request was sent (s)" if len(cells) < 4 else "Time (s)")
        style.scale(grid[-1, k], "x", [float(samples["time_s"].max())], room=0.02)
    for row, line in zip(rows, grid, strict=True):
        line[0].set_ylabel(row.axis)
        style.scale(line[0], "y", [row.top, *_values(row, list(columns.values()))])
        _legend(line[-1], row, list(columns.values()))
    return figure


def _there(row: Row, columns: Sequence[Mapping[str, Floats]]) -> list[Column]:
    """Those of the row that one of the runs has."""
    return [column for column in row.columns if any(column.name in samples for samples in columns)]


def _look(column: Column) -> dict[str, Any]:
    return style.look(Look(column.colour, int(column.dashed)), marked=False)


def _draw(axes: Axes, row: Row, samples: Mapping[str, Floats]) -> None:
    for column in _there(row, [samples]):
        values = samples[column.name]
        known = ~np.isnan(values)  # not every sample has every column
        axes.plot(samples["time_s"][known], values[known] * row.factor, label=column.words, **_look(column))


def _values(row: Row, columns: Sequence[Mapping[str, Floats]]) -> list[float]:
    found = [samples[column.name] for samples in columns for column in _there(row, [samples])]
    return [float(np.nanmax(values)) * row.factor for values in found]


def _legend(axes: Axes, row: Row, columns: Sequence[Mapping[str, Floats]]) -> None:
    """At the right of the row, where it covers no data."""
    there = _there(row, columns)
    handles = [style.swatch(**_look(column)) for column in there]
    words = [column.words for column in there]
    axes.legend(handles, words, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
