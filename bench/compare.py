"""`python -m bench.compare A B`: two sweeps, cell by cell, with intervals, verdicts and gates for CI."""

import argparse
import csv
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.config import NO_NUMBER, flatten
from bench.errors import BenchError
from bench.report import show
from bench.results.compare import Comparison, Line, Table, compare, judge
from bench.results.files import replacing, write_text
from bench.results.machines import machine, measured
from bench.results.metric_names import metric as named
from bench.results.page.comparison import comparison_html
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.summary import Cell, summarize, swept_axes
from bench.results.text import escaped, markdown_table, printable, shown

_METRICS = ("throughput", "average_latency")
_GATE = re.compile(r"(?P<metric>\w+):(?P<sign>[+-])(?P<percent>\d+(\.\d+)?)%")


@dataclass(frozen=True)
class Gate:
    """How much worse a metric may get: `throughput:-3%`, `latency_p99:+5%`.

    Of a metric that is not better for either direction, the sign says which is worse.
    """

    metric: str
    limit: float  # of the ratio B over A
    falls: bool  # whether it is worse below the limit

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Raises BenchError for a text that is no gate, or one that could never be broken for the worse."""
        found = _GATE.fullmatch(text.strip())
        if found is None:
            raise BenchError(f"--gate {text!r}: must be METRIC:-N% or METRIC:+N%, such as throughput:-3%")
        metric, sign = found["metric"], found["sign"]
        worse = {"higher": "-", "lower": "+", None: sign}[named(metric).better]
        if sign != worse:
            raise BenchError(f"--gate {text!r}: {metric} gets worse in the other direction. Write {metric}:{worse}N%")
        if sign == "-" and float(found["percent"]) >= 100:
            raise BenchError(f"--gate {text!r}: nothing falls by so much. Write a number below 100%")
        return cls(metric, 1 + float(f"{sign}{found['percent']}") / 100, falls=sign == "-")

    def broken(self, comparison: Comparison) -> bool:
        """The ratio is beyond the limit; where there is an interval, the whole of it is beyond 1, too."""
        beyond = comparison.ratio < self.limit if self.falls else comparison.ratio > self.limit
        if comparison.low is None or comparison.high is None:
            return beyond
        return beyond and (comparison.high < 1 if self.falls else comparison.low > 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; 1 when a gate is broken, 2 when there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Compare two sweeps cell by cell.")
    parser.add_argument("first", type=Path, metavar="A", help="directory of a sweep or a single run: the baseline")
    parser.add_argument("second", type=Path, metavar="B", help="directory of the other")
    parser.add_argument(
        "--gate", action="append", default=[], metavar="METRIC:-N%", help="exit 1 if B is worse by more"
    )
    parser.add_argument("--metric", action="append", default=[], help=f"default {', '.join(_METRICS)}")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write comparison.md, .csv and .html there")
    parser.add_argument("--other-machine", action="store_true", help="compare runs of different machines or versions")
    chosen = parser.parse_args(arguments)
    try:
        gates = [Gate.parse(text) for text in chosen.gate]
        metrics = list(dict.fromkeys([*(chosen.metric or _METRICS), *(gate.metric for gate in gates)]))
        first, second = _records(chosen.first), _records(chosen.second)
        _same_machine(first, second, chosen.other_machine)
        table = compare_sweeps(first, second, metrics, gates)
        text = _markdown(table, chosen.first, chosen.second)
        if chosen.output:
            chosen.output.mkdir(parents=True, exist_ok=True)
            write_text(chosen.output / "comparison.md", text)
            write_text(chosen.output / "comparison.html", comparison_html(table, chosen.first, chosen.second))
            _write_csv(chosen.output / "comparison.csv", table.lines)
    except (BenchError, OSError) as error:
        print(printable(f"bench.compare: {error}", sys.stderr.encoding), file=sys.stderr)
        return 2
    show(text)
    return 1 if table.broken else 0


def compare_sweeps(
    first: Sequence[Record], second: Sequence[Record], metrics: Sequence[str], gates: Sequence[Gate] = ()
) -> Table:
    """Each metric of each cell that both sweeps have, Holm-corrected over all of them.

    Cells match by the axes that vary within either sweep; a setting that only tells the two apart is
    what is compared. Raises BenchError where no cell matches, or a gate's metric is in none.
    """
    keys = {**_varying(first), **_varying(second)}
    before, after = _by_axes(first, keys), _by_axes(second, keys)
    pairs, lost = [], []
    for axes in (axes for axes in before if axes in after):
        for metric in metrics:
            if (found := _compared(before[axes], after[axes], metric)) is not None:
                pairs.append((axes, metric, found))
            elif metric in before[axes].metrics:
                lost.append((axes, metric))
    if not pairs:
        raise BenchError(f"no cell with valid runs is in both. Axes: {', '.join(keys) or 'none'}")
    for gate in gates:
        if all(metric != gate.metric for _, metric, _ in pairs):
            raise BenchError(f"--gate {gate.metric}: no cell of both sweeps has this metric")
    judgements = judge([found for _, _, found in pairs])
    lines = [
        Line(
            dict(zip(keys, json.loads(axes), strict=True)),
            metric,
            found,
            judgement,
            any(gate.metric == metric and gate.broken(found) for gate in gates),
        )
        for (axes, metric, found), judgement in zip(pairs, judgements, strict=True)
    ]
    unchecked = any(gate.metric == metric for gate in gates for _, metric in lost)
    words = [f"{metric} of {_words(keys, axes)}" for axes, metric in lost]
    return Table(lines, words, unchecked or any(line.broken for line in lines))


def _records(directory: Path) -> list[Record]:
    records, problems = read_records(directory)
    if not records:
        raise BenchError("\n".join([f"{directory}: no records there or one level below", *problems]))
    return records


def _same_machine(first: Sequence[Record], second: Sequence[Record], allowed: bool) -> None:
    """Numbers compare within one machine and one set of versions only."""
    here = {_identity(record) for record in (*measured(first), *measured(second))}
    if len(here) > 1 and not allowed:
        raise BenchError(
            f"the runs are of different machines or versions: {'; '.join(sorted(here))}. "
            "Their numbers do not compare; --other-machine compares them all the same"
        )


def _identity(record: Record) -> str:
    versions = record.environment.get("versions") or {}
    return f"{machine(record.environment)}, torch {versions.get('torch')}, python {versions.get('python')}"


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


def _markdown(table: Table, first: Path, second: Path) -> str:
    axes = list(table.lines[0].axes)
    rows = []
    for line in table.lines:
        values = [escaped(shown(line.axes[axis])) for axis in axes]
        rows.append([*values, line.metric, line.ratio, line.interval, line.p_value, line.verdict, line.gate])
    header = [*map(escaped, axes), "metric", "B / A", "95 % interval", "p (Holm)", "B is", "gate"]
    text = (
        f"A: {first}\nB: {second}\n\n{markdown_table(header, rows)}\n"
        "The ratio is of geometric means over the valid runs; p is corrected for all rows of this table.\n"
    )
    if table.lost:
        text += "\nNot compared, for want of valid runs of B or of values above 0:\n\n"
        text += "".join(f"- {escaped(words)}\n" for words in table.lost)
    return text


def _write_csv(path: Path, lines: Sequence[Line]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*lines[0].axes, "metric", "ratio", "ci_low", "ci_high", "p_value", "verdict", "gate_broken"])
        for line in lines:
            found = line.comparison
            numbers = [found.ratio, found.low, found.high, line.judgement.p_value]
            writer.writerow(
                [*map(shown, line.axes.values()), line.metric, *numbers, line.judgement.outcome, shown(line.broken)]
            )


if __name__ == "__main__":
    sys.exit(main())
