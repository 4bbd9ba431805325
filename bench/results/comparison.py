"""Two sweeps, cell by cell: what both have is compared and judged, what the second lost is named. Pure."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.config import NO_NUMBER, flatten
from bench.errors import BenchError
from bench.results.compare import Comparison, Judgement, Outcome, compare, judge, repeats_in_words
from bench.results.gate import Gate, State
from bench.results.metric_names import metric as named
from bench.results.metrics import PERCENTILES, requests_needed
from bench.results.record import Record
from bench.results.summary import Cell, summarize, swept_axes
from bench.results.text import ABSENT, shown

METRICS = ("throughput", "average_latency")  # compared where none is asked for
_NAMED = 10  # cells that are spelled out in one sentence
_GRAVITY: tuple[State, ...] = ("kept", "undecided", "broken")


@dataclass(frozen=True)
class Line:
    """One metric of one cell of the first sweep; its properties are what the tables say."""

    axes: dict[str, Any]
    metric: str
    comparison: Comparison | None  # None where the second lost it
    judgement: Judgement | None
    lost: str  # why there is nothing to compare; empty where there is
    state: State | None  # of its gates, the gravest; None without a gate

    @property
    def ratio(self) -> str:
        """Of B over A."""
        return ABSENT if self.comparison is None else f"{self.comparison.ratio:.3f}"

    @property
    def interval(self) -> str:
        """95 %."""
        found = self.comparison
        return ABSENT if found is None or found.low is None else f"{found.low:.3f} to {found.high:.3f}"

    @property
    def numbers(self) -> list[float | None]:
        """Ratio, both ends of its interval, and p."""
        if self.comparison is None or self.judgement is None:
            return [None] * 4
        return [self.comparison.ratio, self.comparison.low, self.comparison.high, self.judgement.p_value]

    @property
    def p_value(self) -> str:
        """Corrected for the table."""
        p_value = self.numbers[3]
        return ABSENT if p_value is None else f"{p_value:.2g}"

    @property
    def outcome(self) -> Outcome | Literal["lost"]:
        """What B is."""
        return "lost" if self.judgement is None else self.judgement.outcome

    @property
    def verdict(self) -> str:
        """`faster`, `unsure: 3 more repeats`, or `lost: no such cell in B`."""
        if self.judgement is None:
            return f"lost: {self.lost}"
        more = self.judgement.more_repeats
        return f"{self.outcome}: {repeats_in_words(more)}" if more else self.outcome

    @property
    def gate(self) -> str:
        """`BROKEN`, `undecided`, `kept`, or nothing where there is none."""
        return {"broken": "BROKEN", None: ""}.get(self.state, self.state or "")


@dataclass(frozen=True)
class Table:
    """All that is said of two sweeps."""

    axes: list[str]
    lines: list[Line]
    gates: list[str]  # of each gate that a cell breaks or leaves undecided, a line
    notes: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether a gate is; what the second sweep lost breaks those on it."""
        return any(line.state == "broken" for line in self.lines)


def compare_sweeps(
    first: Sequence[Record], second: Sequence[Record], metrics: Sequence[str] = (), gates: Sequence[Gate] = ()
) -> Table:
    """Each metric of each cell of the first sweep against the second's, Holm-corrected over all of them.

    Cells match by the axes that vary within either sweep; a setting that only tells the two apart is
    what is compared. Raises BenchError where no cell matches, or the first has no such metric anywhere.
    """
    keys = {**_varying(first), **_varying(second)}
    before, after = _by_axes(first, keys), _by_axes(second, keys)
    wanted = list(dict.fromkeys([*(metrics or METRICS), *(gate.metric for gate in gates)]))
    found = [
        (axes, metric, _compared(cell, after[axes], metric) if axes in after else None)
        for axes, cell in before.items()
        for metric in wanted
        if metric in cell.metrics
    ]
    if not any(axes in after and after[axes].n and cell.n for axes, cell in before.items()):
        raise BenchError(f"no cell with valid runs is in both. Axes: {', '.join(keys) or 'none'}")
    _check_metrics(
        [*(("--metric", name) for name in metrics), *(("--gate", gate.metric) for gate in gates)], before, after
    )
    judgements = iter(judge([comparison for _, _, comparison in found if comparison is not None]))
    lines, told = [], []
    for axes, metric, comparison in found:
        mine = [gate for gate in gates if gate.metric == metric]
        lost = "" if comparison is not None else _why_lost(after.get(axes), metric)
        place = _words(keys, axes)
        told += [gate.words(place, comparison, lost) for gate in mine]
        states = [gate.state(comparison) for gate in mine]
        values = dict(zip(keys, json.loads(axes), strict=True))
        judgement = None if comparison is None else next(judgements)
        lines.append(Line(values, metric, comparison, judgement, lost, max(states, key=_GRAVITY.index, default=None)))
    gravest_first = sorted(filter(None, told), key=lambda words: not words.startswith("gate broken"))
    return Table(list(keys), lines, gravest_first, _unmatched(keys, before, after))


