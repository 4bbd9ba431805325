"""Starts, watches and ends the processes of a run. Imports no torch and touches no device.

It waits on its children's sentinels as well as on their messages, since a queue says nothing when
the process behind it dies, and on every way out it ends them and all that they started.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench import child
from bench.errors import RunFailed

_TICK_S = 1.0  # how often a stall is looked for and the progress is shown
_END_S = 2.0  # how long a child that has said it is done may take to exit
_CAUSE_S = 0.5  # how long after one child's error the other's death may become known
_LOG_LINES = 50


@dataclass
class Child:
    """One started process."""

    name: str
    process: BaseProcess
    connection: "Connection[Any, Any]"
    log: Path | None = None
    done: bool = False

    def tail(self) -> str:
        """The last lines of its log."""
        if self.log is None or not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def end(self, grace_s: float) -> None:
        """End it and whatever it started, after `grace_s` in which it may end by itself."""
        self.process.join(grace_s)
        assert self.process.pid is not None, "a Child has been started"
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the compiler's workers, too
        if self.process.exitcode is None:  # maybe killed before it had a group of its own
            self.process.kill()
        self.process.join(_END_S)
        self.connection.close()

    def how_it_ended(self) -> str:
        """Its exit in words."""
        self.process.join(_END_S)
        code = self.process.exitcode
        if code is None:
            return "closed its connection"
        if code == 255 and not _fork_server_lives():
            return "was lost: the fork server died"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"


def context() -> ForkServerContext:
    """Processes come from a server that has torch imported: each costs milliseconds and starts clean."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["bench.preload"])
    return made


def _fork_server_lives() -> bool:
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # no public name
    try:
        fd = os.pidfd_open(pid or 0)
    except (ProcessLookupError, OSError):
        return False
    try:
        # Not reaped: multiprocessing does that before it starts another. Its pipes close a moment before it ends.
        return not wait([fd], _TICK_S)
    finally:
        os.close(fd)


@contextmanager
def started(name: str, body: str, setup: Any, log: Path | None = None, *, grace_s: float = _END_S) -> Iterator[Child]:
    """A process that runs `body(setup, link)`, see `child.start`; it is ended on every way out."""
    ours, theirs = multiprocessing.Pipe()
    process = context().Process(target=child.start, args=(body, setup, theirs, log), name=name)
    process.start()
    theirs.close()  # so that the death of the child is an end of file here
    made = Child(name, process, ours, log)
    try:
        yield made
    finally:
        made.end(grace_s if made.done else 0)


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
    with started(name, body, setup, log) as made:
        while True:
            if not made.connection.poll(timeout_s):
                raise RunFailed(f"{name} said nothing for {timeout_s:g} s", process=name, phase=name)
            kind, content = _receive(made, name)
            if kind == "done":
                made.done = True
                return content
            on_message(kind, content)


def _death(made: Child, phase: str) -> RunFailed:
    return RunFailed(f"the {made.name} {made.how_it_ended()} in phase {phase}", process=made.name, phase=phase)


def _receive(made: Child, phase: str) -> tuple[str, Any]:
    """One message of a child; its death or its error is a RunFailed."""
    try:
        kind, content = made.connection.recv()
    except (EOFError, ConnectionError):
        raise _death(made, phase) from None
    if kind == "error":
        raise RunFailed(
            f"{made.name}: {content['reason']}",
            process=made.name,
            phase=phase,
            traceback=content["traceback"],
        )
    return kind, content


@dataclass
class Watch:
    """The run's processes as the supervisor sees them, until both have done their part."""

    frontend: Child
    backend: Child
    sampler: Child | None
    answered: Callable[[], int]
    stall_timeout_s: float
    progress: Callable[[str, int], None]
    phase: str = "start"
    times: dict[str, float] = field(default_factory=dict)  # time.perf_counter() at which each phase began
    backend_report: Any = None
    samples: list[dict[str, Any]] = field(default_factory=list)
    _uuid: str | None = None
    _ready: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Wait until both are done. Raises RunFailed for a death, an error or a stall."""
        self._enter("start")
        seen, since = -1, time.monotonic()
        while not (self.frontend.done and self.backend.done):
            heard = self._listen()
            answered = self.answered()
            if heard or answered != seen:
                seen, since = answered, time.monotonic()
            elif time.monotonic() - since > self.stall_timeout_s:
                raise RunFailed(
                    f"nothing was answered for {self.stall_timeout_s:g} s in phase {self.phase} "
                    f"({max(0, seen)} answers so far). Raise stall_timeout_s if the model needs longer",
                    process="backend",
                    phase=self.phase,
                )
            self.progress(self.phase, answered)
        self.frontend.connection.send(("exit", None))
        self._enter("end")

    def _listen(self) -> bool:
        """Handle what children say, or the lack of it for one tick; whether anything was said."""
        # One that is done may end when it likes.
        busy = [made for made in (self.frontend, self.backend) if not made.done]
        fired = wait([end for made in busy for end in (made.connection, made.process.sentinel)], _TICK_S)
        for made in busy:
            if made.connection in fired or made.process.sentinel in fired:
                # A child's last words come before its death is told.
                while made.connection.poll(0):
                    try:
                        self._handle(made, *_receive(made, self.phase))
                    except RunFailed as failure:
                        raise self._cause(made, failure) from failure
                    if made.done:
                        break
                if not made.done and made.process.sentinel in fired:
                    # Not read from: when the fork server dies, its children live on and may be silent.
                    raise _death(made, self.phase)
        return bool(fired)

    def _cause(self, made: Child, failure: RunFailed) -> RunFailed:
        """A process that loses the other one fails, too: then the other's death is what happened."""
        other = self.backend if made is self.frontend else self.frontend
        died = not other.done and wait([other.process.sentinel], _CAUSE_S) and other.process.exitcode not in (0, 1)
        return _death(other, self.phase) if died else failure

    def _handle(self, made: Child, kind: str, content: Any) -> None:
        if kind == "ready":
            self._ready.add(made.name)
            self._uuid = content if made is self.backend else self._uuid
            if len(self._ready) == 2:
                self._enter("cold")
                self.frontend.connection.send(("go", None))
        elif kind == "phase":
            self._enter(content)
            if content == "measuring":
                self._sample("start", self._uuid)
        elif kind == "measured":
            self._enter("check")
            self._sample("stop")
        elif kind == "done":
            made.done = True
            if made is self.backend:
                self.backend_report = content

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.times[phase] = time.perf_counter()

    def _sample(self, *message: Any) -> None:
        """Tell the sampler; should it be dead, that costs its own figures only."""
        if self.sampler is None:
            return
        try:
            self.sampler.connection.send(message)
            if message[0] == "stop" and self.sampler.connection.poll(_END_S):
                self.samples = self.sampler.connection.recv()
                self.sampler.done = True
        except (OSError, EOFError):
            self.sampler.done = False
