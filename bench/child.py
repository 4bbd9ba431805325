"""What every process that this program starts has in common, and how it talks to the supervisor.

A child is forked from the fork server, so it has no logging set-up, shares the terminal and would
outlive a killed supervisor. Here it gets a log, a process group of its own, and a thread that ends
the whole group when the supervisor is gone.
"""

import faulthandler
import logging
import multiprocessing
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from bench import launcher, scratch
from bench.errors import BenchError, OutOfMemory

_ENDING_LOOKS, _ENDING_LOOK_S = 25, 0.02  # at a supervisor that is ending


class Link:
    """A child's way to the supervisor; any of its threads may send."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, kind: str, content: Any = None) -> None:
        """Send one message: `phase`, `ready`, `device`, `done` or `error`."""
        with self._lock:
            self._connection.send((kind, content))

    def fail(self, error: BaseException) -> None:
        """Report an exception with its whole traceback."""
        lines = traceback.format_exception(error)
        print("".join(lines), file=sys.stderr, flush=True)
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
        memory = error.memory if isinstance(error, OutOfMemory) else None
        if isinstance(error, MemoryError):
            reason, memory = f"out of host memory ({reason}). Lower batch_size, payloads or num_iters", {"of": "host"}
        self.send("error", {"reason": reason, "traceback": "".join(lines), "memory": memory})

    def expect(self, kind: str, timeout_s: float) -> Any:
        """Wait for the supervisor's message `kind` and return its content.

        Raises:
            BenchError: when another message came, or none within `timeout_s`.
        """
        if not self._connection.poll(timeout_s):
            raise BenchError(f"the supervisor did not say {kind!r} within {timeout_s:g} s")
        got, content = self._connection.recv()
        if got != kind:
            raise BenchError(f"the supervisor said {got!r} instead of {kind!r}")
        return content

    @property
    def connection(self) -> "Connection[Any, Any]":
        """The bare connection."""
        return self._connection


def start(body: str, setup: Any, connection: "Connection[Any, Any]", log: Path | None) -> None:
    """Entry of every child: prepare the process, run `body(setup, link)`, report what it raises.

    Args:
        body: `package.module:function`, by name, since the supervisor must not import what it imports.
    """
    os.setpgid(0, 0)  # the terminal's Ctrl-C is for the supervisor, and the group can be ended as one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the fork server has some blocked; last, for one may be waiting
    _end_with_supervisor()
    os.environ["TMPDIR"] = tempfile.tempdir = scratch.of_supervisor()  # for the compiler's processes, too
    launcher.forget()
    if log is not None:
        _log_to(log)
    link = Link(connection)
    threading.excepthook = lambda raised: _thread_failed(raised, link)
    try:
        pkgutil.resolve_name(body)(setup, link)
    except BaseException as error:  # noqa: BLE001 - reported to the supervisor, whatever it is
        link.fail(error)
        sys.exit(1)


def _thread_failed(raised: threading.ExceptHookArgs, link: Link) -> None:
    """A thread that raises, a library's or the model's own, would else leave all that wait for it waiting."""
    if raised.exc_value is not None and not isinstance(raised.exc_value, SystemExit):
        link.fail(raised.exc_value)


def _end_with_supervisor() -> None:
    """End this process and all that it started as soon as the supervisor is gone, SIGKILL included."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a child has a parent"
    sentinel, started = parent.sentinel, 0.0
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(parent.pid).create_time()

    def watch() -> None:
        wait([sentinel])
        remove_shared_files(os.getpid())
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()
        if _has_ended(parent.pid, started):
            scratch.remove()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def _has_ended(pid: int | None, started: float) -> bool:
    """Whether the process that began at `started` is gone. One whose pipes have closed may need a moment for it, or
    it lives and has only let go of this child, as where the fork server was killed.
    """
    for _ in range(_ENDING_LOOKS):
        try:
            process = psutil.Process(pid)
            if process.create_time() != started or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(_ENDING_LOOK_S)
    return False


def remove_shared_files(pid: int) -> None:
    """Remove what a process killed between torch's making and unlinking of a shared tensor leaves in /dev/shm."""
    for path in Path("/dev/shm").glob(f"torch_{pid}_*"):
        path.unlink(missing_ok=True)


def _log_to(path: Path) -> None:
    """Send everything that this process prints, from C as well as from Python, to its log."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(sys.stderr)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
