"""The table so far: a line a cell, for a terminal. Made between runs, never while one is measured."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

from bench.config import flatten

if TYPE_CHECKING:
    from bench.results.record import Record

_METRICS = {"throughput": "samples/s", "average_latency": "latency (s)", "latency_p99": "p99 (s)"}
_GAP = "  "
_NAME = 5  # characters that are left of an axis's name at least

Line = tuple[str, str]  # text and style


@dataclass
class _Cell:
    """The runs of one cell: what was measured by those that are valid, and how the others ended."""

    first: "Record"
    runs: int = 0
    valid: int = 0
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _METRICS})
    status: str = ""


class SoFar:
    """The cells of which a run has ended, in the order in which they were first met."""

    def __init__(self) -> None:
        self._cells: dict[str, _Cell] = {}
        self._axes: dict[str, str] = {}
        self._last = ""

    def add(self, record: "Record") -> None:
        """A run has ended."""
        if record.cell not in self._cells:
            self._cells[record.cell] = _Cell(record)
            self._find_axes(flatten(record.settings))
        cell = self._cells[record.cell]
        self._last = record.cell
        cell.runs += 1
        if record.verdict.status != "valid":
            cell.status = record.verdict.status.upper()
            return
        cell.valid += 1
        for name, values in cell.values.items():
            if name in record.metrics:
                values.append(record.metrics[name])

    def lines(self, width: int, height: int) -> list[Line]:
        """The table in at most `height` lines of `width` columns: what has no room is left out, and counted.

        Of the metrics those on the right go first, of the cells those far from the last one that was measured.
        """
        if not self._cells or height < 2:
            return []
        cells = list(self._cells.values())
        best = self._best()
        shown = self._shown(height)
        metrics = [name for name in _METRICS if name == "throughput" or any(cell.values[name] for cell in cells)]
        header = [*self._axes, "n", *(_METRICS[name] for name in metrics)]
        rows = [self._row(cells[k], metrics) for k in shown]
        widths = self._widths(header, rows, width)
        lines = [(_aligned(header, widths), "dim")]
        lines += [(_aligned(row, widths), "bold" if k == best else "") for k, row in zip(shown, rows, strict=True)]
        if len(shown) < len(cells) and height > 2:
            lines.append((f"{_GAP}and {len(cells) - len(shown)} more", "dim"))
        return lines

    def _find_axes(self, settings: dict[str, Any]) -> None:
        """Only for a cell that differs from the first in more than the known axes: it takes long for many cells."""
        from bench.results.summary import swept_axes

        first = flatten(next(iter(self._cells.values())).first.settings)
        known = self._axes.values()
        others = (first.keys() | settings.keys()) - {*known, "repeat"}
        if not self._axes or any(settings.get(key) != first.get(key) for key in others):
            self._axes = swept_axes([cell.first for cell in self._cells.values()])

    def _shown(self, height: int) -> range:
        """Which cells have room, the last one that was measured among them."""
        count = len(self._cells)
        if count <= height - 1:
            return range(count)
        room = max(1, height - 2)
        start = min(max(0, list(self._cells).index(self._last) - room // 2), count - room)
        return range(start, start + room)

    def _widths(self, header: list[str], rows: list[list[str]], width: int) -> list[int]:
        """Of the columns that have room; where not even the first metric has, the axes' names are cut."""
        widths = [max(cell_len(row[k]) for row in (header, *rows)) for k in range(len(header))]
        kept = len(self._axes) + 2

        def too_wide() -> bool:
            return sum(widths) + len(_GAP) * len(widths) > width

        while len(widths) > kept and too_wide():
            widths.pop()
        if too_wide():
            for k in range(len(self._axes)):
                widths[k] = max(_NAME, *(cell_len(row[k]) for row in rows))
        return widths

    def _row(self, cell: _Cell, metrics: list[str]) -> list[str]:
        from bench.results.statistics import Statistic
        from bench.results.text import mean_std, shown

        settings: dict[str, Any] = flatten(cell.first.settings)
        count = str(cell.valid) if cell.valid == cell.runs else f"{cell.valid}/{cell.runs}"
        numbers = [mean_std(Statistic.of(cell.values[name])) if cell.values[name] else "" for name in metrics]
        if not cell.valid:
            numbers[0] = cell.status
        return [*(shown(settings.get(key)) for key in self._axes.values()), count, *numbers]

    def _best(self) -> int | None:
        """Which cell has the highest mean throughput, of several."""
        found = [values for cell in self._cells.values() if (values := cell.values["throughput"])]
        means = [
            sum(cell.values["throughput"]) / cell.valid if cell.values["throughput"] else 0.0
            for cell in self._cells.values()
        ]
        return means.index(max(means)) if len(found) > 1 else None


def _aligned(row: list[str], widths: list[int]) -> str:
    """Cells of `row`, as many as there are widths, the numbers to the right."""
    cells = [
        set_cell_size(text, width) if cell_len(text) > width else " " * (width - cell_len(text)) + text
        for text, width in zip(row, widths, strict=False)
    ]
    return _GAP + _GAP.join(cells)