def _varying(records: Sequence[Record]) -> dict[str, str]:
    """The axes of a sweep; none for a single cell, where a table would still show two."""
    return swept_axes(records) if len({record.cell for record in records}) > 1 else {}


def _words(keys: dict[str, str], axes: str) -> str:
    values = zip(keys, json.loads(axes), strict=True)
    return ", ".join(f"{key}={shown(value)}" for key, value in values) or "the one cell"


def _by_axes(records: Sequence[Record], keys: dict[str, str]) -> dict[str, Cell]:
    summary = summarize(records)
    if len(summary.experiments) > 1:
        raise BenchError(f"several experiments in one directory: {', '.join(summary.experiments)}. Compare two of them")
    cells = {}
    for cell in summary.cells:
        flat = flatten({key: value for key, value in cell.records[0].settings.items() if key not in NO_NUMBER})
        cells[json.dumps([flat.get(key) for key in keys.values()])] = cell
    return cells


def _compared(first: Cell, second: Cell, metric: str) -> Comparison | None:
    better = named(metric).better
    is_higher = None if better is None else better == "higher"
    return compare(first.values(metric), second.values(metric), higher_is_better=is_higher)


def _why_lost(cell: Cell | None, metric: str) -> str:
    """Why the second sweep has nothing to compare."""
    if cell is None:
        return "no such cell in B"
    if not cell.n:
        return "no valid run in B"
    if metric in cell.metrics:
        return "a value is not above 0"
    needed = _requests(metric)
    return f"too few requests in B, it needs {needed}" if needed else "not measured in B"


def _unmatched(keys: dict[str, str], before: dict[str, Cell], after: dict[str, Cell]) -> list[str]:
    """Sentences on cells that only the second sweep has, or has valid runs of."""
    new = [_words(keys, axes) for axes in after if axes not in before]
    invalid = [_words(keys, axes) for axes, cell in before.items() if not cell.n]
    kinds = (("Only in B, so not compared", new), ("Not compared, for want of a valid run in A", invalid))
    return [f"{what}: {_few(cells)}" for what, cells in kinds if cells]


def _few(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return "; ".join([*words[:_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _check_metrics(asked: Sequence[tuple[str, str]], before: dict[str, Cell], after: dict[str, Cell]) -> None:
    """Raises BenchError for metrics by which nothing can be compared, since the first sweep has none of them."""
    there, other = ({name for cell in cells.values() for name in cell.metrics} for cells in (before, after))
    problems = []
    for option, metric in asked:
        if metric in there:
            continue
        needed = _requests(metric)
        if needed and metric.rpartition("_p")[0] in ("latency", *there):
            known = "no run of A has" if metric in other else "no run has"
            problems.append(f"{option} {metric}: {known} enough requests for it: it needs {needed} (num_iters)")
        elif metric in other:
            problems.append(f"{option} {metric}: only B has this metric, A has no valid run with it")
        else:
            problems.append(f"{option} {metric}: no run has this metric. {_close(metric, there | other)}")
    if problems:
        raise BenchError("\n".join(dict.fromkeys(problems)))


def _close(metric: str, known: set[str]) -> str:
    names = sorted(known | {f"latency_{label}" for label in PERCENTILES})
    close = difflib.get_close_matches(metric, names, 3)
    return f"Close: {', '.join(close)}" if close else f"There are: {', '.join(sorted(known))}"


def _requests(metric: str) -> int | None:
    """How many requests a run needs for a percentile; None for any other metric."""
    quantiles = [quantile for label, quantile in PERCENTILES.items() if metric.endswith(f"_{label}")]
    return requests_needed(quantiles[0]) if quantiles and named(metric).group in ("latency", "stages") else None
