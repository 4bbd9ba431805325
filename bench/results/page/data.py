"""What a sweep's page shows, as plain JSON values. Pure.

Every number is the one in summary.csv, and every text of a number is the one in the tables.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from bench.results.answer import answer
from bench.results.best import best
from bench.results.conditions import conditions
from bench.results.details import label as cell_label
from bench.results.headline import columns, rated
from bench.results.machines import places
from bench.results.metric_names import metric
from bench.results.metrics import PERCENTILES, STAGES
from bench.results.page.curves import LEFT_OUT, MOST_CELLS
from bench.results.record import Record
from bench.results.stage_looks import STAGE_LOOKS
from bench.results.statistics import Statistic
from bench.results.summary import Cell, Summary, rank
from bench.results.telemetry_rows import ROWS
from bench.results.text import mean_std, shown, significant

State = Literal["running", "interrupted", "ended"]
Curves = Mapping[int, Mapping[str, Any]]

_OF_A_RUN = ("throughput", "average_latency", "latency_p99", "warmup_latency")  # a run's own metrics on the page


@dataclass(frozen=True)
class Progress:
    """How far a sweep is: `expected` runs in all, None where nobody knows."""

    state: State
    done: int
    expected: int | None
    written_at: str  # ISO 8601, UTC


def page_data(
    summary: Summary, problems: Sequence[str], progress: Progress, base: Path, curves: Curves
) -> dict[str, Any]:
    """Everything on the page; links to runs are relative to `base`, `curves` go by the places of their cells."""
    records = [record for cell in summary.cells for record in cell.records]
    names = dict(_identities(summary.cells))
    common = _common([cell.settings for cell in summary.cells])
    return {
        "title": ", ".join(summary.experiments) or "No runs",
        "answer": answer(summary),
        "progress": vars(progress),
        "experiments": summary.experiments,
        "axes": [_axis(axis, summary) for axis in summary.axes],
        "metrics": [{"name": name, **_label(name)} for name in summary.metrics],
        "columns": _columns(summary),
        "stages": {stage: _stage(stage) for stage in STAGES},
        "percentiles": PERCENTILES,
        "marks": _marks(summary, names),
        "telemetry": _telemetry(curves),
        "curves_left_out": LEFT_OUT if len(summary.cells) > MOST_CELLS else "",
        "cells": [
            _cell(cell, names[id(cell)], summary, common, base) | {"curves": curves.get(place)}
            for place, cell in enumerate(summary.cells)
        ],
        "settings": {key: shown(value) for key, value in common.items()},
        "slo_ms": _number(common.get("slo.latency_ms")),
        "burst": any(cell.settings.get("load.name") == "burst" for cell in summary.cells),
        "problems": list(problems),
        "conditions": conditions(summary) if records else [],
        "machines": dict(places(records)),
    }


def _stage(name: str) -> dict[str, str]:
    return {"title": metric(name).title, "name": metric(name).explained, **vars(STAGE_LOOKS[name])}


def _label(name: str) -> dict[str, Any]:
    found = metric(name)
    return {"label": found.title, "heading": found.heading, "group": found.group}


def _columns(summary: Summary) -> list[str]:
    """The metrics of the table: those of summary.md, the first of which the charts begin with."""
    found = [name for name in columns(summary) if name in summary.metrics]
    return sorted(found, key=lambda name: name != "throughput")


def _telemetry(curves: Curves) -> list[dict[str, Any]]:
    """The axes of telemetry that some run has a column of."""
    there = {name for one in curves.values() for name in one.get("telemetry", ())}
    rows = [(row, [vars(column) for column in row.columns if column.name in there]) for row in ROWS]
    return [{"axis": row.axis, "top": row.top, "columns": columns} for row, columns in rows if columns]


def _marks(summary: Summary, names: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """Of each column in which one stands out: the best cell, and those not told apart from it, as in summary.md."""
    marks = {}
    for name in filter(rated, _columns(summary)):
        found = best(summary.cells, name)
        if found is not None and found.stands_out and found.others:
            marks[name] = {"best": names[id(found.cell)], "ties": [names[id(cell)] for cell in found.ties]}
    return marks


def _axis(axis: str, summary: Summary) -> dict[str, Any]:
    """An axis and its values in order, which the cells name by their place."""
    values = sorted((cell.axes[axis] for cell in summary.cells), key=rank)
    texts = {shown(value): value for value in values}
    return {"name": axis, "values": list(texts), "numbers": [_number(value) for value in texts.values()]}


def _identities(cells: Sequence[Cell]) -> list[tuple[int, str]]:
    """Each cell, by its `id`, with a name for links: its fingerprint, and which where experiments share it."""
    seen: Counter[str] = Counter()
    named = []
    for cell in cells:
        name = cell.records[0].cell
        seen[name] += 1
        named.append((id(cell), name if seen[name] == 1 else f"{name}-{seen[name]}"))
    return named


def _cell(cell: Cell, identity: str, summary: Summary, common: Mapping[str, Any], base: Path) -> dict[str, Any]:
    valid = [record for record in cell.records if record.verdict.status == "valid"]
    tail = next((tail for record in valid if (tail := record.evidence.get("tail"))), None) or {}
    missing = next((record.evidence.get("percentiles_missing") for record in valid), None) or {}
    return {
        "id": identity,
        "label": cell_label(cell, summary),
        "experiment": cell.experiment,
        "axes": [shown(value) for value in cell.axes.values()],
        "n": cell.n,
        "status": _status(cell),
        "verdict": cell.verdict,
        "metrics": {name: _statistic(statistic) for name, statistic in cell.metrics.items()},
        "settings": {key: shown(value) for key, value in cell.settings.items() if key not in common},
        "shares": _mean_shares(valid),
        "tail": {key: tail.get(key) or "" for key in ("sentence", "advice")},
        "missing": missing,
        "notes": _notes(cell.records),
        "runs": _runs(cell.records, base),
    }


def _status(cell: Cell) -> str:
    if cell.n == 0:
        return cell.verdict.lower()
    if cell.n < len(cell.records):
        return "partial"
    return "warnings" if any(record.verdict.warnings for record in cell.records) else "valid"


def _statistic(statistic: Statistic) -> list[Any]:
    """Mean, standard deviation, n, and the text of the tables."""
    return [_number(statistic.mean), _number(statistic.std), statistic.n, mean_std(statistic)]


def _mean_shares(valid: Sequence[Record]) -> dict[str, float]:
    """Mean share of each stage in the latency."""
    found = [shares for record in valid if (shares := record.evidence.get("stage_shares"))]
    return {stage: sum(shares[stage] for shares in found) / len(found) for stage in STAGES} if found else {}


def _notes(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Reasons and warnings, each kind once with its first text; those that differ in numbers only are one kind."""
    notes: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        texts = [(record.verdict.status, text) for text in record.reasons]
        for kind, text in [*texts, *(("warning", text) for text in record.verdict.warnings)]:
            key = (kind, re.sub(r"[\d.]+", "0", text))
            notes.setdefault(key, {"kind": kind, "text": text, "runs": 0})["runs"] += 1
    return list(notes.values())


