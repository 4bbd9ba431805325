"""Which runs of a sweep are there already, and whether what is there belongs to what is asked for."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cells import AskedRun
from bench.config import Settings
from bench.errors import BenchError, ConfigError
from bench.invocation import Invocation
from bench.results.machines import differences
from bench.results.manifest import MANIFEST_FILE, Manifest, numbers, read_manifest
from bench.results.record import RECORD_FILE, Record
from bench.results.records import read_records, subdirectories
from bench.results.text import shown
from bench.telemetry.environment import environment

_MOST = 5  # differences that are spelled out


@dataclass(frozen=True)
class Standing:
    """What a sweep's directory holds of the runs that are asked for.

    Attributes:
        done: how many runs of each fingerprint are not to be run again.
        extra: records beyond what was asked for, which `precision` made, and which are not to be run again.
        again: those of them that are.
        next_number: of the first directory that is free.
    """

    done: Counter[str]
    extra: int
    again: list[Record]
    next_number: int


NOTHING = Standing(Counter(), 0, [], 0)


def standing(directory: Path, runs: Sequence[AskedRun]) -> Standing:
    """What of `runs` is there, those that are to be tried again left out.

    Raises:
        ConfigError: when there is no sweep, or one of another machine, other versions or other settings.
    """
    settings = runs[0].settings
    _check_is_sweep(directory, settings)
    records, _ = read_records(directory)  # what cannot be read is run again
    try:
        manifest = read_manifest(directory)
    except BenchError:
        manifest = None
    extra = _extra(records, runs)
    asked = [record for record in records if record not in extra]
    problems = [*_other_machine(records), *_other_settings(directory, asked, manifest, runs)]
    if problems:
        raise ConfigError([f"resume={settings.resume}: cannot go on with {directory}", *problems])
    again = settings.retry or ()
    done = Counter(record.fingerprint for record in asked if record.verdict.status not in again)
    tried = [record for record in extra if record.verdict.status in again]
    return Standing(done, len(extra) - len(tried), tried, next_number(directory))


def next_number(directory: Path) -> int:
    """Number of the first directory below `directory` that no run has had."""
    numbered = [int(path.name) for path in subdirectories(directory) if path.name.isdecimal()]
    return 1 + max(numbered, default=-1)


def is_sweep(directory: Path) -> bool:
    """Whether a sweep was started there."""
    return (directory / MANIFEST_FILE).exists() or any(
        (path / RECORD_FILE).exists() for path in subdirectories(directory)
    )


def _check_is_sweep(directory: Path, settings: Settings) -> None:
    key = f"resume={settings.resume}"
    if settings.resume == "last" and not is_sweep(directory):
        raise ConfigError(
            [f"{key}: no sweep of experiment {settings.experiment} in {directory.parent}. Leave it out to start one"]
        )
    if not directory.is_dir():
        raise ConfigError([f"{key}: no such directory. Give a sweep's directory, or resume=last for the newest"])
    if (directory / RECORD_FILE).exists():
        raise ConfigError([f"{key}: a single run, of which nothing can be missing. Leave it out to run it once more"])
    if not is_sweep(directory):
        raise ConfigError(
            [f"{key}: no sweep there. Give a sweep's directory (it holds {MANIFEST_FILE}), or resume=last"]
        )


def _extra(records: Sequence[Record], runs: Sequence[AskedRun]) -> list[Record]:
    """Those that `precision` made: repeats of an asked cell, beyond all that are asked for."""
    last: dict[str, int] = {}
    for run in runs:
        last[run.settings.cell] = max(run.settings.repeat, last.get(run.settings.cell, 0))
    return [
        record
        for record in records
        if (record.settings.get("precision") or {}).get("relative_ci") is not None
        and record.settings["repeat"] > last.get(record.cell, record.settings["repeat"])
    ]


def _other_machine(records: Sequence[Record]) -> list[str]:
    """A line for each way in which a record's machine or versions differ from what is here."""
    here = environment()
    found = {
        f"{name}: {value} in the sweep, {value_here} here": None
        for record in records
        for name, value, value_here in differences(record.environment, here)
    }
    if not found:
        return []
    advice = "Numbers of two machines or versions do not belong in one table: finish it there, or start a new sweep"
    return [*_few(list(found)), advice]


def _other_settings(
    directory: Path, records: Sequence[Record], manifest: Manifest | None, runs: Sequence[AskedRun]
) -> list[str]:
    """A line for each way in which the sweep's runs are not among those that are asked for."""
    asked = Manifest.of(Invocation([], [], ""), [run.settings for run in runs])
    there = {record.cell: numbers(record.settings) for record in records}
    counts = Counter(record.fingerprint for record in records)
    names = {record.experiment for record in records}
    if manifest is not None:
        there = {cell.cell: cell.settings for cell in manifest.cells} | there
        counts |= manifest.runs
        names.add(manifest.experiment)
    lines = [f"experiment: {name} in the sweep, {asked.experiment} in this command" for name in names]
    lines = [line for line, name in zip(lines, names, strict=True) if name != asked.experiment]
    flats = [cell.settings for cell in asked.cells]
    known = {cell.cell for cell in asked.cells}
    for identity, settings in there.items():
        if identity not in known:
            lines += _closest(settings, flats)
    for fingerprint, count in (counts - asked.runs).items():
        identity, _, repeat = fingerprint.rpartition("-")
        if identity in known:
            lines.append(f"repeat={repeat}: {count} more in the sweep than in this command")
    if not lines:
        return []
    return [*_few(list(dict.fromkeys(lines))), *_advice(manifest, directory)]


def _closest(settings: Mapping[str, Any], flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """How a cell of the sweep differs from that of this command which is most like it."""
    differing = [
        [key for key in {**settings, **flat} if json.dumps(settings.get(key)) != json.dumps(flat.get(key))]
        for flat in flats
    ]
    best = min(range(len(flats)), key=lambda k: len(differing[k]))
    return [f"{key}={shown(settings.get(key))} in the sweep, {_given(key, flats)}" for key in differing[best]]


def _given(key: str, flats: Sequence[Mapping[str, Any]]) -> str:
    values = list(dict.fromkeys(shown(flat[key]) for flat in flats if key in flat))
    return f"{key}={','.join(values)} in this command" if values else "no such key in this command"


def _advice(manifest: Manifest | None, directory: Path) -> list[str]:
    advice = "Within a sweep settings cannot change, and none can be taken out. Leave resume out for a new sweep"
    if manifest is None:
        return [advice]
    command = manifest.invocation.finishing(directory, [], here=os.getcwd())
    return [f"{advice}, or finish this one with its own command:", f"    {command}"]


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST
    return [*lines[:_MOST], *([f"… and {more} more differences"] if more > 0 else [])]
