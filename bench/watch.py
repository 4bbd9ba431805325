"""The processes of one run, watched until both have done their part: deaths, errors, stops and stalls."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from bench.errors import RunFailed
from bench.supervisor import Child

_TICK_S = 1.0  # how often a stall is looked for and the progress is shown
_CAUSE_S = 0.5  # how long after one child's error the other's death may become known
_SAMPLES_S = 2.0  # how long the sampler may take to answer
_PHASES = ("start", "cold", "load", "compile", "warm-up", "measuring", "check", "end")


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
    no_samples: str | None = None  # why there are none
    _uuid: str | None = None
    _ready: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Wait until both are done. Raises RunFailed for a death, an error or a stall."""
        self._enter("start")
        seen, since = -1, time.monotonic()
        while not (self.frontend.done and self.backend.done):
            heard = self._listen(min(_TICK_S, self.stall_timeout_s / 4))
            answered = self.answered()
            if heard or answered != seen:
                seen, since = answered, time.monotonic()
            elif time.monotonic() - since > self.stall_timeout_s:
                raise self._stall(max(0, seen))
            self.progress(self.phase, answered)
        self.frontend.tell("exit", None, phase=self.phase)
        self._enter("end")

    def _listen(self, tick_s: float) -> bool:
        """Handle what children say, or the lack of it for one tick; whether anything was said."""
        # A backend that is done may end when it likes; a frontend outlives its tensors.
        watched = [made for made in (self.frontend, self.backend) if not made.done or made is self.frontend]
        fired = wait([sign for made in watched for sign in made.signs], tick_s)
        for made in watched:
            # A child's last words come before its death is told.
            while made.connection.poll(0):
                try:
                    self._handle(made, *made.receive(self.phase))
                except RunFailed as failure:
                    raise self._cause(made, failure) from failure
                if made is self.backend and made.done:
                    break
            else:
                # Not only read from: when the fork server dies, its children live on and may be silent.
                if not {*made.signs[1:]}.isdisjoint(fired):
                    raise made.death(self.phase)
        return bool(fired)

    def _cause(self, made: Child, failure: RunFailed) -> RunFailed:
        """A process that loses the other one fails, too: then what became of the other is what happened."""
        other = self.backend if made is self.frontend else self.frontend
        if other.done:
            return failure
        if wait([other.process.sentinel], _CAUSE_S) and other.process.exitcode not in (0, 1):
            return other.death(self.phase)
        if stopped := other.stopped():
            return RunFailed(f"{stopped} in phase {self.phase}. {failure}", process=other.name, phase=self.phase)
        return failure

    def _stall(self, answered: int) -> RunFailed:
        silence = (
            f"nothing was answered for {self.stall_timeout_s:g} s in phase {self.phase} ({answered} answers so far)"
        )
        for made in (self.backend, self.frontend):
            if stopped := made.stopped():
                return RunFailed(f"{stopped}: {silence}", process=made.name, phase=self.phase)
        advice = "Raise stall_timeout_s if the model needs longer"
        return RunFailed(f"{silence}. {advice}", process="backend", phase=self.phase)

    def _handle(self, made: Child, kind: str, content: Any) -> None:
        if kind == "ready":
            self._ready.add(made.name)
            self._uuid = content if made is self.backend else self._uuid
            if len(self._ready) == 2:
                self._enter("cold")
                self.frontend.tell("go", None, phase="cold")
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
        # Two processes tell of phases, and the earlier word of one may be read after the later of the other.
        if self.times and _PHASES.index(phase) <= _PHASES.index(self.phase):
            return
        self.phase = phase
        self.times[phase] = time.perf_counter()

    def _sample(self, *message: Any) -> None:
        """Tell the sampler; should it be dead or stopped, that costs its own figures only."""
        sampler = self.sampler
        if sampler is None or self.no_samples:
            return
        try:
            sampler.tell(*message, phase=self.phase)
            if message[0] == "stop":
                if (stopped := sampler.stopped()) or not sampler.connection.poll(_SAMPLES_S):
                    self.no_samples = stopped or f"the sampler said nothing for {_SAMPLES_S:g} s"
                else:
                    _, self.samples = sampler.receive(self.phase)
                    sampler.done = True
        except RunFailed as failure:
            self.no_samples = str(failure)