def _runs(records: Sequence[Record], base: Path) -> list[dict[str, Any]]:
    """A cell's runs, oldest first; the traceback of the first of each failure only, since they are long."""
    runs, told = [], set()
    for record in records:
        place = record.directory.relative_to(base).as_posix()
        run = {
            "name": record.directory.name if place == "." else place,
            "link": "./" if place == "." else f"./{quote(place, safe='/')}/",
            "repeat": record.settings["repeat"],
            "started_at": record.started_at,
            "status": record.verdict.status,
            "metrics": {k: _number(record.metrics[k]) for k in _OF_A_RUN if k in record.metrics},
            "texts": {k: significant(record.metrics[k], 4) for k in _OF_A_RUN if k in record.metrics},
        }
        error = record.error or {}
        if error.get("traceback") and tuple(record.reasons) not in told:
            told.add(tuple(record.reasons))
            run["traceback"] = str(error["traceback"])
        runs.append(run)
    return runs


def _common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that are the same in all cells."""
    if not settings:
        return {}
    texts = [{key: shown(value) for key, value in one.items()} for one in settings]
    return {key: settings[0][key] for key in texts[0] if all(one.get(key) == texts[0][key] for one in texts)}


def _number(value: Any) -> float | int | None:
    """A number that JSON knows, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
