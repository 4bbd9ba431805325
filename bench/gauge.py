"""What a run is doing right now, read from the block that its processes share. A few words a second, no more."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.config import Settings
from bench.stamps import COMPLETED, INTENDED, WIDTH

_EVERY_S = 0.9  # between two counts that are kept
_KEPT = 6  # counts, so that the throughput is that of the last five seconds
_LOOKED_AT = 16  # the last requests, for the latency


@dataclass(frozen=True)
class Reading:
    """A moment of a run.

    Attributes:
        phase: as the supervisor knows it.
        done, total: requests of this phase, answered and in all; a total of 0 is not known.
        throughput: samples/s of the last seconds; None before the first answers of the phase.
        latency_s: mean of the last answers.
    """

    phase: str
    done: int = 0
    total: int = 0
    throughput: float | None = None
    latency_s: float | None = None


class Gauge:
    """Reads one run. `stamps` is its array as the supervisor sees it, `count` its measured requests at most."""

    def __init__(
        self,
        settings: Settings,
        count: int,
        stamps: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batch_size = settings.batch_size
        self._stamps = stamps
        self._clock = clock
        warm_up = settings.warmup_iters
        only_time_ends_it = settings.num_iters is None and not settings.load.is_open
        # First request of each phase that has requests, and how many there are.
        self._counted = {"warm-up": (1, warm_up), "measuring": (1 + warm_up, 0 if only_time_ends_it else count)}
        self._phase = ""
        self._counts: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._began = (0.0, 0)

    def read(self, phase: str, answered: int) -> Reading:
        """The reading of now, when the run is in `phase` and `answered` requests came back since its start."""
        if phase not in self._counted:
            return Reading(phase)
        first, total = self._counted[phase]
        answered = min(answered, len(self._stamps) // WIDTH)  # the message that ends the run is counted, too
        done = max(0, answered - first)
        now = self._clock()
        if phase != self._phase:
            self._phase, self._began = phase, (now, done)
            self._counts.clear()
        if not self._counts or now - self._counts[-1][0] >= _EVERY_S:
            self._counts.append((now, done))
        return Reading(
            phase, min(done, total) if total else done, total, self._rate(now, done), self._latency(first, answered)
        )

    def _rate(self, now: float, done: int) -> float | None:
        """Of the last seconds; where they brought no answer, of the phase."""
        for then, before in (self._counts[0], self._began):
            if done > before and now - then >= _EVERY_S:
                return (done - before) * self._batch_size / (now - then)
        return None

    def _latency(self, first: int, answered: int) -> float | None:
        times = [
            self._stamps[row + COMPLETED] - self._stamps[row + INTENDED]
            for row in range(max(first, answered - _LOOKED_AT) * WIDTH, answered * WIDTH, WIDTH)
            if self._stamps[row + COMPLETED]  # several workers do not answer in order
        ]
        return sum(times) / len(times) / 1e9 if times else None
