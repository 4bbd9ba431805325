"""summary.md: one sweep for a reader, in a terminal as well as on a forge. Pure."""

from collections.abc import Mapping, Sequence

from bench.results import details, notes
from bench.results.answer import answer
from bench.results.best import Best, best
from bench.results.conditions import conditions
from bench.results.details import leading, section, value
from bench.results.headline import columns, own_latency, rated
from bench.results.machines import places
from bench.results.metric_names import metric
from bench.results.notes import bullets, runs
from bench.results.record import Record
from bench.results.summary import Cell, Summary
from bench.results.text import escaped, markdown_table

_DETAILED = 50  # cells up to which each has its percentiles and stages; of more, the best ones have
_IN_PERCENT = ("slo_share",)  # shares that are shown so


def summary_markdown(
    summary: Summary, problems: Sequence[str] = (), interrupted: bool = False, expected: int | None = None
) -> str:
    """Heading, what it says, how far it is, the table, how to read it, what went wrong, where it was measured."""
    records = [record for cell in summary.cells for record in cell.records]
    parts = [
        f"# {', '.join(map(escaped, summary.experiments)) or 'No runs'}",
        escaped(answer(summary)),
        _progress(records, interrupted, expected),
    ]
    if records:
        bests = _bests(summary)
        parts += [_table(summary, bests), details.effects_table(summary)]
        parts.append(section("How to read the table", bullets(_how_to_read(summary, bests))))
        parts.append(section("How it was measured", bullets(map(escaped, conditions(summary)))))
        parts += _details(summary, [found.cell for found in bests.values()])
    warnings = [*notes.warnings(summary), *notes.drifts(summary)]
    parts += [
        section("Failed and invalid runs", bullets(notes.faults(summary))),
        section("Warnings", bullets(warnings)),
        section("Unreadable records", bullets(map(escaped, problems))),
        section("Measured on", bullets(_measured_on(records))),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _progress(records: Sequence[Record], interrupted: bool, expected: int | None) -> str:
    """A line where runs are missing, or were when the sweep was stopped."""
    count = runs(len(records)) if expected is None else f"{len(records)} of {runs(expected)}"
    if interrupted:
        return f"**Interrupted after {count}.**"
    return f"{count} so far." if expected is not None and len(records) < expected else ""


def _bests(summary: Summary) -> dict[str, Best]:
    """The best cell of each column in which one can be better than another."""
    found = {name: best(summary.cells, name) for name in filter(rated, columns(summary))}
    return {name: one for name, one in found.items() if one is not None}


def _mark(cell: Cell, found: Best | None) -> str:
    """Bold for the best value of a column, italic for one not told apart from it; none where no value stands out."""
    if found is None or not found.stands_out:
        return ""
    return "**" if cell is found.cell else "*" if any(cell is tie for tie in found.ties) else ""


def _table(summary: Summary, bests: Mapping[str, Best]) -> str:
    header, rows, right = leading(summary)
    names = columns(summary)
    right |= set(range(len(header), len(header) + len(names) + 1))
    verdicts = any(cell.verdict != "valid" for cell in summary.cells)
    for cell, row in zip(summary.cells, rows, strict=True):
        for name in names:
            mark = _mark(cell, bests.get(name))
            row.append(f"{mark}{escaped(_value(cell, name))}{mark}")
        row += [str(cell.n), *[escaped(cell.explained)] * verdicts]
    return markdown_table([*header, *map(_heading, names), "n", *["verdict"] * verdicts], rows, right)


def _heading(name: str) -> str:
    return f"{metric(name).title} (%)" if name in _IN_PERCENT else metric(name).heading


def _value(cell: Cell, name: str) -> str:
    statistic = cell.metrics.get(name)
    return value(statistic and statistic.times(100.0 if name in _IN_PERCENT else 1.0), cell.n)


def _how_to_read(summary: Summary, bests: Mapping[str, Best]) -> list[str]:
    lines = [
        "Mean ± sample standard deviation over n valid runs. Brackets hold 95 % intervals of a ratio, "
        "which over several cells is their geometric mean."
    ]
    marked = [found for found in bests.values() if found.stands_out]
    if any(found.tested for found in marked):
        lines.append(
            "**Bold** is the best mean of a column, *italic* what is not told apart from it (Welch's or Mann-Whitney's "
            "test, Holm-corrected, 5 %). A column of latencies or throughputs without either tells no cell apart."
        )
    elif marked:
        lines.append("**Bold** is the best of a column; single runs cannot tell it apart from the others.")
    if len(own_latency(summary.cells)) < len(summary.cells):
        lines.append("Under load=burst all requests are sent at once, so latency holds the whole backlog.")
    if "goodput" in summary.metrics:
        lines.append("Goodput counts the requests that were answered within slo.latency_ms, whose share is Within SLO.")
    lines.append("Warm-up latency is the first request of a fresh backend, model load and first compile included.")
    return lines


def _details(summary: Summary, best_cells: Sequence[Cell]) -> list[str]:
    """What stands behind the figures: of every cell, or, where they are many, of those best in a column."""
    shown, note = summary, ""
    if len(summary.cells) > _DETAILED:
        shown = Summary(summary.axes, [cell for cell in summary.cells if any(cell is one for one in best_cells)])
        note = f"Of {len(summary.cells)} cells those that are best in a column. summary.csv has all of them."
    return [
        section("The best cells in detail", note),
        details.percentiles(shown),
        details.stages(shown),
        section("What the slowest requests waited for", bullets(notes.tails(shown))),
        details.steps(shown),
    ]


def _measured_on(records: Sequence[Record]) -> list[str]:
    """Each machine with its versions; several are worth a word, since their numbers do not compare."""
    counts = places(records)
    if len(counts) < 2:
        return [escaped(place) for place in counts]
    warning = "several machines or versions, whose numbers do not compare:"
    return [warning, *(f"{escaped(place)} ({runs(count)})" for place, count in counts.items())]
