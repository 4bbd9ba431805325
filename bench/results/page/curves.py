"""A cell's middle run as curves, thinned to what a screen shows: its latencies, its course, its telemetry.

The run is the one of the pictures. Times are seconds from the first send, rounded, like all values, to 4 digits.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench.results.plots.arrangement import best_cells
from bench.results.plots.runs import Floats, Runs, Window, middle_run, shape
from bench.results.record import Record
from bench.results.summary import Summary
from bench.results.telemetry_rows import LEAST_SAMPLES, ROWS

MOST_CELLS = 250  # on a page, which they make larger by 3 KB each
LEFT_OUT = (
    f"How its runs went is not on this page, which holds that of {MOST_CELLS} cells: those that none beats in both "
    "throughput and latency, and those with the highest throughput."
)
_POINTS = 30  # of the distribution, and as many again for its tail
_PARTS = 40  # of a run's time

_Known = tuple[dict[str, Any] | None, list[str]]  # the curves of a run, and why they cannot be read


class CurveReader:
    """Reads the curves of each cell's middle run: each run once, for as long as it is the middle one."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}

    def read(self, summary: Summary) -> tuple[dict[int, dict[str, Any]], list[str]]:
        """The curves by the place of their cell in `summary`, and a line for each file that cannot be read."""
        shown = {id(cell) for cell in best_cells(summary, MOST_CELLS)[0]} if len(summary.cells) > MOST_CELLS else None
        known, found = self._known, {}
        self._known = {}
        for place, cell in enumerate(summary.cells):
            record = middle_run(cell) if shown is None or id(cell) in shown else None
            if record is None:
                continue
            self._known[record.directory] = curves, _ = known.get(record.directory) or _read(record)
            if curves is not None:
                which = next(k for k, one in enumerate(cell.records) if one is record)
                found[place] = {"run": which, **curves}
        return found, [problem for _, problems in self._known.values() for problem in problems]


def _read(record: Record) -> _Known:
    runs = Runs()
    try:
        window = runs.of(record)
        return None if window is None else _curves(window, runs), runs.problems
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one run's files, the page stands
        return None, [f"{record.directory}: no curves: {type(error).__name__}: {error}"]


def _curves(window: Window, runs: Runs) -> dict[str, Any]:
    ordered = np.sort(window.latency_s)
    kept = shape(len(ordered), _POINTS)
    curves = {
        "requests": len(ordered),
        "latency": _short(ordered[kept]),
        "rank": [int(place) + 1 for place in kept],
        "course": _course(window),
    }
    if telemetry := _telemetry(runs.telemetry(window)):
        curves["telemetry"] = telemetry
    return curves


def _course(window: Window) -> dict[str, Any]:
    """Samples/s in equal times, median and highest latency of equally many requests in the order of their answers."""
    edges = window.edges(_PARTS)
    order = np.argsort(window.answered_s, kind="stable")
    parts = np.array_split(order, min(_PARTS, len(order)))
    course = {
        "end": _short([edges[-1]])[0],
        "rate": _short(window.rate(window.answered_s, edges)),
        "time": _short(window.answered_s[part].mean() for part in parts),
        "median": _short(np.median(window.latency_s[part]) for part in parts),
        "highest": _short(window.latency_s[part].max() for part in parts),
    }
    if window.is_open:
        course["asked"] = _short(window.rate(window.intended_s, edges))
    return course


def _telemetry(samples: dict[str, Floats]) -> dict[str, Any]:
    """The columns that are drawn, in their axis's unit, means of neighbours; empty where there are too few samples."""
    if len(samples.get("time_s", ())) < LEAST_SAMPLES:
        return {}
    during = np.flatnonzero(samples["time_s"] >= 0)
    parts = np.array_split(during, min(_PARTS, len(during))) if len(during) else []
    if len(parts) < LEAST_SAMPLES:
        return {}
    columns = {
        column.name: _short(_mean(samples[column.name][part] * row.factor) for part in parts)
        for row in ROWS
        for column in row.columns
        if column.name in samples
    }
    return {"time": _short(samples["time_s"][part].mean() for part in parts), **columns} if columns else {}


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def _short(values: Iterable[float]) -> list[float | int | None]:
    """Of 4 digits, without a point where there is nothing behind it; None where unknown."""
    rounded = [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]
