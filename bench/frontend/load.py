"""Load patterns: when each request is meant to be sent. Pure but for `closed`, which waits for answers."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

from bench.config import Load as LoadSettings


class Load(Protocol):
    """A load pattern for one phase."""

    in_flight: int | None
    """Requests in flight, where an answer is what sends the next request, at once."""

    answered: Callable[[int], None] | None
    """Told the completion time (ns) of every answer, where the pattern depends on it."""

    def times(self, count: int) -> Iterator[int | None]:
        """Planned send times (ns) of `count` requests; None is `at once, and meant so`."""


class Burst:
    """All requests at once."""

    in_flight: int | None = None

    answered: Callable[[int], None] | None = None

    def times(self, count: int) -> Iterator[int | None]:
        """Each is sent as soon as the one before has been."""
        return iter([None] * count)


class Closed:
    """Each of `clients` sends its next request when its last is answered.

    Args:
        timeout_s: how long an answer may take before queue.Empty is raised.
    """

    def __init__(self, clients: int, timeout_s: float) -> None:
        self._clients = clients
        self.in_flight: int | None = clients
        self._timeout_s = timeout_s
        self._completed: SimpleQueue[int] = SimpleQueue()
        self.answered: Callable[[int], None] | None = self._completed.put

    def times(self, count: int) -> Iterator[int | None]:
        """The first request of each client at once; every further one when an answer completes."""
        yield from [None] * min(self._clients, count)
        for _ in range(count - self._clients):
            yield self._completed.get(timeout=self._timeout_s)


def make_load(settings: LoadSettings, timeout_s: float) -> Load:
    """The load pattern that the settings name."""
    if settings.name == "closed":
        assert settings.clients is not None, "checked with the settings"
        return Closed(settings.clients, timeout_s)
    return Burst()
