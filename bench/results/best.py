"""The best cell by a metric, and those that cannot be told apart from it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.results.compare import compare, holm
from bench.results.metric_names import metric
from bench.results.statistics import CONFIDENCE
from bench.results.summary import Cell


@dataclass(frozen=True)
class Best:
    """The best cell of several by their means.

    Attributes:
        ties: other cells from which it was tested and not told apart.
        tested: how many others it was tested against; a cell with a single run cannot be.
        others: how many there are.
    """

    cell: Cell
    ties: list[Cell]
    tested: int
    others: int

    @property
    def stands_out(self) -> bool:
        """Whether it is told apart from any other, or nothing could be tested."""
        return len(self.ties) < self.others


def best(cells: Sequence[Cell], name: str) -> Best | None:
    """The best of the cells that have the metric; None where none has.

    It is compared with each other one as `compare` does, Holm-corrected for their number.
    """
    higher = metric(name).better == "higher"
    known = [cell for cell in cells if name in cell.metrics]
    if not known:
        return None
    first = (max if higher else min)(known, key=lambda cell: cell.metrics[name].mean)
    others = [cell for cell in known if cell is not first]
    values = first.values(name)
    found = [(cell, compare(values, cell.values(name), higher_is_better=higher)) for cell in others]
    tested = [(cell, one.p_value) for cell, one in found if one is not None and one.p_value is not None]
    corrected = holm([p for _, p in tested])
    ties = [cell for (cell, _), p in zip(tested, corrected, strict=True) if p >= 1 - CONFIDENCE]
    return Best(first, ties, len(tested), len(others))
