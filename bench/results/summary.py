"""Records to cells: which settings were swept, and mean and standard deviation of every metric. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.config import NO_NUMBER, flatten
from bench.results.record import Record
from bench.results.statistics import Statistic

_FIRST = ("batch_size", "compile", "num_workers", "stream_layout", "queue")  # of the axes, where swept
_WORD_WIDTH = 60  # characters of a reason inside a table; the whole stands below it


@dataclass(frozen=True)
class Cell:
    """All runs of one sweep whose settings are equal but for `repeat`."""

    experiment: str
    axes: dict[str, Any]  # the value of each swept axis
    settings: dict[str, Any]  # flattened
    records: list[Record]  # oldest first
    metrics: dict[str, Statistic]  # over the valid runs that have the metric

    @cached_property
    def valid(self) -> list[Record]:
        """The runs that count."""
        return [record for record in self.records if record.verdict.status == "valid"]

    @property
    def n(self) -> int:
        """How many runs were averaged: the valid ones."""
        return len(self.valid)

    def values(self, metric: str) -> list[float]:
        """The metric of each valid run that has it."""
        return [record.metrics[metric] for record in self.valid if metric in record.metrics]

    @property
    def verdict(self) -> str:
        """`valid`, `valid (warnings)`, `INVALID`, `FAILED`, or which of the runs do not count and why."""
        if self.n == 0:
            failed = any(record.verdict.status == "failed" for record in self.records)
            return "FAILED" if failed else "INVALID"
        if self.n < len(self.records):
            return f"{self.n} of {len(self.records)} runs: {self._excluded()}"
        return "valid (warnings)" if any(record.verdict.warnings for record in self.records) else "valid"

    @property
    def explained(self) -> str:
        """The verdict, with the reasons where no run is valid."""
        if self.n > 0:
            return self.verdict
        if len({(record.verdict.status, *record.reasons) for record in self.records}) == 1:
            return f"{self.verdict} ({_short(self.records[0].reasons)})"
        return self._excluded()

    def _excluded(self) -> str:
        counts = Counter(
            f"{record.verdict.status.upper()} ({_short(record.reasons)})"
            for record in self.records
            if record.verdict.status != "valid"
        )
        return ", ".join(f"{count} {words}" for words, count in counts.items())


@dataclass(frozen=True)
class Summary:
    """The cells of a sweep in the order of their axes."""

    axes: list[str]  # labels
    cells: list[Cell]

    @cached_property
    def experiments(self) -> list[str]:
        """The experiments' names, each once."""
        return list(dict.fromkeys(cell.experiment for cell in self.cells))

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics that any cell has."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.metrics))

    def place(self, cell: Cell) -> dict[str, Any]:
        """The axes of `cell`, its experiment first where there are several."""
        return {"experiment": cell.experiment, **cell.axes} if len(self.experiments) > 1 else cell.axes


def summarize(records: Sequence[Record]) -> Summary:
    """Group `records`, oldest first, into cells and average the valid runs of each."""
    axes = swept_axes(records)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.experiment, record.cell), []).append(record)
    cells = [_cell(group, axes) for group in groups.values()]
    order = list(dict.fromkeys(record.experiment for record in records))
    cells.sort(key=lambda c: (order.index(c.experiment), [rank(value) for value in c.axes.values()]))
    return Summary(list(axes), cells)


def swept_axes(records: Iterable[Record]) -> dict[str, str]:
    """Label of each setting that differs between `records`, and its flattened key, as `varying` has them."""
    return varying([flatten(record.settings) for record in {record.cell: record for record in records}.values()])


def varying(flats: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Label of each key that differs between flattened settings, and the key.

    A group's option (`load.name`) goes by the group's name (`load`), and the keys that follow from it are
    left out. Where nothing differs, batch_size and compile stand for all.
    """
    keys = dict.fromkeys(key for flat in flats for key in flat if key.partition(".")[0] not in (*NO_NUMBER, "repeat"))
    # As JSON, since 1, 1.0 and true are equal to Python.
    columns = {key: [json.dumps(flat.get(key), sort_keys=True) for flat in flats] for key in keys}
    differing = {key: column for key, column in columns.items() if len(set(column)) > 1}
    axes = {}
    for key, column in differing.items():
        group = key.partition(".")[0]
        names = differing.get(f"{group}.name", [])
        if key == f"{group}.name":
            axes[group] = key
        elif not names or len(set(zip(names, column, strict=True))) > len(set(names)):
            axes[key] = key
    axes = axes or {"batch_size": "batch_size", "compile": "compile"}
    place = {label: i for i, label in enumerate(_FIRST)}
    return {label: axes[label] for label in sorted(axes, key=lambda a: (place.get(a, len(place)), a))}


def _cell(records: list[Record], axes: dict[str, str]) -> Cell:
    settings = flatten(records[0].settings)
    values: dict[str, list[float]] = {}
    for record in records:
        if record.verdict.status == "valid":
            for name, value in record.metrics.items():
                values.setdefault(name, []).append(value)
    return Cell(
        experiment=records[0].experiment,
        axes={label: settings.get(key) for label, key in axes.items()},
        settings=settings,
        records=records,
        metrics={name: Statistic.of(numbers) for name, numbers in values.items()},
    )


def rank(value: Any) -> tuple[int, Any]:
    """Sort key for values of any type: null, false, true, numbers, texts, lists."""
    if value is None:
        return (0, 0)
    if isinstance(value, (bool, int, float)):
        return (1 if isinstance(value, bool) else 2, value)
    if isinstance(value, list):
        return (4, [rank(item) for item in value])
    return (3, str(value))


def _short(reasons: list[str]) -> str:
    text = " ".join("; ".join(reasons).split())
    return text if len(text) <= _WORD_WIDTH else text[: _WORD_WIDTH - 1] + "…"
