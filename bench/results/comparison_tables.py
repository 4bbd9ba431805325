"""A comparison as Markdown and CSV. Pure: a table in, a text out."""

import csv
import io

from bench.results.compare import repeats_in_words
from bench.results.comparison import Table
from bench.results.text import escaped, markdown_table, shown

_GATES_RULE = (
    "A gate is broken where the ratio is beyond its bound and the whole interval on the worse side of 1, and where B"
    " lost what A has; it is undecided where only the ratio is beyond."
)


def comparison_markdown(table: Table, first: str, second: str) -> str:
    """`comparison.md`, of two sweeps in words."""
    rows = []
    for line in table.lines:
        values = [escaped(shown(line.axes[axis])) for axis in table.axes]
        rows.append([*values, line.metric, line.ratio, line.interval, line.p_value, line.verdict, line.gate])
    header = [*map(escaped, table.axes), "metric", "B / A", "95 % interval", "p (Holm)", "B is", "gate"]
    parts = [
        f"A: {first}\nB: {second}\n",
        markdown_table(header, rows),
        "The ratio is of geometric means over the valid runs; p is corrected for all rows of this table."
        + (f" {_GATES_RULE}" if any(line.state for line in table.lines) else "")
        + "\n",
        *(f"{escaped(note)}\n" for note in table.notes),
        "".join(f"- {escaped(words)}\n" for words in table.gates),
    ]
    return "\n".join(filter(None, parts))


def comparison_csv(table: Table) -> str:
    """`comparison.csv`: a row a line, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["metric", "ratio", "ci_low", "ci_high", "p_value", "verdict", "more_repeats", "lost", "gate"]
    writer.writerow([*table.axes, *names])
    for line in table.lines:
        more = line.judgement.more_repeats if line.judgement else None
        repeats = repeats_in_words(more, short=True) if more else ""
        values = [line.metric, *line.numbers, line.outcome, repeats, line.lost, line.state]
        writer.writerow([*map(shown, line.axes.values()), *values])
    return text.getvalue()
