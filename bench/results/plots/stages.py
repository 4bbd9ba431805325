"""Where the latency goes: the share of each stage, stacked, a bar for each cell."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.results.metric_names import metric
from bench.results.metrics import STAGES
from bench.results.plots import style
from bench.results.plots.arrangement import best_cells, labels_of
from bench.results.plots.notes import backlog, named_by, throughout
from bench.results.stage_looks import STAGE_LOOKS
from bench.results.summary import Cell, Summary

_MOST_BARS = 24
_LEAST_WRITTEN = 6  # percent of the bar, from which a share has room for its number
_LEAST_NAMED = 0.002  # of the latency somewhere: less cannot be seen
_WRITTEN_WHITE = ("compute", "d2h", "respond")


def stages(summary: Summary) -> Figure | None:
    """Mean shares of the valid runs of each cell, with its average latency beside; None without any."""
    cells, note = best_cells(summary, _MOST_BARS)
    cells = [cell for cell in cells if stage_shares(cell)]
    if not cells:
        return None
    shares = [stage_shares(cell) for cell in cells]
    heading, labels = labels_of(cells, summary)
    notes = [
        "At the right of each bar: its average latency.",
        note,
        *named_by(heading),
        *backlog(cells),
        throughout(summary),
    ]
    figure = style.canvas("Where the latency goes", notes, 8.5, 1.45 + 0.3 * len(cells))
    axes = figure.subplots()
    there = [stage for stage in STAGES if any(share[stage] >= _LEAST_NAMED for share in shares)]
    left = [0.0] * len(cells)
    for stage in STAGES:
        widths = [100 * share[stage] for share in shares]
        bars: dict[str, Any] = {"left": left, "height": 0.75, "label": metric(stage).explained, "linewidth": 0.5}
        axes.barh(range(len(cells)), widths, **bars, **_look(stage))
        for k, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width >= _LEAST_WRITTEN:
                ink = "white" if stage in _WRITTEN_WHITE else "black"
                axes.text(start + width / 2, k, f"{width:.0f}", ha="center", va="center", fontsize=8, color=ink)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(range(len(cells)), [style.duration(_latency(cell)) for cell in cells], fontsize=9)
    beside.tick_params(length=0)
    beside.spines["right"].set_visible(False)
    axes.set_xlim(0, 100)
    axes.set_xlabel("Share of the average latency (%)")
    style.name_rows(axes, labels)
    style.legend(figure, [Patch(**_look(stage)) for stage in there], [metric(stage).explained for stage in there])
    return figure


def _look(stage: str) -> dict[str, Any]:
    """Arguments of its bars."""
    return {"facecolor": STAGE_LOOKS[stage].light, "hatch": 4 * STAGE_LOOKS[stage].hatch, "edgecolor": "white"}


def stage_shares(cell: Cell) -> dict[str, float]:
    """Mean share of each stage over the cell's valid runs (all, where none is valid); empty where unknown."""
    known = [shares for record in cell.valid or cell.records if (shares := record.evidence.get("stage_shares"))]
    return {stage: sum(one.get(stage, 0.0) for one in known) / len(known) for stage in STAGES if known}


def _latency(cell: Cell) -> float:
    statistic = cell.metrics.get("average_latency")
    return statistic.mean if statistic else cell.records[0].metrics.get("average_latency", 0.0)
