"""summary.md: one sweep for a reader, in a terminal as well as on a forge. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.results import details
from bench.results.details import label
from bench.results.record import Record
from bench.results.summary import Cell, Summary
from bench.results.text import escaped, markdown_table, mean_std, shown

HEADLINE = {
    "warmup_latency": "Warm-up latency (s)",
    "average_latency": "Average latency (s)",
    "throughput": "Throughput (samples/s)",
    "gpu_util": "GPU utilization (%)",
}
_NOTABLE = {  # settings worth a word where they are the same in all runs
    "model": "model.name",
    "batch_size": "batch_size",
    "compile": "compile",
    "num_workers": "num_workers",
    "stream_layout": "stream_layout.name",
    "queue": "queue.name",
    "load": "load.name",
    "device": "device.name",
    "num_iters": "num_iters",
}
_MOST_CELLS = 4  # named one by one in a note
_MOST_NOTES = 20  # lines of one kind; all of them are in runs.csv


def summary_markdown(
    summary: Summary, problems: Sequence[str] = (), interrupted: bool = False, expected: int | None = None
) -> str:
    """Heading, how far the sweep is, table, how to read it, what went wrong, and where it was measured."""
    records = [record for cell in summary.cells for record in cell.records]
    parts = [
        f"# {', '.join(map(escaped, summary.experiments)) or 'No runs'}",
        _progress(records, interrupted, expected),
    ]
    if records:
        parts += [_table(summary), _how_to_read(records), _throughout(summary)]
        parts += [details.percentiles(summary), details.stages(summary), details.steps(summary)]
        parts.append(details.effects_table(summary))
        parts.append(_list("What the slowest requests waited for", details.tails(summary)))
    parts += [
        _list("Failed and invalid runs", _notes(summary, _faults)),
        _list("Warnings", [*_notes(summary, lambda record: record.verdict.warnings), *details.drifts(summary)]),
        _list("Unreadable records", map(escaped, problems)),
        _list("Measured on", _measured_on(records)),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def measured(records: Sequence[Record]) -> Sequence[Record]:
    """The valid runs, or all where none is: one that failed early may not know its machine."""
    return [record for record in records if record.verdict.status == "valid"] or records


def machine(environment: dict[str, Any]) -> str:
    """The machine's name, processor and GPUs, as far as known; empty where nothing is."""
    cpu = environment.get("cpu")
    model = cpu.get("model") if isinstance(cpu, dict) else None
    gpus = environment.get("gpu")
    names = [gpu.get("name") if isinstance(gpu, dict) else gpu for gpu in gpus] if isinstance(gpus, list) else []
    parts = [environment.get("hostname"), model, *names]
    return ", ".join(str(part) for part in parts if part)


def _progress(records: Sequence[Record], interrupted: bool, expected: int | None) -> str:
    """A line where runs are missing, or were when the sweep was stopped."""
    count = _runs(len(records)) if expected is None else f"{len(records)} of {_runs(expected)}"
    if interrupted:
        return f"**Interrupted after {count}.**"
    return f"{count} so far." if expected is not None and len(records) < expected else ""


def _table(summary: Summary) -> str:
    several = len(summary.experiments) > 1
    verdicts = any(cell.verdict != "valid" for cell in summary.cells)
    header = ["experiment"] * several + [escaped(label) for label in summary.axes]
    numbers = {
        i + several
        for i, label in enumerate(summary.axes)
        if all(isinstance(cell.axes[label], (int, float, type(None))) for cell in summary.cells)
    }
    numbers |= set(range(len(header), len(header) + len(HEADLINE) + 1))
    header += [*HEADLINE.values(), "n"] + ["verdict"] * verdicts
    rows = []
    for cell in summary.cells:
        row = [cell.experiment] * several + [shown(value) for value in cell.axes.values()]
        row += [_value(cell, name) for name in HEADLINE]
        rows.append([escaped(text) for text in [*row, str(cell.n), *[cell.explained] * verdicts]])
    return markdown_table(header, rows, numbers)


def _value(cell: Cell, name: str) -> str:
    statistic = cell.metrics.get(name)
    fewer = f" (n={statistic.n})" if statistic and statistic.n < cell.n else ""
    return mean_std(statistic) + fewer


def _how_to_read(records: Sequence[Record]) -> str:
    text = "Mean ± sample standard deviation over n valid runs."
    if any(_load(record) == "burst" for record in records):
        text += " Under load=burst all requests are sent at once, so latency holds the whole backlog."
    return text


def _throughout(summary: Summary) -> str:
    settings = summary.cells[0].settings
    same = [f"{name}={shown(settings.get(key))}" for name, key in _NOTABLE.items() if name not in summary.axes]
    return f"In all runs: {', '.join(map(escaped, same))}." if same else ""


def _load(record: Record) -> Any:
    load = record.settings.get("load")
    return load.get("name") if isinstance(load, dict) else load


def _faults(record: Record) -> list[str]:
    return [f"{record.verdict.status.upper()}: {reason}" for reason in record.reasons]


def _notes(summary: Summary, texts: Callable[[Record], Sequence[str]]) -> list[str]:
    """Each distinct text once, with the cells it was said of and of how many of their runs.

    Texts that differ in their numbers only are one, shown with those of its first run.
    """
    places: dict[str, tuple[str, Counter[str]]] = {}
    for cell in summary.cells:
        for text in (text for record in cell.records for text in texts(record)):
            kind = re.sub(r"[\d.]+", "0", text)
            places.setdefault(kind, (text, Counter()))[1][label(cell, summary)] += 1
    return [f"{escaped(text)} – {_where(counts, summary)}" for text, counts in places.values()]


def _where(counts: Counter[str], summary: Summary) -> str:
    if len(counts) > 1 and len(counts) == len(summary.cells):
        return f"all cells ({_runs(counts.total())})"
    if len(counts) > _MOST_CELLS:
        return f"{len(counts)} of {len(summary.cells)} cells ({_runs(counts.total())})"
    return "; ".join(f"{escaped(place)} ({_runs(count)})" for place, count in counts.items())


def _runs(count: int) -> str:
    return f"{count} run" + "s" * (count != 1)


def _measured_on(records: Sequence[Record]) -> list[str]:
    """Each machine with its versions; several are worth a word, since their numbers do not compare."""
    counts: Counter[str] = Counter()
    for record in measured(records):
        versions = record.environment.get("versions")
        words = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
        if place := "; ".join(filter(None, [machine(record.environment), ", ".join(words)])):
            counts[place] += 1
    if len(counts) < 2:
        return [escaped(place) for place in counts]
    warning = "several machines or versions, whose numbers do not compare:"
    return [warning, *(f"{escaped(place)} ({_runs(count)})" for place, count in counts.items())]


def _list(title: str, lines: Iterable[str]) -> str:
    lines = list(lines)
    if not lines:
        return ""
    if len(lines) > _MOST_NOTES:
        lines[_MOST_NOTES:] = [f"… and {len(lines) - _MOST_NOTES} more, see runs.csv"]
    return f"{title}:\n\n" + "\n".join(f"- {line}" for line in lines)
