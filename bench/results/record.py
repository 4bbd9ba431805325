"""One run's record on disk: `metrics.json`, and `requests.parquet` with a row a request.

`metrics.json` is written last and by rename: where it lies, the record is whole.
"""

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from bench.errors import BenchError
from bench.results.files import replacing, write_text

FORMAT = 1  # of metrics.json; a change of meaning makes it another number
RECORD_FILE = "metrics.json"
REQUESTS_FILE = "requests.parquet"

Status = Literal["valid", "invalid", "failed"]


class RecordError(BenchError):
    """A record that cannot be read or written; the message names the file and the reason."""


@dataclass(frozen=True)
class Verdict:
    """What a run's own checks say of its numbers. `reasons` are of an invalid or failed run."""

    status: Status
    reasons: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class Record:
    """All that is known of one run. An unknown metric is absent, never 0 or NaN."""

    experiment: str
    cell: str  # identity of all runs that differ in `repeat` only
    fingerprint: str  # identity of this run
    job: int | None  # Hydra's number of it within its sweep; None for a single run
    started_at: str  # ISO 8601, UTC, microseconds
    settings: dict[str, Any]  # nested, as Settings.as_mapping() gives them
    choices: dict[str, str]  # the option taken of each Hydra group
    environment: dict[str, Any]
    backend: dict[str, Any]  # what the backend says it really ran; empty if it never said
    metrics: dict[str, float]
    evidence: dict[str, Any]  # what explains the metrics: shares of the stages, the tail, a ramp's steps
    verdict: Verdict
    error: dict[str, Any] | None  # process, phase, reason, traceback, log
    directory: Path  # where the record lies; not in the file

    @property
    def started(self) -> datetime:
        """`started_at` as a time that can be compared."""
        return _time(self.started_at)

    @property
    def reasons(self) -> list[str]:
        """Why the run does not count; empty for a valid one, never empty for another."""
        if self.verdict.status == "valid" or self.verdict.reasons:
            return self.verdict.reasons
        return [str((self.error or {}).get("reason") or "no reason recorded")]


def write_record(directory: Path, record: Record) -> Path:
    """Write `metrics.json` into `directory` and return its path. It must be the run's last file.

    Raises:
        RecordError: for a value that JSON or this format does not know, NaN and infinity among them.
        OSError: when it cannot be written; then no `metrics.json` is there that was not before.
    """
    file = Path(directory) / RECORD_FILE
    try:
        values = {"format": FORMAT, **asdict(record), "metrics": _metrics(record.metrics)}
        del values["directory"]
        _parse(values, file.parent)
        # No newline at the end: so each shorter file is one that does not parse.
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, OverflowError) as error:
        raise RecordError(f"{file}: not written: {error}") from error
    write_text(file, text, durable=True)
    return file


def read_record(path: Path) -> Record:
    """The record in file `path`, or in directory `path`.

    Raises:
        RecordError: when it is missing, cut off, of another format, or a key is missing or of another type.
    """
    path = Path(path)
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse, object_pairs_hook=_part)
        return _parse(values, file.parent)
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"{file}: not whole or not JSON: {error}") from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise RecordError(f"{file}: {error}") from error


def write_requests(directory: Path, columns: Mapping[str, Any]) -> Path:
    """Write `requests.parquet`: a column for each array of `columns`, all of one length, a row a request."""
    import pyarrow
    import pyarrow.parquet

    file = Path(directory) / REQUESTS_FILE
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    with replacing(file, durable=True) as temporary:
        pyarrow.parquet.write_table(table, temporary)
    return file


_KEYS: dict[str, tuple[type, ...]] = {
    "format": (int,),
    "experiment": (str,),
    "cell": (str,),
    "fingerprint": (str,),
    "job": (int, NoneType),
    "started_at": (str,),
    "settings": (dict,),
    "choices": (dict,),
    "environment": (dict,),
    "backend": (dict,),
    "metrics": (dict,),
    "evidence": (dict,),
    "verdict": (dict,),
    "error": (dict, NoneType),
}
# What the tables cannot do without; other settings may differ between versions of the program.
_SETTINGS: dict[str, tuple[type, ...]] = {
    "batch_size": (int,),
    "compile": (bool,),
    "repeat": (int,),
}
_VERDICT: dict[str, tuple[type, ...]] = {"status": (str,), "reasons": (list,), "warnings": (list,)}


def _parse(values: Any, directory: Path) -> Record:
    """The record that `values` describes, or a ValueError that names the wrong key."""
    if not isinstance(values, dict):
        raise ValueError("no record: not a mapping of keys")
    if "format" in values and values["format"] != FORMAT:
        raise ValueError(f"record format {values['format']!r}; this version reads format {FORMAT}")
    _require("", values, _KEYS)
    _require("settings.", values["settings"], _SETTINGS)
    _require("verdict.", values["verdict"], _VERDICT)
    verdict = Verdict(**{key: values["verdict"][key] for key in _VERDICT})
    if verdict.status not in ("valid", "invalid", "failed"):
        raise ValueError(f"verdict.status={verdict.status!r}: must be valid, invalid or failed")
    if not all(isinstance(text, str) for text in (*verdict.reasons, *verdict.warnings)):
        raise ValueError("verdict: reasons and warnings must be lists of texts")
    _time(values["started_at"])
    for name in ("stage_shares", "percentiles_missing"):
        _numbers(f"evidence.{name}", values["evidence"].get(name, {}))
    known = {key: values[key] for key in _KEYS if key != "format"}
    return Record(**known | {"metrics": _metrics(values["metrics"]), "verdict": verdict, "directory": directory})


_parts: dict[bytes, dict[str, Any]] = {}  # of all records read so far


def _part(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Equal ones without measured numbers are one: most of what a sweep's records hold is the same."""
    made = {sys.intern(key): value for key, value in pairs}
    if any(isinstance(value, float) for value in made.values()):
        return made
    return _parts.setdefault(hashlib.blake2b(repr(pairs).encode(), digest_size=16).digest(), made)


def _require(prefix: str, values: dict[str, Any], keys: dict[str, tuple[type, ...]]) -> None:
    missing = [prefix + key for key in keys if key not in values]
    if missing:
        raise ValueError(f"no such key: {', '.join(missing)}")
    for key, kinds in keys.items():
        value = values[key]
        # A bool is an int to Python, not to a reader of the record.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            raise ValueError(f"{prefix}{key}: must be {wanted}, not {type(value).__name__}")


def _numbers(key: str, values: Any) -> None:
    """What the tables reckon with: finite numbers by name, or null for what is not known."""
    if not isinstance(values, dict):
        raise ValueError(f"{key}: must be a mapping of names to numbers")
    _metrics({name: value for name, value in values.items() if value is not None}, f"{key}.")


def _metrics(values: dict[str, Any], prefix: str = "metrics.") -> dict[str, float]:
    """The same as floats; numpy's numbers are welcome, what is not finite is not."""
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{prefix}{key}={value!r}: must be a finite number; leave out what is unknown")
    return {key: float(value) for key, value in values.items()}


def _time(text: str) -> datetime:
    # Python 3.10 does not read the Z.
    time = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    if time.tzinfo is None:
        raise ValueError(f"started_at={text!r}: must name its time zone, as in 2025-01-31T12:00:00.000000+00:00")
    return time


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number that a record may hold")
