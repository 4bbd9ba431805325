"""The model that takes a known time: its queues can be checked against theory."""

import ctypes
import math
import threading
from collections.abc import Iterator
from time import perf_counter_ns as now
from time import sleep

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from bench.backend.models import Noop
from bench.errors import ConfigError

DISTRIBUTIONS = ("constant", "exponential", "two_point")
_BLOCK = 1024  # service times drawn at once
_LONGEST_MS = 3_600_000.0
_SERVICE = 0x5E41CE  # so that the draws are not those of another generator with this seed, the arrivals' above all
_PR_SET_TIMERSLACK = 29
_SPIN_ELEMENTS = 16_384  # of one operation: about 10 µs


class Simulated(Noop):
    """Waits for a service time drawn from `distribution`, then answers as `Noop` does. Several threads may call it.

    Args:
        distribution: constant, exponential, or two_point: `slow_share` of the requests take `slow_times` as
            long as the others. The mean is `mean_ms` whichever it is.
        seed: of the draws. The n-th call takes the n-th draw; the calls that set up and prime a
            backend count.
        how: `sleep` leaves the cores alone and is late by some 50 µs, the time that Linux takes to wake a
            thread; `spin` keeps one core busy and is late by some 10 µs, if the core is its own.

    Raises:
        ConfigError: with a line for each argument that is wrong.
    """

    def __init__(
        self,
        distribution: str = "constant",
        mean_ms: float = 5.0,
        seed: int = 0,
        how: str = "sleep",
        slow_share: float = 0.1,
        slow_times: float = 10.0,
    ) -> None:
        super().__init__()
        _check(distribution, mean_ms, seed, how, slow_share, slow_times)
        self._draws = _endless(distribution, mean_ms * 1e6, generator(seed), slow_share, slow_times)
        self._lock = threading.Lock()  # a generator can be advanced by one thread at a time
        self._wait_until = _spin_until if how == "spin" else _sleep_until
        if how == "sleep":
            _wake_on_time()

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, 1), after the service time."""
        self._serve()
        return super().forward(x)

    # The compiler would trace the clock. Not torch.compiler.disable, which imports the compiler at once (over 1 s).
    @_disable_dynamo
    def _serve(self) -> None:
        started = now()
        with self._lock:
            service = next(self._draws)
        self._wait_until(started + service)


def generator(seed: int) -> np.random.Generator:
    """The generator of the model with this seed. Services drawn like the intervals between arrivals make no queue."""
    return np.random.default_rng([_SERVICE, seed])


def service_times(
    distribution: str,
    mean_ns: float,
    rng: np.random.Generator,
    count: int,
    slow_share: float = 0.1,
    slow_times: float = 10.0,
) -> npt.NDArray[np.int64]:
    """The next `count` service times in nanoseconds; see `Simulated`."""
    if distribution == "exponential":
        drawn = rng.exponential(mean_ns, count)
    elif distribution == "two_point":
        fast = mean_ns / (1 + slow_share * (slow_times - 1))
        drawn = np.where(rng.random(count) < slow_share, fast * slow_times, fast)
    else:
        drawn = np.full(count, mean_ns)
    return np.rint(drawn).astype(np.int64)


def _endless(
    distribution: str, mean_ns: float, rng: np.random.Generator, slow_share: float, slow_times: float
) -> Iterator[int]:
    """Service times one by one; drawing each on its own would take as long as the harness does."""
    while True:
        yield from service_times(distribution, mean_ns, rng, _BLOCK, slow_share, slow_times).tolist()


def _sleep_until(deadline: int) -> None:
    if (left := deadline - now()) > 0:
        sleep(left / 1e9)


def _spin_until(deadline: int) -> None:
    """Keep one core busy as a model does, outside the GIL: a loop in Python would hold up other threads by 5 ms."""
    scratch = torch.zeros(_SPIN_ELEMENTS)
    sums = torch.empty_like(scratch)
    while now() < deadline:
        torch.cumsum(scratch, 0, out=sums)  # torch divides it among no threads


def _wake_on_time() -> None:
    """Lower the timer slack of this thread, and of those it starts, from 50 µs to 1 ns; no harm where it is refused."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def _check(distribution: str, mean_ms: float, seed: int, how: str, slow_share: float, slow_times: float) -> None:
    problems = [
        f"model.args.{key}={value}: must be one of {', '.join(names)}. Set model.args.{key}={names[0]}"
        for key, value, names in (("distribution", distribution, DISTRIBUTIONS), ("how", how, ("sleep", "spin")))
        if value not in names
    ]
    for key, number, low, high in (
        ("mean_ms", mean_ms, 0.001, _LONGEST_MS),
        ("slow_share", slow_share, 0.0, 1.0),
        ("slow_times", slow_times, 1.0, 1e6),
    ):
        if not _is_number(number) or not low <= number <= high:
            problems.append(
                f"model.args.{key}={number}: must be a number from {low:g} to {high:g}. Set model.args.{key}={low:g}"
            )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        problems.append(f"model.args.seed={seed}: must be a whole number, 0 or more. Set model.args.seed=0")
    if problems:
        raise ConfigError(problems)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
