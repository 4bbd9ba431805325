"""Lists below a summary's tables: each thing once, and of which cells it was said. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.results.details import label
from bench.results.record import Record
from bench.results.statistics import drift
from bench.results.summary import Cell, Summary
from bench.results.text import escaped

_DRIFTING = ("average_latency", "throughput", "warmup_latency")
_MOST_CELLS = 4  # named one by one in a note
_MOST_NOTES = 50  # lines of one kind; all of them are in runs.csv


def faults(summary: Summary) -> list[str]:
    """Why runs do not count."""
    return _of_runs(summary, lambda record: [f"{record.verdict.status.upper()}: {reason}" for reason in record.reasons])


def warnings(summary: Summary) -> list[str]:
    """What a reader of the runs' numbers should know."""
    return _of_runs(summary, lambda record: record.verdict.warnings)


def tails(summary: Summary) -> list[str]:
    """What the slowest requests of a cell waited for, and what to try, where at least half of its runs have a tail.

    The stage is the one that most of the runs name, the sentence that of the middle one of these.
    """
    said = []
    for cell in summary.cells:
        found = [tail for record in cell.valid if (tail := record.evidence.get("tail"))]
        stages = Counter(tail["stage"] for tail in found if tail["stage"])
        if 2 * stages.total() < max(1, len(found)):
            continue
        stage = stages.most_common(1)[0][0]
        tail = _middle([tail for tail in found if tail["stage"] == stage])
        said.append((cell, f"{tail['sentence']}. Try {tail['advice']}", stages[stage]))
    return _grouped(said, summary)


def drifts(summary: Summary) -> list[str]:
    """Metrics that rise or fall from run to run, in the order in which the runs started."""
    lines = []
    for cell in summary.cells:
        for name in _DRIFTING:
            if found := drift(cell.values(name)):
                lines.append(f"drift: {name} {found} – {escaped(label(cell, summary))}")
    return lines


def runs(count: int) -> str:
    return f"{count} run" + "s" * (count != 1)


def bullets(lines: Iterable[str]) -> str:
    """A list of `lines`, which are Markdown already; the first of them where they are many."""
    lines = list(lines)
    if len(lines) > _MOST_NOTES:
        lines[_MOST_NOTES:] = [f"… and {len(lines) - _MOST_NOTES} more, see runs.csv"]
    return "\n".join(f"- {line}" for line in lines)


def _middle(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The tail whose length, the slowest requests beside ordinary ones, is in the middle of `found`."""

    def length(tail: dict[str, Any]) -> float:
        return float(tail["slow"]["latency"] / max(1e-9, tail["middle"]["latency"]))

    return sorted(found, key=length)[(len(found) - 1) // 2]


def _of_runs(summary: Summary, texts: Callable[[Record], Sequence[str]]) -> list[str]:
    said = [(cell, text, 1) for cell in summary.cells for record in cell.records for text in texts(record)]
    return _grouped(said, summary)


def _grouped(said: Iterable[tuple[Cell, str, int]], summary: Summary) -> list[str]:
    """Each distinct text once, with the cells it was said of and of how many of their runs.

    Texts that differ in their numbers only are one, shown with those of its first cell.
    """
    places: dict[str, tuple[str, Counter[str]]] = {}
    for cell, text, count in said:
        kind = re.sub(r"[\d.]+", "0", text)
        places.setdefault(kind, (text, Counter()))[1][label(cell, summary)] += count
    return [f"{escaped(text)} – {_where(counts, summary)}" for text, counts in places.values()]


def _where(counts: Counter[str], summary: Summary) -> str:
    if len(counts) > 1 and len(counts) == len(summary.cells):
        return f"all cells ({runs(counts.total())})"
    if len(counts) > _MOST_CELLS:
        return f"{len(counts)} of {len(summary.cells)} cells ({runs(counts.total())})"
    return "; ".join(f"{escaped(place)} ({runs(count)})" for place, count in counts.items())
