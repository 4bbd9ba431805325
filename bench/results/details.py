"""The parts of a summary below its table: where the latency goes, its percentiles, the tail, and drift."""

from collections.abc import Sequence
from typing import Any

from bench.results.effects import effects
from bench.results.metrics import PERCENTILES, STAGES
from bench.results.record import Record
from bench.results.statistics import drift
from bench.results.summary import Cell, Summary
from bench.results.text import ABSENT, escaped, markdown_table, mean_std, shown

_DRIFTING = ("average_latency", "throughput", "warmup_latency")


def label(cell: Cell, summary: Summary) -> str:
    """A cell by its swept axes, and its experiment where there are several."""
    name = [cell.experiment] if len(summary.experiments) > 1 else []
    return ", ".join([*name, *(f"{axis}={shown(value)}" for axis, value in cell.axes.items())])


def percentiles(summary: Summary) -> str:
    """Latency percentiles of each cell; one that the runs cannot support says how many requests it lacks."""
    rows = []
    for cell in summary.cells:
        row = []
        for name in PERCENTILES:
            statistic = cell.metrics.get(f"latency_{name}")
            missing = [_evidence(record).get("percentiles_missing", {}).get(name) for record in _valid(cell)]
            lacking = f"{ABSENT} ({missing[0]} more requests)" if missing and missing[0] else ABSENT
            row.append(mean_std(statistic) if statistic else lacking)
        rows.append(row)
    return _table(summary, [name.replace("_", ".") for name in PERCENTILES], rows, "Latency percentiles (s)")


def stages(summary: Summary) -> str:
    """Mean share of each stage in the latency, of the valid runs."""
    rows = []
    for cell in summary.cells:
        shares = [shares for record in _valid(cell) if (shares := _evidence(record).get("stage_shares"))]
        means = {stage: sum(one[stage] for one in shares) / len(shares) for stage in STAGES if shares}
        rows.append([f"{100 * means[stage]:.1f}" if means else ABSENT for stage in STAGES])
    return _table(summary, [stage.replace("_", " ") for stage in STAGES], rows, "Where the latency goes (%)")


def tails(summary: Summary) -> list[str]:
    """Of each cell with a tail, what its slowest requests waited for, in its first valid run, and what to try."""
    lines = []
    for cell in summary.cells:
        for record in _valid(cell)[:1]:
            tail = _evidence(record).get("tail")
            if tail and tail["stage"]:
                lines.append(f"{escaped(label(cell, summary))}: {tail['sentence']}. Try {tail['advice']}")
    return lines


def drifts(summary: Summary) -> list[str]:
    """Metrics that rise or fall from run to run, in the order in which the runs started."""
    lines = []
    for cell in summary.cells:
        for name in _DRIFTING:
            values = [record.metrics[name] for record in _valid(cell) if name in record.metrics]
            if found := drift(values):
                lines.append(f"drift: {name} {found} – {escaped(label(cell, summary))}")
    return lines


def effects_table(summary: Summary) -> str:
    """What each axis of two values does to the throughput, on average over the others, and pairs of them."""
    if len(summary.experiments) > 1 or len(summary.cells) < 2:
        return ""
    cells = [
        (cell.axes, [record.metrics["throughput"] for record in _valid(cell) if "throughput" in record.metrics])
        for cell in summary.cells
    ]
    rows = []
    for effect in effects(cells):
        change = " and ".join(
            f"{escaped(axis)} {escaped(shown(low))} → {escaped(shown(high))}"
            for axis, (low, high) in zip(effect.axes, effect.levels, strict=True)
        )
        interval = ABSENT if effect.low is None else f"{effect.low:.3f} to {effect.high:.3f}"
        rows.append(["effect" if len(effect.axes) == 1 else "interaction", change, f"{effect.ratio:.3f}", interval])
    if not rows:
        return ""
    header = ["", "change", "throughput ×", "95 % interval"]
    return "Effects of axes with two values\n\n" + markdown_table(header, rows, (2, 3))


def steps(summary: Summary) -> str:
    """A ramp's steps, a row each: of the first valid run of each cell."""
    columns = ("asked_rate", "throughput", "average_latency", "latency_p50", "latency_p99", "max_latency")
    rows = []
    for cell in summary.cells:
        for record in _valid(cell)[:1]:
            for step in _evidence(record).get("steps", []):
                values = [f"{step[name]:.4g}" if name in step else ABSENT for name in columns]
                rows.append([escaped(label(cell, summary)), str(int(step["step"]) + 1), *values])
    if not rows:
        return ""
    header = ["cell", "step", "asked (requests/s)", "samples/s", "mean (s)", "p50 (s)", "p99 (s)", "max (s)"]
    return "Steps of the ramp\n\n" + markdown_table(header, rows, range(1, len(header)))


def _valid(cell: Cell) -> Sequence[Record]:
    return [record for record in cell.records if record.verdict.status == "valid"]


def _evidence(record: Record) -> dict[str, Any]:
    return record.evidence


def _table(summary: Summary, names: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    """A table with the swept axes in front; nothing where no cell has a value."""
    if all(text == ABSENT for row in rows for text in row):
        return ""
    axes = [escaped(axis) for axis in summary.axes]
    several = len(summary.experiments) > 1
    header = ["experiment"] * several + [*axes, *names]
    body = [
        [escaped(text) for text in [cell.experiment] * several + [shown(value) for value in cell.axes.values()]]
        + [*row]
        for cell, row in zip(summary.cells, rows, strict=True)
    ]
    return f"{title}\n\n{markdown_table(header, body, range(len(axes) + several, len(header)))}"
