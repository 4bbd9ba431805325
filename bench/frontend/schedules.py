"""Open-loop schedules: when each request is meant to be sent, planned whole before the clock starts. Pure.

A schedule is an int64 array of offsets in nanoseconds from the start of the window, in order. It ends
with `num_iters` requests or before `duration_s`, whichever comes first, and what ends earlier begins
like what ends later. It takes 8 bytes a request, and nothing is left to compute while a run is measured.

Each function raises ConfigError, naming the key, for values that make no schedule.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.errors import ConfigError

Offsets = npt.NDArray[np.int64]

RATES = (1e-3, 1e7)  # requests/s, from one in a quarter of an hour to one in 100 ns
MOST = 10**8  # requests of one schedule
LONGEST_S = 366 * 86_400.0  # nobody means a longer one, and it fits in 63 bits of nanoseconds
_CHUNK = 65_536  # intervals drawn at once
_KEYS = ("load.rate", "num_iters", "duration_s")


@dataclass(frozen=True)
class Step:
    """A stretch of a ramp at one rate (requests/s); ends after `duration_s` or `requests`, the first reached."""

    rate: float
    duration_s: float | None = None
    requests: int | None = None


@dataclass(frozen=True)
class _Plan:
    """A checked wish: the mean interval, and at most how many requests before which time."""

    interval_ns: float
    most: int
    end_ns: float


def constant(rate: float, *, num_iters: int | None = None, duration_s: float | None = None) -> Offsets:
    """Requests at equal intervals, the first at once."""
    return started(_equal(_plan(rate, num_iters, duration_s)))


def poisson(
    rate: float, rng: np.random.Generator, *, num_iters: int | None = None, duration_s: float | None = None
) -> Offsets:
    """Requests of many independent users: the intervals, the first included, are exponential."""
    return started(_exponential(_plan(rate, num_iters, duration_s), rng))


def ramp(
    steps: Sequence[Step],
    rng: np.random.Generator | None = None,
    *,
    num_iters: int | None = None,
    duration_s: float | None = None,
) -> tuple[Offsets, Offsets]:
    """Rates in steps, at equal intervals or, with `rng`, at exponential ones.

    Returns:
        The offsets, and for each request the index of its step.
    """
    if not steps:
        raise ConfigError(["load.steps=[]: a ramp has at least one. Set load.steps=[{rate: 100, duration_s: 10}]"])
    keys = [tuple(f"load.steps[{k}].{key}" for key in ("rate", "requests", "duration_s")) for k in range(len(steps))]
    plans = [_plan(step.rate, step.requests, step.duration_s, key) for step, key in zip(steps, keys, strict=True)]
    parts: list[Offsets] = []
    start = total = 0
    for step, plan in zip(steps, plans, strict=True):
        part = _equal(plan) if rng is None else _exponential(plan, rng)
        parts.append(part + start)
        total += len(part)
        if len(part) < plan.most:
            start += round(plan.end_ns)
        elif rng is None:
            start += round(min(plan.end_ns, len(part) * plan.interval_ns))
        else:  # without memory: the next step's first interval counts from the last request
            start += int(part[-1])
        if total > MOST or start > LONGEST_S * 1e9:
            raise ConfigError([f"load.steps: up to {step}, more than {MOST} requests or a year. Set fewer or shorter"])
    offsets = started(cut(np.concatenate(parts), num_iters, duration_s))
    index = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return offsets, index[: len(offsets)]


def steps_of(values: Sequence[Any]) -> list[Step]:
    """`load.steps` as YAML gives it, typed."""
    known = [item.name for item in fields(Step)]
    problems = []
    for k, value in enumerate(values):
        if not isinstance(value, Mapping) or "rate" not in value or not set(value) <= set(known):
            problems.append(
                f"load.steps[{k}]={value}: must be a mapping of rate and duration_s or requests, "
                "such as {rate: 100, duration_s: 10}"
            )
    if problems:
        raise ConfigError(problems)
    return [Step(**value) for value in values]


def cut(offsets: Offsets, num_iters: int | None, duration_s: float | None) -> Offsets:
    """Those before the end, whichever is reached first."""
    return _before(math.inf if duration_s is None else duration_s * 1e9, offsets)[:num_iters]


def started(offsets: Offsets) -> Offsets:
    """The schedule, which must not be empty."""
    if not len(offsets):
        raise ConfigError(["duration_s: ends before the first request is due. Set a longer one"])
    return offsets


def _plan(rate: float, num_iters: int | None, duration_s: float | None, keys: Sequence[str] = _KEYS) -> _Plan:
    """Check the end and the rate. `keys` are their names in messages: rate, number of requests, duration."""
    rate_key, count_key, duration_key = keys
    problems = []
    if not _within(rate, *RATES):
        problems.append(f"{rate_key}={rate}: must be a number from {RATES[0]:g} to {RATES[1]:g}, in requests/s")
    if num_iters is None and duration_s is None:
        problems.append(f"{count_key}=null, {duration_key}=null: nothing ends the load. Set one of them")
    if num_iters is not None and (not isinstance(num_iters, int) or not _within(num_iters, 1, MOST)):
        problems.append(f"{count_key}={num_iters}: must be a whole number from 1 to {MOST}")
    if duration_s is not None and not _within(duration_s, 1e-9, LONGEST_S):
        problems.append(f"{duration_key}={duration_s}: must be a number from 1e-09 to {LONGEST_S:g}, in seconds")
    if not problems:
        most_s = min(LONGEST_S + 1 if duration_s is None else duration_s, (num_iters or math.inf) / rate)
        if most_s > LONGEST_S:
            problems.append(f"{rate_key}={rate}: {num_iters} requests take over a year. Set a higher rate")
        if most_s * rate > MOST + 1:
            problems.append(f"{duration_key}={duration_s}: more than {MOST} requests. Set a shorter one or {count_key}")
    if problems:
        raise ConfigError(problems)
    return _Plan(1e9 / rate, num_iters or 2 * MOST, (duration_s or 2 * LONGEST_S) * 1e9)


def _equal(plan: _Plan) -> Offsets:
    count = min(plan.most, math.ceil(plan.end_ns / plan.interval_ns) + 1)
    return _before(plan.end_ns, np.rint(np.arange(count) * plan.interval_ns).astype(np.int64))


def _exponential(plan: _Plan, rng: np.random.Generator) -> Offsets:
    parts: list[Offsets] = []
    count, last = 0, 0.0
    while count < plan.most and last < plan.end_ns:
        drawn = rng.exponential(plan.interval_ns, min(_CHUNK, plan.most - count))
        times = np.cumsum(np.concatenate([[last], drawn]))[1:]  # the same sums, whatever the chunks
        parts.append(np.rint(times).astype(np.int64))
        count, last = count + len(times), float(times[-1])
    return _before(plan.end_ns, np.concatenate(parts))


def _before(end_ns: float, offsets: Offsets) -> Offsets:
    return offsets[: np.searchsorted(offsets, end_ns)]


def _within(value: float, low: float, high: float) -> bool:
    """Whether it is a number from `low` to `high`; NaN and true are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
