"""What the harness itself costs for each request: measured with a model that does nothing, and kept a machine.

A run whose requests take less than twenty times as long measures the harness as much as the model.
"""

import dataclasses
import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from bench import scratch
from bench.backend.checkpoints import cache_directory
from bench.config import Load, Model, Settings
from bench.device_claim import Claim, DeviceBusy, claimed
from bench.measure import measure, no_progress
from bench.results.files import read_object, write_text
from bench.results.machines import identity
from bench.results.metrics import run_metrics
from bench.telemetry.environment import environment

_REQUESTS = 3000
_TRIES = 3
_BYTES = 2**31  # of payloads that a calibration of queue=torch may move
_LOCK_S = 120.0


def harness_overhead_us(settings: Settings) -> float | None:
    """Microseconds a request costs in the layout and queue of `settings`; None where it was not calibrated."""
    known = read_object(_file(settings))
    return known.get(_key(settings))


def calibrate(cells: list[Settings]) -> None:
    """Measure what is not known yet of these cells' layouts and queues, one after the other.

    What cannot be measured, since others have the device for too long, stays unknown.
    """
    for settings in cells:
        if harness_overhead_us(settings) is None:
            with suppress(DeviceBusy), claimed(settings, _file(settings)) as claim:
                _calibrate(settings, claim)


def _calibrate(settings: Settings, claim: Claim) -> None:
    """Measure, unless another command has done so meanwhile, and keep the least disturbed try."""
    file = _file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock", timeout=_LOCK_S):
        known = read_object(file)
        if _key(settings) in known:
            return
        costs = [cost for _ in range(_TRIES) if (cost := _measure(settings)) is not None]
        claim.look()
        if costs and not claim.shared_with:
            write_text(file, json.dumps({**known, _key(settings): min(costs)}, indent=1))


def _measure(settings: Settings) -> float | None:
    """A burst through the same processes, threads and queue, with `Noop` as the model."""
    shared = settings.queue.name == "shared_memory"
    noop = Model(
        name="noop",
        target="bench.backend.models.Noop",
        args={},
        weights="random",
        input_shape=[1] if shared else settings.model.input_shape,
        dtype=settings.model.dtype,
        channels_last=False,
    )
    requests = _REQUESTS if shared else max(10, min(_REQUESTS // 10, _BYTES // settings.payload_bytes))
    few = dataclasses.replace(
        settings,
        model=noop,
        batch_size=1 if shared else settings.batch_size,
        compile=False,
        stream_layout=dataclasses.replace(settings.stream_layout, cuda_graph=False),
        load=Load("burst"),
        num_iters=requests,
        duration_s=None,
        warmup_iters=0,
        payloads=1,
        verify=False,
        telemetry=False,
        profile=False,
    )
    with tempfile.TemporaryDirectory(dir=scratch.directory(), prefix="calibration-") as directory:
        outcome = measure(few, Path(directory), no_progress)
    if outcome.failure is not None:
        return None
    return run_metrics(outcome.stamps, few.batch_size, 0)["window"] / requests * 1e6


def _key(settings: Settings) -> str:
    """What the harness's cost depends on; with shared memory the size of a payload is no part of it."""
    size = 0 if settings.queue.name == "shared_memory" else settings.payload_bytes
    layout = settings.stream_layout
    parts = (settings.queue.name, layout.name, settings.compute_threads, layout.buffers_per_worker)
    return json.dumps([*parts, layout.intraop_threads, settings.device.name, settings.device.index, size])


def _file(settings: Settings) -> Path:
    """One file for each machine and set of versions."""
    here = environment()
    parts = json.dumps([identity(here), here["cpu"].get("governor")], sort_keys=True)
    name = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return cache_directory(settings) / "calibration" / f"{name}.json"
