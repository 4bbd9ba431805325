"""One run: from settings to a record on disk. The only module that knows the run's directory."""

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.calibration import harness_overhead_us
from bench.config import Settings
from bench.measure import Outcome, Progress, measure
from bench.results.checks import judge
from bench.results.metrics import run_metrics
from bench.results.overlap import overlap_metrics
from bench.results.record import Record, Verdict, write_record, write_requests
from bench.stamps import COMPLETED, SENT, STAMPS
from bench.telemetry.environment import environment
from bench.telemetry.sampler import means, write_telemetry


@dataclass(frozen=True)
class Job:
    """What Hydra knows of a run: its number in the sweep (None for a single run), the groups chosen."""

    number: int | None
    choices: dict[str, str]


def run(settings: Settings, directory: Path, job: Job, progress: Progress) -> Record:
    """Measure once and leave the record in `directory`. A run that fails leaves a failed record."""
    started, started_at = time.perf_counter(), datetime.now(timezone.utc).isoformat(timespec="microseconds")
    surroundings = environment()
    outcome = measure(settings, directory, progress)
    backend = dict(outcome.report.get("backend", {}))
    verdict = _verdict(settings, outcome, backend)
    backend.pop("references", None)
    write_requests(directory, _requests(settings, outcome))
    write_telemetry(directory, outcome.samples)
    record = Record(
        experiment=settings.experiment,
        cell=settings.cell,
        fingerprint=settings.fingerprint,
        job=job.number,
        started_at=started_at,
        settings=settings.as_mapping(),
        choices=job.choices,
        environment={**surroundings, "phases_s": outcome.phases, "wall_s": time.perf_counter() - started},
        backend=backend,
        metrics=_metrics(settings, outcome),
        verdict=verdict,
        error=_error(outcome),
        directory=directory,
    )
    write_record(directory, record)  # last: where it lies, the record is whole
    return record


def _verdict(settings: Settings, outcome: Outcome, backend: dict[str, Any]) -> Verdict:
    if outcome.failure is not None:
        return Verdict("failed", [str(outcome.failure)], [])
    overhead_us = harness_overhead_us(settings)
    return judge(settings, outcome.stamps, backend, outcome.digests, outcome.plan, overhead_us)


def _metrics(settings: Settings, outcome: Outcome) -> dict[str, float]:
    """All that is known; of a failed run, too, what was measured before it failed."""
    metrics = run_metrics(outcome.stamps, settings.batch_size, settings.warmup_iters)
    metrics.update(outcome.report.get("metrics", {}))
    overhead_us = harness_overhead_us(settings)
    if overhead_us is not None:
        metrics["harness_overhead_us"] = overhead_us
    measured = outcome.stamps[1 + settings.warmup_iters :]
    answered = measured[measured[:, COMPLETED] > 0]
    if len(answered):
        window = int(answered[:, SENT].min()), int(answered[:, COMPLETED].max())
        metrics.update(means(outcome.samples, *window))
        if str(outcome.report.get("backend", {}).get("device", "")).startswith("cuda"):
            metrics.update(overlap_metrics(answered))
    return metrics


def _requests(settings: Settings, outcome: Outcome) -> dict[str, Any]:
    """A row a request: which it was, and its stamps."""
    phases = ["cold"] + ["warm-up"] * settings.warmup_iters + ["measured"] * settings.num_iters
    columns: dict[str, Any] = {
        "request": range(settings.requests),
        "phase": phases,
        "payload": [k % settings.payloads for k in range(settings.requests)],
    }
    return columns | {f"{name}_ns": outcome.stamps[:, k] for k, name in enumerate(STAMPS)}


def _error(outcome: Outcome) -> dict[str, Any] | None:
    failure = outcome.failure
    if failure is None:
        return None
    return {
        "process": failure.process,
        "phase": failure.phase,
        "reason": str(failure),
        "traceback": failure.traceback or None,
        "log": outcome.logs.get(failure.process) or None,
    }
