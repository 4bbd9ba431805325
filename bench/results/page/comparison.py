"""`comparison.html`: two sweeps, cell by cell, as a table and as intervals. Pure."""

from pathlib import Path
from typing import Any

from bench.results.comparison import Line, Table
from bench.results.experiment import Measured
from bench.results.metric_names import metric
from bench.results.page.html import render
from bench.results.text import shown

SCRIPTS = ("dom.js", "state.js", "table.js", "charts.js", "comparison.js")


def comparison_html(table: Table, first: Measured, second: Measured) -> str:
    """The page of `table`; its texts are those of comparison.md."""
    data = {
        "title": f"{_name(second.directory)} against {_name(first.directory)}",
        "first": str(first),
        "second": str(second),
        "axes": table.axes,
        "lines": [_line(number, line) for number, line in enumerate(table.lines)],
        "notes": table.notes,
        "gates": table.gates,
        "broken": table.broken,
        "gated": any(line.state for line in table.lines),
    }
    return render("comparison.html.j2", SCRIPTS, data)


def _name(directory: Path) -> str:
    """A sweep by its experiment and its time, as its directory is called."""
    return "/".join(directory.resolve().parts[-2:])


def _line(number: int, line: Line) -> dict[str, Any]:
    return {
        "id": str(number),
        "axes": [shown(value) for value in line.axes.values()],
        "metric": line.metric,
        "name": metric(line.metric).title,
        "numbers": line.numbers,
        "ratio": line.ratio,
        "interval": line.interval,
        "p": line.p_value,
        "outcome": line.outcome,
        "verdict": line.verdict,
        "gate": line.gate,
    }
