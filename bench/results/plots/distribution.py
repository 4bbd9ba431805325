"""How latencies are distributed: the share of requests answered within each time."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from bench.results.metrics import PERCENTILES
from bench.results.plots import style
from bench.results.plots.arrangement import best_cells, labels_of, looks_of
from bench.results.plots.notes import backlog, middle_runs, throughout
from bench.results.plots.runs import Floats, Runs, Window, shape
from bench.results.summary import Summary

_MOST_CELLS = 10
_MOST_POINTS = 500  # of a curve, and as many again for its tail
_LOG_FROM = 3  # times the shortest latency, from which the time axis is logarithmic


def distribution(summary: Summary, runs: Runs) -> Figure | None:
    """A curve for each of a few cells, of its middle run; None where no run's requests can be read."""
    cells, note = best_cells(summary, _MOST_CELLS)
    found = [(cell, window) for cell in cells if (window := runs.window(cell)) is not None]
    if not found:
        return None
    cells, windows = [cell for cell, _ in found], [window for _, window in found]
    heading, labels = labels_of(cells, summary)
    unit, factor = style.time_unit(window.median_s for window in windows)
    marks = ", ".join(name.replace("_", ".") for name in PERCENTILES if _is_marked(name, windows))
    marked = f"Marked: {marks}." if marks else "Too few requests for percentiles."
    notes = [note, middle_runs(cells), marked, *backlog(cells), throughout(summary)]
    figure = style.canvas("Latency distribution", notes, 8, 4.4 + 0.1 * len(cells))
    axes = figure.subplots()
    for window, label, look in zip(windows, labels, looks_of(cells, summary), strict=True):
        values, shares = _curve(np.sort(window.latency_s))
        axes.step(values * factor, shares, where="post", label=style.clean(label), **style.look(look, marked=False))
        points = _percentiles(window)
        line = style.look(look) | {"linestyle": "none"}
        axes.plot([value * factor for value in points.values()], [PERCENTILES[name] for name in points], **line)
    _set_shares(axes, max(len(window.latency_s) for window in windows))
    ends = [value * factor for window in windows for value in (window.latency_s.min(), window.latency_s.max())]
    style.scale(axes, "x", ends, log_from=_LOG_FROM)
    axes.set_xlabel(f"Latency, from the intended send to the answer ({unit})")
    axes.set_ylabel("Requests answered within (%)")
    if len(cells) > 1:
        handles = [style.swatch(**style.look(look)) for look in looks_of(cells, summary)]
        style.legend(figure, handles, labels, heading)
    return figure


def _percentiles(window: Window) -> dict[str, float]:
    """Those that the run supports, in seconds, as its record has them."""
    metrics = window.record.metrics
    return {name: metrics[f"latency_{name}"] for name in PERCENTILES if f"latency_{name}" in metrics}


def _is_marked(name: str, windows: list[Window]) -> bool:
    return any(name in _percentiles(window) for window in windows)


def _curve(ordered: Floats) -> tuple[Floats, Floats]:
    """Latencies and the share of requests that took no longer; of many requests those that shape the curve."""
    kept = shape(len(ordered), _MOST_POINTS)
    shares = (kept + 1) / len(ordered)
    return np.concatenate([ordered[:1], ordered[kept]]), np.concatenate([[0.0], shares])


def _set_shares(axes: Axes, requests: int) -> None:
    """An axis on which each further nine (90 %, 99 %, 99.9 %) is as far away as the last: 100 % never comes."""
    top = 1 - 0.5 / max(2, requests)

    def forward(share: Floats) -> Floats:
        place: Floats = -np.log10(1 - np.minimum(share, top))
        return place

    def inverse(place: Floats) -> Floats:
        return 1 - 10.0**-place

    axes.set_yscale("function", functions=(forward, inverse))
    nines = [1 - 10.0**-k for k in range(1, math.ceil(-math.log10(1 - top)))]
    ticks = [0.0, 0.5, *nines] + ([0.95] if requests < 1000 else [])
    axes.yaxis.set_major_locator(FixedLocator(sorted(share for share in ticks if share < top)))
    axes.yaxis.set_major_formatter(
        FixedFormatter([style.plain(round(100 * share, 6)) for share in sorted(ticks) if share < top])
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, top)
