"""`python -m bench.compare A B`: two sweeps, cell by cell, with intervals, verdicts and gates for CI."""

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.report import show
from bench.results.comparison import METRICS, Table, compare_sweeps
from bench.results.comparison_tables import comparison_csv, comparison_markdown
from bench.results.experiment import Measured, read_experiment
from bench.results.files import write_text
from bench.results.gate import Gate
from bench.results.machines import differences, kinds, measured
from bench.results.page.comparison import comparison_html
from bench.results.text import printable

_DESCRIPTION = """Compare two sweeps cell by cell: those of A against those of B that have the same swept settings.
A and B are each the directory of a single run, of a sweep, or of an experiment, whose sweeps are pooled: the same cell
in several of them has that many more repeats."""
_EXIT = "Exit code: 0; 1 if a gate is broken; 2 if nothing can be compared."


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write and print; 1 when a gate is broken, 2 when there is nothing to compare."""
    chosen = _parser().parse_args(arguments)
    try:
        gates = [Gate.parse(text) for text in chosen.gate]
        first, second = read_experiment(chosen.first), read_experiment(chosen.second)
        notes = _notes(first, second, chosen.other_machine)
        table = compare_sweeps(first.records, second.records, chosen.metric, gates)
        table = dataclasses.replace(table, notes=[*notes, *table.notes])
        text = comparison_markdown(table, str(first), str(second))
        if chosen.output:
            _write(chosen.output, table, text, first, second)
    except (BenchError, OSError) as error:
        print(printable(f"bench.compare: {error}", sys.stderr.encoding), file=sys.stderr)
        return 2
    show(text)
    return 1 if table.broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=_DESCRIPTION, epilog=_EXIT)
    parser.add_argument("first", type=Path, metavar="A", help="directory of the baseline")
    parser.add_argument("second", type=Path, metavar="B", help="directory of the other")
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="METRIC:-N%",
        help="exit 1 if B is surely worse by more, or lacks a cell of A. May be given several times",
    )
    parser.add_argument("--metric", action="append", default=[], help=f"default {', '.join(METRICS)}")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write comparison.md, .csv and .html there")
    parser.add_argument("--other-machine", action="store_true", help="compare runs of different machines or versions")
    return parser


def _notes(first: Measured, second: Measured, other_machine: bool) -> list[str]:
    """What must be known of the records. Raises BenchError where they are of several machines, unless allowed."""
    kinds_of = [(name, measured(side.records)) for name, side in (("A", first), ("B", second))]
    places = [(name, kind) for name, records in kinds_of for kind in kinds(record.environment for record in records)]
    found = {
        f"{what}: {value} in {one}, {other_value} in {other}": None
        for (one, kind), (other, other_kind) in itertools.combinations(places, 2)
        for what, value, other_value in differences(kind, other_kind)
    }
    if found and not other_machine:
        lines = [
            "the runs are of different machines or versions, whose numbers do not compare:",
            *(f"    {line}" for line in found),
            "--other-machine compares them all the same",
        ]
        raise BenchError("\n".join(lines))
    notes = [f"Of different machines or versions: {'; '.join(found)}."] if found else []
    return notes + [f"Left out: {problem}" for problem in (*first.problems, *second.problems)]


def _write(output: Path, table: Table, text: str, first: Measured, second: Measured) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / "comparison.md", text)
    write_text(output / "comparison.csv", comparison_csv(table))
    write_text(output / "comparison.html", comparison_html(table, first, second))


if __name__ == "__main__":
    sys.exit(main())
