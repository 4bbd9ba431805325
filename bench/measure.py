"""The processes of one run, from start to end, and what they leave."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from bench import fork_server, scratch, supervisor
from bench.backend.checkpoints import cache_directory
from bench.config import Settings
from bench.errors import BenchError, NotRecorded, RunFailed
from bench.frontend.load import Plan, plan
from bench.gauge import Gauge, Reading
from bench.killed import explained
from bench.limits import in_flight, needs, shortages
from bench.queues.digest import DigestPlan, output_plan
from bench.queues.memory import ANSWERED, IN_FLIGHT_NS, OUTPUT_SLOTS, Board, BoardView
from bench.queues.shared_memory import SharedMemoryQueue
from bench.queues.torch_queue import TorchQueue
from bench.results.metrics import Stamps
from bench.room import oom_kills, room
from bench.setup import RunSetup
from bench.sizes import Sizes
from bench.stamps import SENT, WIDTH
from bench.watch import Watch

Progress = Callable[[Reading], None]


# What the answers must be, by all that they depend on: computed once, by the first run, and not in each repeat.
_references: dict[str, Any] = {}
_primed: set[str] = set()  # cells whose compile cache this command has filled


def no_progress(_reading: Reading) -> None:
    """For a run that nobody follows."""


@dataclass
class Outcome:
    """What a run's processes left, whether or not it ended by itself.

    Attributes:
        workers: which one computed each request; -1: the thread that reads requests, or none.
        load: what was planned.
        kept: which elements of each answer `digests` holds; None before the first answer.
        in_flight_ns: requests in flight, counted while the window was measured, integrated over it.
        report: the backend's last words: `backend` (what it ran) and `metrics`.
        phases: seconds spent in each phase.
        logs: the last lines that each process printed.
        no_samples: why the sampler, which was asked for, gave none.
    """

    stamps: Stamps
    workers: npt.NDArray[np.int16]
    digests: bytes
    load: Plan
    kept: DigestPlan | None
    in_flight_ns: int
    report: dict[str, Any]
    samples: list[dict[str, Any]]
    phases: dict[str, float]
    failure: RunFailed | None = None
    logs: dict[str, str] = field(default_factory=dict)
    no_samples: str | None = None


def measure(settings: Settings, directory: Path, progress: Progress, sizes: Sizes | None = None) -> Outcome:
    """Start the processes, let them work, end them, and take what they leave. Their logs go to `directory`.

    What the run takes is compared with what there is first; `sizes` tells of the model where it has been tried.

    Raises:
        NotRecorded: when there is no room for what it would give; then nothing was started.
    """
    watch: Watch | None = None
    failure: RunFailed | None = None
    load, free = plan(settings), room(settings, directory)
    requests = 1 + settings.warmup_iters + load.count
    need = needs(settings, requests, sizes)
    if missing := shortages(need, free, sizes):
        words = "; ".join(f"batch_size={settings.batch_size}: {shortage}" for shortage in missing)
        if need.output > free.output:
            raise NotRecorded(f"{directory}: not run: {words}")
        return not_measured(settings, RunFailed(words, process="supervisor", phase="start"))
    board = Board(requests, settings.payloads, settings.payload_bytes)
    view = board.open(present=False)
    parts = _Parts(settings, load, board, view, in_flight(settings, sizes, free))
    kills = oom_kills()
    try:
        with _compile_cache(settings, directory) as cache, ExitStack() as stack:
            watch = _start(parts, directory, cache, stack, progress)
            watch.run()
    except RunFailed as error:
        failure = explained(error, oom_kills() - kills, free)
    except (BenchError, OSError) as error:
        failure = RunFailed(str(error), process="supervisor", phase=watch.phase if watch else "start")
    outcome = _collect(parts, watch, failure)
    if "references" in outcome.report.get("backend", {}):
        _references.setdefault(_answers_key(settings), outcome.report["backend"]["references"])
    outcome.logs = {name: _tail(directory / f"{name}.log") for name in ("frontend", "backend", "sampler", "priming")}
    board.memory.close()
    return outcome


def not_measured(settings: Settings, failure: RunFailed) -> Outcome:
    """The outcome of a run that failed before any process was started."""
    stamps, workers = np.zeros((0, WIDTH), np.int64), np.zeros(0, np.int16)
    return Outcome(stamps, workers, b"", plan(settings), None, 0, {}, [], {}, failure)


@dataclass(frozen=True)
class _Parts:
    """What a run is made of."""

    settings: Settings
    load: Plan
    board: Board
    view: BoardView
    in_flight: int  # of queue=torch


def _start(parts: _Parts, directory: Path, cache: str, stack: ExitStack, progress: Progress) -> Watch:
    """Start the run's processes; leaving `stack` ends them."""
    settings, board, view = parts.settings, parts.board, parts.view
    queue: SharedMemoryQueue | TorchQueue
    if settings.queue.name == "torch":
        queue = TorchQueue.create(fork_server.context(), parts.in_flight, settings.stall_timeout_s)
    else:
        queue = SharedMemoryQueue.create(board)
    stack.callback(queue.close)
    trace = directory / "trace.json" if settings.profile else None
    setup = RunSetup(settings, parts.load, board, queue, cache, trace, _references.get(_answers_key(settings)))

    def start(name: str, body: str, content: Any) -> supervisor.Child:
        log, timeout_s = directory / f"{name}.log", settings.stall_timeout_s
        return stack.enter_context(supervisor.started(name, body, content, log, timeout_s=timeout_s))

    backend = start("backend", "bench.backend.server:serve", setup)
    frontend = start("frontend", "bench.frontend.client:drive", setup)
    sampler = None
    if settings.telemetry:
        pids = {"frontend": frontend.process.pid, "backend": backend.process.pid}
        sampler = start("sampler", "bench.telemetry.sampler:serve", pids)

    gauge = Gauge(settings, parts.load.count, view.stamps)

    def show(phase: str, answered: int) -> None:
        progress(gauge.read(phase, answered))

    return Watch(frontend, backend, sampler, lambda: int(view.control[ANSWERED]), settings.stall_timeout_s, show)


