"""Load patterns: when each request is meant to be sent, and how many there are."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from queue import SimpleQueue
from time import perf_counter_ns as now
from typing import Any, Protocol

import numpy as np

from bench.config import Settings
from bench.frontend import schedules
from bench.frontend.replay import replay
from bench.frontend.schedules import Offsets

_LEAD_NS = 1_000_000  # from making the schedule's clock start to its first request
_CLOSED_RATE = 100_000  # requests/s for which a closed loop that only a duration ends has room
_CLOSED_MOST = 2_000_000
_ARRIVALS = 1  # first word of the seed: numpy pads seeds with zeros, and other generators use the same seed


@dataclass(frozen=True)
class Plan:
    """What the measured window will be, known before anything starts.

    Attributes:
        count: the most requests there will be; each has its row of stamps.
        offsets: planned send times in nanoseconds from the start, where the load is open.
        steps: of a ramp, the step each request belongs to.
    """

    count: int
    offsets: Offsets | None = None
    steps: Offsets | None = None


def plan(settings: Settings) -> Plan:
    """Make the plan of `settings`; the same for the same seed and repeat. Raises ConfigError."""
    load = settings.load
    ends: dict[str, Any] = {"num_iters": settings.num_iters, "duration_s": settings.duration_s}
    rng = np.random.default_rng([_ARRIVALS, settings.seed, settings.repeat])
    if not load.is_open:
        most = min(_CLOSED_MOST, int((settings.duration_s or 0) * _CLOSED_RATE) + 1)
        return Plan(settings.num_iters or most)
    if load.name == "ramp":
        steps = schedules.steps_of(load.steps or [])
        offsets, index = schedules.ramp(steps, rng if load.random else None, **ends)
        return Plan(len(offsets), offsets, index)
    if load.name == "replay":
        offsets = replay(load.file or "", **ends)
    elif load.name == "poisson":
        offsets = schedules.poisson(load.rate or 0, rng, **ends)
    else:
        offsets = schedules.constant(load.rate or 0, **ends)
    return Plan(len(offsets), offsets)


_USES: dict[str, tuple[str, ...]] = {
    "burst": (),
    "closed": ("clients", "think_ms"),
    "constant": ("rate",),
    "poisson": ("rate",),
    "replay": ("file",),
    "ramp": ("steps", "random"),
}


def unused(cells: Sequence[Settings]) -> list[str]:
    """A line for each key of a load that was given and that no cell's load uses, as if it had been heeded."""
    used = {key for settings in cells for key in _USES[settings.load.name]}
    problems: dict[str, None] = {}
    for settings in cells:
        for item in fields(settings.load):
            value = getattr(settings.load, item.name)
            if item.default is MISSING or value == item.default or item.name in used:
                continue
            loads = " or ".join(f"load={name}" for name, keys in _USES.items() if item.name in keys)
            problems[
                f"load.{item.name}={value}: load={settings.load.name} does not use it. Leave it out, or set {loads}"
            ] = None
    return list(problems)


class Load(Protocol):
    """The load of one phase."""

    in_flight: int | None
    """Requests in flight, where an answer is what sends the next request, at once."""

    answered: Callable[[int], None] | None
    """Told the completion time (ns) of every answer, where the pattern depends on it."""

    is_planned: bool
    """Whether the plan holds every send time, and so the end."""

    def times(self, count: int) -> Iterator[int | None]:
        """Planned send times (ns) of `count` requests; None is `at once, and meant so`."""


class Burst:
    """All requests at once."""

    in_flight: int | None = None
    answered: Callable[[int], None] | None = None
    is_planned = False

    def times(self, count: int) -> Iterator[int | None]:
        """Each is sent as soon as the one before has been."""
        return iter([None] * count)


class Closed:
    """Each of `clients` sends its next request `think_ns` after its last is answered.

    Args:
        timeout_s: how long an answer may take before queue.Empty is raised.
    """

    is_planned = False

    def __init__(self, clients: int, think_ns: int, timeout_s: float) -> None:
        self._clients = clients
        self._think_ns = think_ns
        self._timeout_s = timeout_s
        self._completed: SimpleQueue[int] = SimpleQueue()
        self.in_flight: int | None = None if think_ns else clients
        self.answered: Callable[[int], None] | None = self._completed.put

    def times(self, count: int) -> Iterator[int | None]:
        """The first request of each client at once; every further one when an answer completes."""
        yield from [None] * min(self._clients, count)
        for _ in range(count - self._clients):
            yield self._completed.get(timeout=self._timeout_s) + self._think_ns


class Open:
    """Requests at planned times, whatever becomes of those before."""

    in_flight: int | None = None
    answered: Callable[[int], None] | None = None
    is_planned = True

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def times(self, count: int) -> Iterator[int | None]:
        """The plan, from now on; one that is shorter than `count` begins again at its mean interval."""
        offsets = self._offsets
        if len(offsets) < count:
            interval = int(offsets[-1]) // max(1, len(offsets) - 1)
            offsets = np.arange(count, dtype=np.int64) * interval
        yield from (now() + _LEAD_NS + offsets[:count]).tolist()


def make_load(settings: Settings, made: Plan) -> Load:
    """The load pattern that the settings name."""
    if made.offsets is not None:
        return Open(made.offsets)
    if settings.load.name == "closed":
        assert settings.load.clients is not None, "checked with the settings"
        return Closed(settings.load.clients, round(settings.load.think_ms * 1e6), settings.stall_timeout_s)
    return Burst()
