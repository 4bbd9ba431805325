"""Starts processes, hears them and ends them. Imports no torch and touches no device.

A child's end is waited for as well as its messages, since a queue says nothing when the process
behind it dies, and on every way out it is ended with all that it started.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench import child, fork_server
from bench.errors import RunFailed
from bench.process_state import in_words, is_stopped, stopped_in_group

_END_S = 2.0  # how long a child that has said it is done may take to exit, and a message that has begun to arrive


class Child:
    """One started process. Its end is seen without the fork server, which may itself be stopped or dead."""

    def __init__(self, name: str, process: BaseProcess, connection: "Connection[Any, Any]") -> None:
        assert process.pid is not None, "a Child has been started"
        self.name = name
        self.process = process
        self.connection = connection
        self.done = False
        self.pid = process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended already
            self._pidfd = -1

    @property
    def signs(self) -> "list[Connection[Any, Any] | int]":
        """What to wait for: its words, its end, and that of the fork server, whose death ends the second of them."""
        return [self.connection, self.process.sentinel, *([] if self._pidfd < 0 else [self._pidfd])]

    def has_ended(self, within_s: float = 0) -> bool:
        """Whether it ends within so many seconds."""
        return self._pidfd < 0 or bool(wait([self._pidfd], within_s))

    def stopped(self) -> str | None:
        """Which of its processes a signal has stopped, in words: itself, or one that it has started."""
        if is_stopped(self.pid):
            return f"the {self.name} is stopped (SIGSTOP)"
        other = stopped_in_group(self.pid)
        return None if other is None else f"process {other}, which the {self.name} started, is stopped (SIGSTOP)"

    def receive(self, phase: str) -> tuple[str, Any]:
        """One message that has begun to arrive; the child's death or its error is a RunFailed."""
        rescue = threading.Timer(_END_S, self.process.kill)
        rescue.start()
        try:
            kind, content = self.connection.recv()
        except (EOFError, OSError):
            if rescue.finished.is_set():
                reason = f"the {self.name} stopped in the middle of a message in phase {phase}"
                raise RunFailed(reason, process=self.name, phase=phase) from None
            raise self.death(phase) from None
        finally:
            rescue.cancel()
        if kind == "error":
            reason, traceback = f"{self.name}: {content['reason']}", content["traceback"]
            raise RunFailed(reason, process=self.name, phase=phase, traceback=traceback, memory=content["memory"])
        return kind, content

    def tell(self, *message: Any, phase: str) -> None:
        """Send it a message; its death is a RunFailed."""
        try:
            self.connection.send(message)
        except OSError:
            if self.connection.poll(0):
                self.receive(phase)  # its last words
            raise self.death(phase) from None

    def death(self, phase: str) -> RunFailed:
        """Its end in words, as the failure of its run."""
        self.process.join(_END_S)
        code = self.process.exitcode
        # With the fork server goes all that is known of how its children end.
        if code in (255, None) and (how := fork_server.how_it_ended()):
            reason = f"the fork server {how} in phase {phase}, and the {self.name} is lost with it"
            return RunFailed(reason, process=fork_server.NAME, phase=phase)
        how = "closed its connection" if not self.has_ended() else "ended" if code is None else in_words(code)
        return RunFailed(f"the {self.name} {how} in phase {phase}", process=self.name, phase=phase)

    def end(self, grace_s: float) -> None:
        """End it and whatever it started, after `grace_s` in which it may end by itself."""
        self.has_ended(grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the compiler's workers, too
        if not self.has_ended():  # maybe killed before it had a group of its own
            self.process.kill()
        self.has_ended(_END_S)
        child.remove_shared_files(self.pid)
        fork_server.end_if_stopped()
        self.process.join(_END_S)
        if self.process.exitcode is not None:
            self.process.close()
        self.connection.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)


@contextmanager
def started(name: str, body: str, setup: Any, log: Path | None = None, *, timeout_s: float) -> Iterator[Child]:
    """A process that runs `body(setup, link)`, see `child.start`; it is ended on every way out.

    Raises:
        RunFailed: when it is not there within `timeout_s`.
    """
    ours, theirs = multiprocessing.Pipe()
    process = fork_server.context().Process(target=child.start, args=(body, setup, theirs, log), name=name)
    with theirs:  # closed here, so that the death of the child is an end of file
        fork_server.start(process, timeout_s)
    made = Child(name, process, ours)
    wait_s = 0.0  # after an exception there is nothing to wait for
    try:
        yield made
        wait_s = _END_S if made.done else 0
    finally:
        made.end(wait_s)


def call(
    name: str,
    body: str,
    setup: Any,
    *,
    timeout_s: float,
    log: Path | None = None,
    on_message: Callable[[str, Any], None] = lambda _kind, _content: None,
) -> Any:
    """Run `body` in a process of its own and return what it sends as `done`.

    Raises:
        RunFailed: when it fails, dies, or says nothing for `timeout_s`.
    """
    with started(name, body, setup, log, timeout_s=timeout_s) as made:
        while True:
            if not wait(made.signs, timeout_s):
                stopped = made.stopped()
                reason = f"{name} said nothing for {timeout_s:g} s" + (f": {stopped}" if stopped else "")
                raise RunFailed(reason, process=name, phase=name)
            if not made.connection.poll(0):
                raise made.death(name)
            kind, content = made.receive(name)
            if kind == "done":
                made.done = True
                return content
            on_message(kind, content)