@contextmanager
def _compile_cache(settings: Settings, directory: Path) -> Iterator[str]:
    """The compiler's cache: fresh and thrown away, or kept a cell and filled before a command's first run of it.

    Each command fills it anew, which takes seconds where it is full: the compiler, the GPU or the model's own source
    may have changed since.
    """
    if not settings.compile or settings.compile_cache == "cold":
        place = scratch.directory()
        with tempfile.TemporaryDirectory(dir=place, prefix="compile-", ignore_cleanup_errors=True) as fresh:
            yield fresh
        return
    kept = cache_directory(settings) / "compile" / settings.cell
    kept.mkdir(parents=True, exist_ok=True)
    if settings.cell not in _primed:
        with FileLock(kept / "lock", timeout=settings.stall_timeout_s):
            _prime(settings, directory, str(kept))
        _primed.add(settings.cell)
    yield str(kept)


def _prime(settings: Settings, directory: Path, cache: str) -> None:
    """Compile once in a process of its own, so that the cell's first run finds what its later ones find."""
    supervisor.call(
        "priming",
        "bench.backend.priming:prime",
        (settings, cache),
        timeout_s=settings.stall_timeout_s,
        log=directory / "priming.log",
    )


def _collect(parts: _Parts, watch: Watch | None, failure: RunFailed | None) -> Outcome:
    """Copy what lies in shared memory; the processes have ended."""
    view, settings = parts.view, parts.settings
    stamps = np.array(view.stamps, dtype=np.int64).reshape(parts.board.rows, WIDTH)
    if settings.duration_s is not None and not settings.load.is_open:  # the time may have ended it, not the count
        stamps = stamps[: int((stamps[:, SENT] > 0).sum())]
    workers = np.array(view.workers)[: len(stamps)] - 1
    kept = output_plan(view.control) if view.control[OUTPUT_SLOTS] else None
    report = (watch.backend_report if watch else None) or {}
    phases = _spent(watch.times) if watch else {}
    samples = watch.samples if watch else []
    in_flight_ns = int(view.control[IN_FLIGHT_NS])
    return Outcome(
        stamps,
        workers,
        bytes(view.digests),
        parts.load,
        kept,
        in_flight_ns,
        report,
        samples,
        phases,
        failure,
        no_samples=watch.no_samples if watch else None,
    )


def _answers_key(settings: Settings) -> str:
    """All that the answers depend on."""
    kept = ("model", "device", "batch_size", "payloads", "seed")
    return json.dumps({key: value for key, value in settings.as_mapping().items() if key in kept}, sort_keys=True)


def _spent(times: dict[str, float]) -> dict[str, float]:
    """Seconds from the start of each phase to that of the next, or to now."""
    starts = [*times.values(), time.perf_counter()]
    return {name: starts[k + 1] - starts[k] for k, name in enumerate(times)}


def _tail(log: Path, lines: int = 50) -> str:
    """The last lines of a process's log; an empty log is removed."""
    if not log.exists():
        return ""
    if not log.stat().st_size:
        os.unlink(log)
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
