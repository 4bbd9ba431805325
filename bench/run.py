"""One run: from settings to a record on disk. The only module that knows the run's directory."""

import logging
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import hydra_glue
from bench.calibration import harness_overhead_us
from bench.config import Settings
from bench.device_claim import WAITING, Claim, claimed
from bench.errors import BenchError, NotRecorded, RunFailed
from bench.gauge import Reading
from bench.launcher import load_before_start
from bench.measure import Outcome, Progress, measure, not_measured
from bench.results.cautions import cautions
from bench.results.checks import judge
from bench.results.load import load_metrics, step_metrics
from bench.results.metrics import Stamps, answered, run_metrics
from bench.results.out_of_memory import ran_out_of_memory
from bench.results.overlap import overlap_metrics
from bench.results.record import Record, Verdict, write_record, write_requests
from bench.results.records import read_records
from bench.results.stages import missing_percentiles, stage_metrics, stage_shares, tail_evidence
from bench.results.timeline import write_timeline
from bench.sizes import Sizes, read_sizes
from bench.stamps import COMPLETED, SENT, STAMPS
from bench.telemetry.environment import environment
from bench.telemetry.sampler import means, write_telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What Hydra knows of a run: its number in the sweep (None for a single run), the groups chosen."""

    number: int | None
    choices: dict[str, str]


def run(settings: Settings, directory: Path, job: Job, progress: Progress) -> Record:
    """Measure once, when the device is free, and leave the record in `directory`; a failed one if it fails.

    Raises:
        NotRecorded: when not all of it could be written; the record of a failed run may be there.
    """
    sweep = directory if job.number is None else directory.parent
    with ExitStack() as stack:
        claim = _skipped(settings, sweep) or _claim(stack, settings, directory, progress)
        started, started_at = time.perf_counter(), datetime.now(timezone.utc).isoformat(timespec="microseconds")
        surroundings = {**environment(), "load_before_start": load_before_start()}
        overhead_us = harness_overhead_us(settings)
        outcome = _measure(settings, directory, progress, claim, read_sizes(sweep, settings.cell))
    if isinstance(claim, Claim):
        surroundings["device"] = claim.as_mapping()
    measured = outcome.stamps[1 + settings.warmup_iters :]
    backend = dict(outcome.report.get("backend", {}))
    verdict = _verdict(settings, outcome, backend)
    if verdict.status != "failed":
        if outcome.no_samples is not None:
            verdict.warnings.append(f"no telemetry of the GPU and the host: {outcome.no_samples}")
        verdict.warnings.extend(cautions(settings, measured, surroundings, outcome.samples, overhead_us))
    backend.pop("references", None)
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
        metrics=_metrics(settings, outcome, overhead_us),
        evidence=_evidence(settings, measured, outcome),
        verdict=verdict,
        error=_error(outcome),
        directory=directory,
    )
    return _written(record, _requests(settings, outcome), outcome.samples)


def _written(record: Record, requests: dict[str, Any], samples: list[dict[str, Any]]) -> Record:
    """The same, on disk with all that belongs to it. Raises NotRecorded."""
    directory, lost = record.directory, None
    try:
        write_requests(directory, requests)
        write_telemetry(directory, samples)
    except OSError as fault:  # the record itself is small and may still have room
        lost = _lost(directory, fault)
        record = replace(
            record,
            verdict=Verdict("failed", [str(lost), *record.verdict.reasons], []),
            error=record.error or {"process": "supervisor", "phase": "record", "reason": str(lost)},
        )
    try:
        write_record(directory, record)  # the last of what was measured: where it lies, the record is whole
    except OSError as fault:
        raise _lost(directory, fault) from fault
    if lost is not None:
        raise lost
    try:
        write_timeline(directory)
    except (BenchError, OSError) as fault:  # a picture less, and no reason to lose the run
        log.warning("%s", fault)
    return record


def _lost(directory: Path, fault: OSError) -> NotRecorded:
    return NotRecorded(
        f"{directory}: could not be written ({fault}). Free some space, or set output_dir to another disk"
    )


def _skipped(settings: Settings, sweep: Path) -> RunFailed | None:
    """Why the run need not be tried; None where it must be."""
    if not settings.skip_larger:
        return None
    smaller = ran_out_of_memory(settings, read_records(sweep)[0], hydra_glue.run_number(0))
    if smaller is None:
        return None
    reason = f"skipped: batch_size={smaller} ran out of memory (skip_larger=true)"
    return RunFailed(reason, process="supervisor", phase="start")


def _claim(stack: ExitStack, settings: Settings, directory: Path, progress: Progress) -> Claim | RunFailed:
    """The device, which leaving `stack` gives back, or why it cannot be had."""
    try:
        return stack.enter_context(claimed(settings, directory, lambda: progress(Reading(WAITING))))
    except RunFailed as failure:
        return failure
    except BenchError as error:
        return RunFailed(str(error), process="supervisor", phase=WAITING)


def _measure(
    settings: Settings, directory: Path, progress: Progress, claim: Claim | RunFailed, sizes: Sizes | None
) -> Outcome:
    """Measure if the device could be had, and look now and then who else is at it."""
    if isinstance(claim, RunFailed):
        return not_measured(settings, claim)

    def follow(reading: Reading) -> None:
        claim.look()
        progress(reading)

    return measure(settings, directory, follow, sizes)


def _verdict(settings: Settings, outcome: Outcome, backend: dict[str, Any]) -> Verdict:
    if outcome.failure is not None:
        return Verdict("failed", [str(outcome.failure)], [])
    return judge(settings, outcome.stamps, backend, outcome.digests, outcome.kept, outcome.in_flight_ns)


def _metrics(settings: Settings, outcome: Outcome, overhead_us: float | None) -> dict[str, float]:
    """All that is known; of a failed run, too, what was measured before it failed."""
    metrics = run_metrics(outcome.stamps, settings.batch_size, settings.warmup_iters)
    metrics.update(outcome.report.get("metrics", {}))
    measured = answered(outcome.stamps[1 + settings.warmup_iters :])
    if not len(measured):
        return metrics
    metrics.update(load_metrics(settings, measured))
    metrics.update(stage_metrics(measured))
    metrics.update(means(outcome.samples, int(measured[:, SENT].min()), int(measured[:, COMPLETED].max())))
    if "gpu_energy_j" in metrics:
        metrics["energy_j_per_1000_samples"] = 1000 * metrics["gpu_energy_j"] / (len(measured) * settings.batch_size)
    backend = outcome.report.get("backend", {})
    if str(backend.get("device", "")).startswith("cuda"):
        metrics.update(overlap_metrics(measured))
        metrics["peak_allocated_bytes"] = float(backend["peak_allocated_bytes"])
    if overhead_us is not None:
        metrics["harness_overhead_us"] = overhead_us
    return metrics


def _evidence(settings: Settings, measured: Stamps, outcome: Outcome) -> dict[str, Any]:
    """What explains the numbers: shares of the stages, the tail, what a ramp's steps gave."""
    evidence: dict[str, Any] = {
        "stage_shares": stage_shares(measured),
        "percentiles_missing": missing_percentiles(len(answered(measured))),
    }
    tail = tail_evidence(measured, burst=settings.load.name == "burst")
    if tail is not None:
        evidence["tail"] = asdict(tail)
    if outcome.load.steps is not None:
        evidence["steps"] = step_metrics(measured, outcome.load.steps, settings.batch_size)
    return evidence


def _requests(settings: Settings, outcome: Outcome) -> dict[str, Any]:
    """A row a request: which it was, which worker computed it (-1: none of them), and its stamps."""
    count = len(outcome.stamps)
    measured = count - 1 - settings.warmup_iters
    columns: dict[str, Any] = {
        "request": range(count),
        "phase": (["cold"] + ["warm-up"] * settings.warmup_iters + ["measured"] * measured)[:count],
        "payload": [k % settings.payloads for k in range(count)],
        "worker": outcome.workers,
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
        "memory": failure.memory,
    }
