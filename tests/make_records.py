"""Records as a run writes them, for the tests of what is made from records."""

import copy
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from bench.config import Settings
from bench.job import compose
from bench.results.record import Record, Status, Verdict, write_record

SETTINGS: dict[str, Any] = compose().as_mapping()
METRICS = {"warmup_latency": 1.5, "average_latency": 0.25, "throughput": 100.0, "gpu_util": 50.0}
ENVIRONMENT = {
    "cpu": {"model": "Some CPU"},
    "gpu": None,
    "hostname": "host",
    "versions": {"torch": "2.14.1", "python": "3.11.2"},
}
START = datetime(2025, 1, 31, 12, tzinfo=timezone.utc)


def make_record(
    changes: Mapping[str, Any] | None = None,
    *,
    metrics: Mapping[str, float] | None = None,
    status: Status = "valid",
    reasons: list[str] | None = None,
    warnings: list[str] | None = None,
    seconds: float = 0,
    **others: Any,
) -> Record:
    """A record of the default settings but for `changes` (dotted keys), started `seconds` after START."""
    values = copy.deepcopy(SETTINGS)
    for key, value in (changes or {}).items():
        *groups, last = key.split(".")
        place = values
        for group in groups:
            place = place[group]
        place[last] = value
    settings = Settings.from_mapping(values)
    return Record(
        **{
            "experiment": settings.experiment,
            "cell": settings.cell,
            "fingerprint": settings.fingerprint,
            "job": None,
            "started_at": (START + timedelta(seconds=seconds)).isoformat(timespec="microseconds"),
            "settings": settings.as_mapping(),
            "choices": {"model": settings.model.name},
            "environment": copy.deepcopy(ENVIRONMENT),
            "backend": {},
            "evidence": {},
            "metrics": dict(METRICS if metrics is None else metrics),
            "verdict": Verdict(status, reasons or [], warnings or []),
            "error": None,
            "directory": Path(),
        }
        | others
    )


def write_sweep(sweep_dir: Path, *records: Record) -> Path:
    """Each record in a directory of its own below `sweep_dir`."""
    for i, record in enumerate(records):
        directory = sweep_dir / str(i)
        directory.mkdir(parents=True)
        write_record(directory, record)
    return sweep_dir
