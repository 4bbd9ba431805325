"""`manifest.json`: which runs a sweep's command asks for, so that what is missing can be told from what is there."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from bench.config import NO_NUMBER, Settings, flatten
from bench.errors import BenchError
from bench.invocation import RETRIED, Invocation
from bench.results.files import write_text

if TYPE_CHECKING:
    from bench.results.record import Record

MANIFEST_FILE = "manifest.json"
FORMAT = 1
_LOCK_FILE = ".lock"


@dataclass(frozen=True)
class AskedCell:
    """A cell that a sweep asks for: `repeats` names each run of it; one asked for twice stands there twice."""

    cell: str
    settings: dict[str, Any]  # flattened, those that can change a number
    repeats: list[int]


@dataclass(frozen=True)
class Manifest:
    """What a sweep's command asks for, and that command."""

    invocation: Invocation
    experiment: str
    cells: list[AskedCell]

    @classmethod
    def of(cls, invocation: Invocation, runs: Sequence[Settings]) -> "Manifest":
        """Of all runs that a command asks for, at least one."""
        cells: dict[str, AskedCell] = {}
        for settings in runs:
            if settings.cell not in cells:
                cells[settings.cell] = AskedCell(settings.cell, numbers(settings.as_mapping()), [])
            cells[settings.cell].repeats.append(settings.repeat)
        return cls(invocation, runs[0].experiment, list(cells.values()))

    @property
    def runs(self) -> Counter[str]:
        """How many runs of each fingerprint are asked for."""
        return Counter(f"{cell.cell}-{repeat}" for cell in self.cells for repeat in cell.repeats)

    def standing(self, records: Sequence["Record"]) -> list["Record"]:
        """`records`, oldest first, less those that a retry replaced: the oldest that is not valid, where there are
        more than were asked for."""
        asked, there = self.runs, Counter(record.fingerprint for record in records)
        surplus = {fingerprint: count - max(1, asked[fingerprint]) for fingerprint, count in there.items()}
        kept = []
        for record in records:
            if record.verdict.status != "valid" and surplus[record.fingerprint] > 0:
                surplus[record.fingerprint] -= 1
            else:
                kept.append(record)
        return kept

    def missing(self, records: Sequence["Record"]) -> Counter[str]:
        """How many runs of each fingerprint have no record among the standing `records`."""
        return self.runs - Counter(record.fingerprint for record in records)

    def unfinished(self, directory: Path, records: Sequence["Record"], *, here: str | None = None) -> str:
        """What the sweep lacks and the command that finishes it; empty where all of its runs are valid."""
        count = self.missing(records).total()
        counts = {"missing": count} if count else {}
        for status in RETRIED:
            if found := sum(record.verdict.status == status for record in records):
                counts[status] = found
        if not counts:
            return ""
        words = ", ".join(f"{count} {status}" for status, count in counts.items())
        retry = [status for status in RETRIED if status in counts]
        command = self.invocation.finishing(directory, retry, here=here)
        return f"of {count + len(records)} runs: {words}. This finishes the sweep:\n    {command}"


def numbers(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, nested, that can change a number, flattened; all but `repeat`."""
    return flatten({key: value for key, value in settings.items() if key not in (*NO_NUMBER, "repeat")})


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write it; settings that all cells share stand there once."""
    flats = [cell.settings for cell in manifest.cells]
    shared = {key: value for key, value in flats[0].items() if all(_same(flat, key, value) for flat in flats)}
    values = {
        "format": FORMAT,
        **asdict(manifest.invocation),
        "experiment": manifest.experiment,
        "settings": shared,
        "cells": [
            asdict(cell) | {"settings": {key: value for key, value in cell.settings.items() if key not in shared}}
            for cell in manifest.cells
        ],
    }
    write_text(directory / MANIFEST_FILE, json.dumps(values, indent=1, ensure_ascii=False), durable=True)


def read_manifest(directory: Path) -> Manifest | None:
    """The sweep's; None where there is none.

    Raises:
        BenchError: when it is not whole or of another format.
    """
    file = directory / MANIFEST_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']!r}; this version reads format {FORMAT}")
        invocation = Invocation(*(values[key] for key in ("program", "arguments", "working_directory")))
        cells = [
            AskedCell(str(cell["cell"]), values["settings"] | cell["settings"], [int(k) for k in cell["repeats"]])
            for cell in values["cells"]
        ]
        return Manifest(invocation, str(values["experiment"]), cells)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BenchError(f"{file}: not a whole manifest: {error}. Remove it; the records tell all but this") from error


def lock(directory: Path) -> FileLock:
    """Hold the sweep: one command at a time runs in its directory. It ends with the process, however that ends.

    Raises:
        BenchError: when another command holds it.
    """
    held = FileLock(directory / _LOCK_FILE)
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise BenchError(f"{directory}: another command is running this sweep. Wait for its end, or stop it") from None
    return held


def is_running(directory: Path) -> bool:
    """Whether a command holds the sweep now."""
    if not os.access(directory / _LOCK_FILE, os.W_OK):
        return False
    try:
        lock(directory).release()
    except BenchError:
        return True
    return False


def _same(flat: dict[str, Any], key: str, value: Any) -> bool:
    return key in flat and json.dumps(flat[key]) == json.dumps(value)  # 1, 1.0 and true are equal to Python
