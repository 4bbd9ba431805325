"""How busy the GPU and the host were over the time of a run, from its telemetry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results.plots import style
from bench.results.plots.arrangement import Look, best_cells, labels_of
from bench.results.plots.notes import middle_runs, named_by, throughout
from bench.results.plots.runs import Floats, Runs
from bench.results.summary import Summary

_MOST_CELLS = 4
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class _Row:
    """One kind of quantity: its axis, the columns of telemetry.csv and their words, and what makes its unit."""

    axis: str
    columns: Mapping[str, str]
    factor: float = 1.0
    top: float = 0.0  # that the axis reaches at least


_ROWS = (
    _Row("Busy (%)", {"gpu_util": "GPU", "cpu_util": "CPU, all cores"}, top=100),
    _Row("CPU (% of one core)", {"backend_cpu_util": "backend", "frontend_cpu_util": "frontend"}, top=100),
    _Row("GPU power (W)", {"gpu_power_w": "GPU"}),
    _Row("Memory (GiB)", {"gpu_memory_used_bytes": "GPU", "backend_rss_bytes": "backend"}, factor=2.0**-30),
)
_LOOKS = {  # the GPU green, the host's cores blue, the backend's part red, the frontend's orange
    "gpu_util": Look(2, 0),
    "cpu_util": Look(0, 1),
    "backend_cpu_util": Look(1, 0),
    "frontend_cpu_util": Look(4, 1),
    "gpu_power_w": Look(2, 0),
    "gpu_memory_used_bytes": Look(2, 0),
    "backend_rss_bytes": Look(1, 1),
}


def utilization(summary: Summary, runs: Runs) -> Figure | None:
    """A column for each of a few cells, of its middle run; None without enough telemetry."""
    cells, note = best_cells(summary, _MOST_CELLS)
    columns: dict[int, dict[str, Floats]] = {}
    for k, cell in enumerate(cells):
        window = runs.window(cell)
        samples = {} if window is None else runs.telemetry(window)
        if len(samples.get("time_s", ())) >= _LEAST_SAMPLES:
            columns[k] = samples
    rows = [row for row in _ROWS if any(row.columns.keys() & samples.keys() for samples in columns.values())]
    if not rows:
        return None
    if len(columns) < len(cells):
        note = f"{note} Runs with fewer than {_LEAST_SAMPLES} samples are left out."
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


def _draw(axes: Axes, row: _Row, samples: Mapping[str, Floats]) -> None:
    for name, words in row.columns.items():
        if name in samples:
            look = style.look(_LOOKS[name], marked=False)
            known = ~np.isnan(samples[name])  # not every sample has every column
            axes.plot(samples["time_s"][known], samples[name][known] * row.factor, label=words, **look)


def _values(row: _Row, columns: Sequence[Mapping[str, Floats]]) -> list[float]:
    found = [samples[name] for samples in columns for name in row.columns if name in samples]
    return [float(np.nanmax(values)) * row.factor for values in found]


def _legend(axes: Axes, row: _Row, columns: Sequence[Mapping[str, Floats]]) -> None:
    """At the right of the row, where it covers no data."""
    there = {name: words for name, words in row.columns.items() if any(name in samples for samples in columns)}
    handles = [style.swatch(**style.look(_LOOKS[name], marked=False)) for name in there]
    axes.legend(handles, list(there.values()), loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
