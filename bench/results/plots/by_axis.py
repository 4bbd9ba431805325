"""Throughput and average latency by a swept axis: PyTorch's two figures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from bench.results.metric_names import metric
from bench.results.plots import style
from bench.results.plots.arrangement import Curves, Line, curves, in_words, labels_of, measured
from bench.results.plots.notes import backlog, named_by, repeats, throughout
from bench.results.summary import Cell, Summary

_X_NAMES = {  # in a title, on the axis
    "batch_size": ("batch size", "Batch size (samples in a request)"),
    "num_workers": ("workers", "Workers (prediction threads)"),
    "num_iters": ("number of requests", "Requests in a run"),
    "load.clients": ("clients", "Clients, each with one request under way"),
    "load.rate": ("rate of requests", "Rate asked for (requests/s)"),
}
_LOG_X, _LOG_Y = 8, 30  # times the smallest value, from which an axis is logarithmic
_MOST_BARS = 24
_RING: Mapping[str, Any] = {"marker": "o", "ms": 13, "mfc": "none", "mec": "black", "mew": 1.2, "label": "best"}


@dataclass(frozen=True)
class Quantity:
    """A metric with its words; `factor` makes its unit of what the record holds."""

    metric: str
    title: str
    unit: str
    factor: float
    is_better_high: bool

    @classmethod
    def of(cls, name: str, cells: Sequence[Cell]) -> "Quantity":
        """In the metric's own unit; seconds in the unit that fits."""
        found = metric(name)
        unit, factor = found.unit, 1.0
        if unit == "s":
            unit, factor = style.time_unit(cell.metrics[name].mean for cell in cells)
        return cls(name, found.title, unit, factor, found.better == "higher")

    @property
    def axis(self) -> str:
        """With its unit."""
        return f"{self.title} ({self.unit})"

    def best(self, cells: Sequence[Cell]) -> Cell:
        """The cell with the best mean."""
        return sorted(cells, key=self.mean, reverse=self.is_better_high)[0]

    def mean(self, cell: Cell) -> float:
        """In the picture's unit."""
        return cell.metrics[self.metric].mean * self.factor

    def deviation(self, cell: Cell) -> float:
        """In the picture's unit; NaN for a single run."""
        std = cell.metrics[self.metric].std
        return math.nan if std is None else std * self.factor

    def ends(self, cell: Cell) -> list[float]:
        """Of the error bar; none for a single run."""
        mean, deviation = self.mean(cell), self.deviation(cell)
        return [mean - deviation, mean + deviation] if deviation > 0 else []

    def notes(self, summary: Summary, cells: Sequence[Cell]) -> list[str]:
        """The best value in words, what a point is, what is the same everywhere."""
        best = self.best(cells)
        first = f"{'Highest' if self.is_better_high else 'Lowest'}: {style.grouped(self.mean(best))} {self.unit}"
        waiting = [] if self.is_better_high else backlog(cells)
        return [
            f"{first} at {in_words(best, summary)} (ringed).",
            *waiting,
            repeats(cells, "bars"),
            throughout(summary),
        ]


def by_axis(summary: Summary, name: str) -> Figure | None:
    """A line for each setting over the first numeric axis, or a bar for each cell. None for a single cell."""
    cells = measured(summary)
    if len(cells) < 2:
        return None
    quantity, found = Quantity.of(name, cells), curves(summary)
    return _bars(quantity, summary, cells) if found is None else _curves(quantity, summary, found)


def _curves(quantity: Quantity, summary: Summary, found: Curves) -> Figure:
    count, cells = len(found.panels), found.cells
    columns = style.columns_of(count)
    title, x_words = _X_NAMES.get(found.x, (found.x, found.x))
    figure = style.canvas(
        f"{quantity.title} by {title}",
        [found.note, *quantity.notes(summary, cells)],
        width={1: 8, 2: 9, 3: 10.5}.get(columns, 12),
        height=(4.3 if count == 1 else 2.6 * math.ceil(count / columns)) + 0.08 * len(found.looks),
    )
    grid = style.grid_of(figure, count, sharex=True, sharey=True)
    place = _place_x(grid, found.x, cells)
    best = quantity.best(cells)
    for k, (axes, panel) in enumerate(zip(grid, found.panels, strict=True)):
        style.name_panel(axes, panel.title, columns)
        if k + columns >= count:
            axes.set_xlabel(style.clean(x_words))
            axes.tick_params(labelbottom=True)
        if k % columns == 0:
            axes.set_ylabel(quantity.axis)
        for line in panel.lines:
            _draw(axes, quantity, line, [place[_value(cell, found.x)] for cell in line.cells])
            if any(cell is best for cell in line.cells):
                axes.plot([place[_value(best, found.x)]], [quantity.mean(best)], **_RING)
    ends = [end for cell in cells for end in quantity.ends(cell)]
    style.scale(grid[0], "y", map(quantity.mean, cells), ends=ends, log_from=_LOG_Y)
    if len(found.looks) > 1:
        style.legend(figure, [style.swatch(**style.look(look)) for look in found.looks], list(found.looks.values()))
    return figure


