"""The processes of one run, from start to end, and what they leave."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from platformdirs import user_cache_path

from bench import supervisor
from bench.config import Settings
from bench.errors import BenchError, RunFailed
from bench.queues.digest import DigestPlan, output_plan
from bench.queues.memory import ANSWERED, OUTPUT_SLOTS, Board, BoardView
from bench.queues.shared_memory import SharedMemoryQueue
from bench.queues.torch_queue import TorchQueue
from bench.results.metrics import Stamps
from bench.setup import RunSetup
from bench.stamps import WIDTH

Progress = Callable[[str, int], None]  # phase, answers so far


@dataclass
class Outcome:
    """What a run's processes left, whether or not it ended by itself.

    Attributes:
        plan: which elements of each answer `digests` holds; None before the first answer.
        report: the backend's last words: `backend` (what it ran) and `metrics`.
        phases: seconds spent in each phase.
        logs: the last lines that each process printed.
    """

    stamps: Stamps
    digests: bytes
    plan: DigestPlan | None
    report: dict[str, Any]
    samples: list[dict[str, Any]]
    phases: dict[str, float]
    failure: RunFailed | None = None
    logs: dict[str, str] = field(default_factory=dict)


def measure(settings: Settings, directory: Path, progress: Progress) -> Outcome:
    """Start the processes, let them work, end them, and take what they leave. Their logs go to `directory`."""
    watch: supervisor.Watch | None = None
    failure: RunFailed | None = None
    board = Board(settings.requests, settings.payloads, settings.payload_bytes)
    view = board.open(present=False)
    try:
        with _compile_cache(settings, directory) as cache, ExitStack() as stack:
            watch = _start(settings, directory, board, view, cache, stack, progress)
            watch.run()
    except RunFailed as error:
        failure = error
    except (BenchError, OSError) as error:
        failure = RunFailed(str(error), process="supervisor", phase="start")
    outcome = _collect(settings, view, watch, failure)
    outcome.logs = {name: _tail(directory / f"{name}.log") for name in ("frontend", "backend", "sampler")}
    board.memory.close()
    return outcome


def _start(
    settings: Settings,
    directory: Path,
    board: Board,
    view: BoardView,
    cache: str,
    stack: ExitStack,
    progress: Progress,
) -> supervisor.Watch:
    """Start the run's processes; leaving `stack` ends them."""
    queue: SharedMemoryQueue | TorchQueue
    if settings.queue.name == "torch":
        queue = TorchQueue.create(supervisor.context(), settings.payload_bytes, settings.stall_timeout_s)
    else:
        queue = SharedMemoryQueue.create(board)
    stack.callback(queue.close)
    setup = RunSetup(settings, board, queue, cache, directory / "trace.json" if settings.profile else None)

    def start(name: str, body: str, content: Any) -> supervisor.Child:
        return stack.enter_context(supervisor.started(name, body, content, directory / f"{name}.log"))

    backend = start("backend", "bench.backend.server:serve", setup)
    frontend = start("frontend", "bench.frontend.client:drive", setup)
    sampler = None
    if settings.telemetry:
        pids = {"frontend": frontend.process.pid, "backend": backend.process.pid}
        sampler = start("sampler", "bench.telemetry.sampler:serve", pids)
    return supervisor.Watch(
        frontend, backend, sampler, lambda: int(view.control[ANSWERED]), settings.stall_timeout_s, progress
    )


@contextmanager
def _compile_cache(settings: Settings, directory: Path) -> Iterator[str]:
    """The compiler's cache: fresh and thrown away, or kept a cell and filled before its first run."""
    if not settings.compile or settings.compile_cache == "cold":
        with tempfile.TemporaryDirectory(prefix="bench-compile-", ignore_cleanup_errors=True) as fresh:
            yield fresh
        return
    kept = cache_directory(settings) / "compile" / settings.cell
    kept.mkdir(parents=True, exist_ok=True)
    primed = kept / "primed"
    with FileLock(kept / "lock", timeout=settings.stall_timeout_s):
        if not primed.exists():
            _prime(settings, directory, str(kept))
            primed.touch()
    yield str(kept)


def cache_directory(settings: Settings) -> Path:
    """Where what is worth keeping between sweeps lies."""
    return Path(settings.cache_dir) if settings.cache_dir else user_cache_path("inference-bench")


def _prime(settings: Settings, directory: Path, cache: str) -> None:
    """Compile once in a process of its own, so that the cell's first run finds what its later ones find."""
    supervisor.call(
        "priming",
        "bench.backend.priming:prime",
        (settings, cache),
        timeout_s=settings.stall_timeout_s,
        log=directory / "priming.log",
    )


def _collect(settings: Settings, view: BoardView, watch: supervisor.Watch | None, failure: RunFailed | None) -> Outcome:
    """Copy what lies in shared memory; the processes have ended."""
    stamps = np.array(view.stamps, dtype=np.int64).reshape(settings.requests, WIDTH)
    plan = output_plan(view.control) if view.control[OUTPUT_SLOTS] else None
    report = (watch.backend_report if watch else None) or {}
    phases = _spent(watch.times) if watch else {}
    samples = watch.samples if watch else []
    return Outcome(stamps, bytes(view.digests), plan, report, samples, phases, failure)


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
