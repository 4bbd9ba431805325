"""The server that every process of a run is forked from. It has torch imported, so one costs milliseconds and is clean.

It may be killed or stopped as any other process. A killed one is started anew with the next process. A
stopped one would be waited for without end, when a process is started as well as at the end of the
command, so it is ended and replaced.
"""

import os
import resource
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

from bench import scratch, signals
from bench.errors import RunFailed
from bench.process_state import in_words, is_stopped

NAME = "fork server"
_END_S = 1.0  # its pipes close a moment before it ends
_IMPORT_S = 300.0  # it answers when it has imported torch, which a cold or busy disk may delay


def context() -> ForkServerContext:
    """The way to start processes. They may open as many files as the system allows: a tensor on a queue takes one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scratch.directory()  # the server is told of it when it starts
    made = get_context("forkserver")
    made.set_forkserver_preload(["bench.orphan", "bench.preload"])
    return made


def start(process: BaseProcess, timeout_s: float) -> None:
    """Start `process`, by a new server where there is none or a stopped one.

    Raises:
        RunFailed: when the server dies meanwhile, or is stopped and starts nothing within `timeout_s`.
    """
    end_if_stopped()
    answered, silent = threading.Event(), threading.Event()

    def give_up() -> None:  # multiprocessing waits for the server's answer without a deadline
        began = time.monotonic()
        if answered.wait(timeout_s):
            return
        while not is_stopped(_pid()) and time.monotonic() - began < _IMPORT_S:
            if answered.wait(_END_S):
                return
        silent.set()
        _kill()

    threading.Thread(target=give_up, name="fork-server-watch", daemon=True).start()
    resource_tracker.ensure_running()  # it unblocks what is blocked in the next lines
    with signals.deferred():
        # The terminal's Ctrl-C is not for the server, nor is the SIGTERM that timeout(1) sends to the whole group.
        forkserver.ensure_running()
    try:
        process.start()
    except (OSError, EOFError) as error:
        if silent.is_set():
            reason = f"the fork server is stopped (SIGSTOP) or hangs: it started no {process.name}"
            raise RunFailed(reason, process=NAME, phase="start") from error
        if how := how_it_ended():
            reason = f"the fork server {how} in phase start, before the {process.name} was there"
            raise RunFailed(reason, process=NAME, phase="start") from error
        reason = f"the {process.name} could not be started: {error}"
        raise RunFailed(reason, process=process.name, phase="start") from error
    finally:
        answered.set()


def how_it_ended() -> str | None:
    """Its end in words; None while it lives."""
    pid = _pid()
    if pid is None or not _has_ended(pid, _END_S):
        return None
    try:
        # Left unreaped: multiprocessing does that before it starts another.
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        found = None
    if found is None:
        return "died"
    return in_words(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)


def end_if_stopped() -> bool:
    """End a stopped server, since it tells of no process's end and starts none; whether it was stopped."""
    stopped = is_stopped(_pid())
    if stopped:
        _kill()
    return stopped


def _kill() -> None:
    pid = _pid()
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _has_ended(pid, _END_S)  # so that the next look finds it dead


def _pid() -> int | None:
    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # no public name
    return pid


def _has_ended(pid: int, timeout_s: float) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(wait([fd], timeout_s))
    finally:
        os.close(fd)