def _draw(axes: Axes, quantity: Quantity, line: Line, xs: Sequence[float]) -> None:
    """A line with an error bar at each point that has several runs."""
    axes.errorbar(
        xs,
        [quantity.mean(cell) for cell in line.cells],
        yerr=[quantity.deviation(cell) for cell in line.cells],
        capsize=3,
        elinewidth=1.2,
        label=style.clean(line.label),
        **style.look(line.look),
    )


def _place_x(grid: Sequence[Axes], axis: str, cells: Sequence[Cell]) -> dict[str, float]:
    """Set the x axis, with a tick at each value as far as they have room; where each value lies, by its JSON."""
    values = {_value(cell, axis): cell.axes[axis] for cell in cells}
    ordered = sorted(values, key=lambda key: (values[key] is not None, values[key] or 0))
    if None in values.values():  # null is no number: all stand at equal distances
        place = {key: float(k) for k, key in enumerate(ordered)}
    else:
        place = {key: float(values[key]) for key in ordered}
    low, high = place[ordered[0]], place[ordered[-1]]
    is_log = None not in values.values() and low > 0 and high >= _LOG_X * low
    spread = {key: math.log(place[key]) if is_log else place[key] for key in ordered}
    span = spread[ordered[-1]] - spread[ordered[0]] or 1.0
    room = max(0.05, 0.025 * len(grid) ** 0.5 * max(len(_word(values[key])) for key in ordered))
    ticks: list[str] = []
    for key in ordered:
        if not ticks or spread[key] - spread[ticks[-1]] >= room * span:
            ticks.append(key)
    for axes in grid:
        if is_log:
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([place[key] for key in ticks]))
        axes.xaxis.set_major_formatter(FixedFormatter([_word(values[key]) for key in ticks]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=0.04)
    return place


def _value(cell: Cell, axis: str) -> str:
    return json.dumps(cell.axes[axis])


def _word(value: Any) -> str:
    return "null" if value is None else style.plain(value)


def _bars(quantity: Quantity, summary: Summary, cells: Sequence[Cell]) -> Figure:
    """A bar for each cell, in the summary's order; of many the best ones, the best on top."""
    note = ""
    if len(cells) > _MOST_BARS:
        note = f"The best {_MOST_BARS} of {len(cells)} cells; all are in summary.csv."
        cells = sorted(cells, key=quantity.mean, reverse=quantity.is_better_high)[:_MOST_BARS]
    heading, labels = labels_of(cells, summary)
    notes = [text.replace(" (ringed)", "") for text in quantity.notes(summary, cells)]
    figure = style.canvas(
        f"{quantity.title} of each cell", [note, *named_by(heading), *notes], 8, 1.0 + 0.27 * len(cells)
    )
    axes = figure.subplots()
    places = range(len(cells))
    colours = [style.PALETTE[0] if cell is not quantity.best(cells) else style.PALETTE[1] for cell in cells]
    axes.barh(places, [quantity.mean(cell) for cell in cells], height=0.7, color=colours)
    deviations = [quantity.deviation(cell) for cell in cells]
    axes.errorbar(
        [quantity.mean(c) for c in cells],
        places,
        xerr=deviations,
        fmt="none",
        ecolor="black",
        elinewidth=1.2,
        capsize=3,
    )
    style.name_rows(axes, labels)
    axes.set_xlabel(quantity.axis)
    style.scale(axes, "x", map(quantity.mean, cells), ends=[end for cell in cells for end in quantity.ends(cell)])
    return figure
