"""Throughput against latency: the cells that no other beats in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results.headline import highest_percentile
from bench.results.metric_names import metric
from bench.results.metrics import PERCENTILES, requests_needed
from bench.results.plots import style
from bench.results.plots.arrangement import frontier, in_words, labels_of, measured
from bench.results.plots.notes import backlog, repeats, throughout
from bench.results.summary import Cell, Summary

_LOG_FROM = 10  # times the smallest value, from which an axis is logarithmic
_MOST_NAMED = 9  # cells of the frontier with a number, and named below
_APART = 0.05  # of the picture, from which two numbers do not cover each other
_MOST_SLOS = 3
_NUMBER: Mapping[str, Any] = {
    "ha": "center",
    "va": "center_baseline",
    "fontsize": 8,
    "color": "white",
    "fontweight": "bold",
    "zorder": 5,
}


@dataclass(frozen=True)
class _Cloud:
    """The cells as points: `xs` latencies in `unit`, `ys` throughputs; `front` are the places of the best."""

    cells: list[Cell]
    metric: str
    unit: str
    factor: float
    front: list[int]

    @property
    def xs(self) -> list[float]:
        return [cell.metrics[self.metric].mean * self.factor for cell in self.cells]

    @property
    def ys(self) -> list[float]:
        return [cell.metrics["throughput"].mean for cell in self.cells]

    def ends(self, metric: str, factor: float = 1.0) -> list[float]:
        """Where the error bars of the frontier end."""
        found = [self.cells[k].metrics[metric] for k in self.front]
        return [(one.mean + sign * (one.std or 0.0)) * factor for one in found for sign in (-1, 1)]

    @property
    def words(self) -> str:
        """`average latency`, `p99 latency`."""
        words = metric(self.metric).words
        return words if words.endswith("latency") else f"{words} latency"


def tradeoff(summary: Summary) -> Figure | None:
    """A point for each cell, those of the frontier joined, numbered and named; None for a single cell."""
    cells = measured(summary)
    if len(cells) < 2:
        return None
    name = highest_percentile(cells) or "average_latency"
    unit, factor = style.time_unit(cell.metrics[name].mean for cell in cells)
    points = [(cell.metrics[name].mean, cell.metrics["throughput"].mean) for cell in cells]
    cloud = _Cloud(cells, name, unit, factor, frontier(points))
    slos = sorted({slo for cell in cells if (slo := cell.settings.get("slo.latency_ms")) is not None})[:_MOST_SLOS]
    notes = [
        "On the line: cells that no other beats in both; grey: the others. Up and to the left is better.",
        *_highest(cloud),
        *(_within(summary, cloud, slos[0]) if len(slos) == 1 else []),
        *backlog(cells),
        repeats(cells, "bars"),
        throughout(summary),
    ]
    named = min(len(cloud.front), _MOST_NAMED)
    figure = style.canvas(f"Throughput against {cloud.words}", notes, 8, 4.6 + 0.19 * named)
    axes = figure.subplots()
    limits = [slo / 1e3 * factor for slo in slos]
    style.scale(axes, "x", [*cloud.xs, *limits], ends=cloud.ends(name, factor), log_from=_LOG_FROM)
    style.scale(axes, "y", cloud.ys, ends=cloud.ends("throughput"), log_from=3 * _LOG_FROM)
    _draw(axes, cloud)
    _draw_slos(axes, slos, limits)
    axes.set_xlabel(f"Latency, {cloud.words.removesuffix(' latency')} ({unit})")
    axes.set_ylabel(metric("throughput").heading)
    _name(figure, axes, summary, cloud)
    return figure


def _draw(axes: Axes, cloud: _Cloud) -> None:
    """All cells in grey; the frontier in colour with its line and, where there are repeats, error bars."""
    xs, ys, front = cloud.xs, cloud.ys, cloud.front
    others = [k for k in range(len(xs)) if k not in front]
    axes.plot([xs[k] for k in others], [ys[k] for k in others], "o", color="#9A9A9A", ms=5, alpha=0.8, label="other")
    for k in front:
        across, up = (cloud.cells[k].metrics[name].std or 0.0 for name in (cloud.metric, "throughput"))
        axes.errorbar(xs[k], ys[k], xerr=across * cloud.factor, yerr=up, color=style.GREY, lw=1)
    colour = style.PALETTE[0]
    axes.plot([xs[k] for k in front], [ys[k] for k in front], "o-", color=colour, ms=7, label="frontier", zorder=3)


def _draw_slos(axes: Axes, slos: Sequence[float], limits: Sequence[float]) -> None:
    """A line for each promised latency, named above the picture."""
    for slo, limit in zip(slos, limits, strict=True):
        colour = style.PALETTE[1]
        axes.axvline(limit, color=colour, linestyle=(0, (4, 2)), lw=1.5, label="slo")
        place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 9}
        axes.text(limit, 1.005, f"SLO {style.plain(slo)} ms", color=colour, **place)


def _highest(cloud: _Cloud) -> list[str]:
    """Why it is not p99, where it is not."""
    if cloud.metric == "latency_p99":
        return []
    needed = requests_needed(PERCENTILES["p99"])
    return [f"The highest percentile that every cell supports; p99 needs {needed} requests a run."]


def _within(summary: Summary, cloud: _Cloud, slo_ms: float) -> list[str]:
    """The highest throughput that keeps the promise."""
    kept = [cell for cell, x in zip(cloud.cells, cloud.xs, strict=True) if x <= slo_ms / 1e3 * cloud.factor]
    if not kept:
        return [f"No cell's {cloud.words} is within the SLO of {style.plain(slo_ms)} ms."]
    best = max(kept, key=lambda cell: cell.metrics["throughput"].mean)
    highest = style.grouped(best.metrics["throughput"].mean)
    promise = f"with a {cloud.words} within the SLO of {style.plain(slo_ms)} ms"
    return [f"Highest throughput {promise}: {highest} samples/s at {in_words(best, summary)}."]


def _name(figure: Figure, axes: Axes, summary: Summary, cloud: _Cloud) -> None:
    """A number at each cell of the frontier that has room for one, and its settings and figures below."""
    numbered: list[int] = []
    places = axes.transAxes.inverted().transform(axes.transData.transform(list(zip(cloud.xs, cloud.ys, strict=True))))
    for k in sorted(cloud.front, key=lambda k: -cloud.ys[k]):
        far = all(max(abs(places[k] - places[other])) >= _APART for other in numbered)
        if far and len(numbered) < _MOST_NAMED:
            numbered.append(k)
    numbered.sort(key=lambda k: cloud.xs[k])
    heading, labels = labels_of([cloud.cells[k] for k in numbered], summary)
    lines = []
    for number, (k, label) in enumerate(zip(numbered, labels, strict=True), 1):
        axes.plot([cloud.xs[k]], [cloud.ys[k]], "o", color=style.PALETTE[0], ms=13, mec="white", zorder=4)
        axes.text(cloud.xs[k], cloud.ys[k], str(number), **_NUMBER)
        figures = f"{style.grouped(cloud.ys[k])} samples/s, {style.grouped(cloud.xs[k])} {cloud.unit}"
        lines.append(f"({number})  {label}: {figures}")
    if left_out := len(cloud.front) - len(numbered):
        lines.append(f"and {left_out} more on the line, see summary.csv")
    style.list_below(figure, lines, heading)
