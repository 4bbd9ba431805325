"""Adaptive stopping: which cell needs another repeat. Pure."""

import math

from bench.config import Precision
from bench.results.summary import Cell, Summary


def widest(summary: Summary, wanted: Precision) -> Cell | None:
    """The cell whose interval is furthest from what is wanted; None when all are within or at their limit.

    A cell without a valid run is passed over: repeating it would not make it one.
    """
    if wanted.relative_ci is None:
        return None
    open_cells = [
        (width, cell)
        for cell in summary.cells
        if cell.n > 0
        and len(cell.records) < wanted.max_repeats
        and (width := _width(cell, wanted)) > wanted.relative_ci
    ]
    return max(open_cells, key=lambda pair: pair[0])[1] if open_cells else None


def _width(cell: Cell, wanted: Precision) -> float:
    """Half the 95 % interval over the mean; infinite for a single run."""
    statistic = cell.metrics.get(wanted.metric)
    if statistic is None:
        return 0.0
    width = statistic.relative_half_width
    return math.inf if width is None else width
