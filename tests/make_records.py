"""Records as a run writes them, for the tests of what is made from records."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from bench.config import Settings
from bench.job import compose
from bench.results.metrics import run_metrics
from bench.results.record import Record, Status, Verdict, write_record, write_requests
from bench.results.stages import stage_shares
from bench.stamps import STAMPS

SETTINGS: dict[str, Any] = compose().as_mapping()
METRICS = {"warmup_latency": 1.5, "average_latency": 0.25, "throughput": 100.0, "gpu_util": 50.0}
ENVIRONMENT = {
    "cpu": {"model": "Some CPU"},
    "gpu": None,
    "hostname": "host",
    "versions": {"torch": "2.14.1", "python": "3.11.2"},
}
START = datetime(2025, 1, 31, 12, tzinfo=timezone.utc)


def changed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings with other values under dotted keys."""
    values = copy.deepcopy(SETTINGS)
    for key, value in changes.items():
        *groups, last = key.split(".")
        place = values
        for group in groups:
            place = place[group]
        place[last] = value
    return values


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
    settings = Settings.from_mapping(changed(changes or {}))
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


def write_run(directory: Path, record: Record, times_s: Sequence[tuple[float, float]]) -> Record:
    """A run's record with `requests.parquet`: a cold request, then one measured for each (sent, answered) in seconds.

    The metrics of these times are added to the record's own; all stages but the forward pass take no time.
    """
    stamps = np.array([[sent] * 6 + [answered] * 5 for sent, answered in [(0.0, 0.5), *times_s]])
    stamps = ((1 + stamps) * 1e9).astype(np.int64)
    metrics = run_metrics(stamps, record.settings["batch_size"], 0) | record.metrics
    directory.mkdir(parents=True)
    write_requests(directory, {f"{name}_ns": stamps[:, k] for k, name in enumerate(STAMPS)})
    written = replace(record, metrics=metrics, directory=directory, evidence={"stage_shares": stage_shares(stamps[1:])})
    write_record(directory, written)
    return written
