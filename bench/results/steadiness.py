"""Whether a run's window was steady, and whether an open loop's backlog grew through it. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.results.statistics import t_quantile

Times = npt.NDArray[np.int64]  # nanoseconds

_FALSE_ALARMS = 0.01  # of steady runs
_LEAST_CHANGE = 0.02  # between thirds; less is not worth a warning
_LEAST_THIRD = 9  # intervals between completions: 30 requests
_BATCHES = 5  # in a third, where each holds 10 intervals
_PAIRS = 3

_LEAST_REQUESTS = 100
_LEAST_BLOCKS, _MOST_BLOCKS = 6, 16
_BLOCK = 75  # requests, where that makes no fewer or more blocks
_GROWTH_TAIL = 0.002
_LEAST_GROWTH = 0.01  # of the sending rate

_NS = 1e9


@dataclass(frozen=True)
class Unsteady:
    """The rates of the thirds of a window, in requests/s, that differ by more than chance explains."""

    rates: tuple[float, float, float]

    def __str__(self) -> str:
        """`unsteady: 101, 110 and 120 requests/s in the three thirds of the window`."""
        first, second, third = (f"{rate:.0f}" if rate >= 1000 else f"{rate:.4g}" for rate in self.rates)
        return f"unsteady: {first}, {second} and {third} requests/s in the three thirds of the window"


@dataclass(frozen=True)
class Saturated:
    """A backlog that grows: by how many requests/s, its 95 % interval, and the sending rate in requests/s."""

    slope: float
    low: float
    high: float
    sending_rate: float

    def __str__(self) -> str:
        """`saturated: the backlog grows by 9.1 [7.2, 11] requests/s, 9 % of what is sent`."""
        share = 100 * self.slope / self.sending_rate
        return (
            f"saturated: the backlog grows by {self.slope:.3g} [{self.low:.3g}, {self.high:.3g}] requests/s, "
            f"{share:.2g} % of what is sent"
        )


def unsteady(completed_ns: Times) -> Unsteady | None:
    """Whether the rates of the thirds of a window differ by more than their confidence intervals explain.

    It looks at the intervals between completions, since under a burst latencies rise by construction. A third
    is as many completions as another. Its mean interval is known to within the spread of the means of its 3 to
    5 batches, which holds for intervals that depend on their neighbours too (batch means). Two thirds differ
    when a t-test at 1 %, Bonferroni-corrected for the three pairs, says so and the change is at least 2 %.
    A single stall is in one batch only and does not make a run unsteady.

    Args:
        completed_ns: completion times of the measured requests in any order. Under a load whose rate
            is meant to change (a ramp, a replay) the answer says nothing about the backend.

    Returns:
        None as well for fewer than 30 completions, which cannot tell.
    """
    intervals = np.diff(np.sort(completed_ns))
    third = len(intervals) // 3
    if third < _LEAST_THIRD:
        return None
    count = min(_BATCHES, max(3, third // 10))
    size = third // count
    batches = intervals[: 3 * count * size].reshape(3, count, size).mean(axis=2)
    means = batches.mean(axis=1)
    if not means.all():
        return None
    variance = float(batches.var(axis=1, ddof=1).mean())  # of one batch, the same in all thirds if the run is steady
    explained = float(t_quantile(3 * (count - 1), _FALSE_ALARMS / 2 / _PAIRS)) * np.sqrt(2 * variance / count)
    change = float(means.max() - means.min())
    if change <= explained or change < _LEAST_CHANGE * means.mean():
        return None
    first, second, last = (float(rate) for rate in _NS / means)
    return Unsteady((first, second, last))


def saturated(sent_ns: Times, completed_ns: Times) -> Saturated | None:
    """Whether the backlog of an open loop, requests sent and not completed, grew through the sending window.

    A line is fitted through the mean backlog of 6 to 16 blocks of requests. It must rise with p < 0.002 (one-sided)
    and by at least 1 % of the sending rate. Blocks count as independent, as they are when a block is long beside
    the time in which the queue forgets; where it is not, the small p makes up. Of simulated M/M/1 queues less than
    2 % are called saturated at ρ = 0.8 from 100 requests up, and 98 % at ρ = 1.1 and 2000 requests.

    Args:
        sent_ns: of each measured request.
        completed_ns: of the same requests. One never completed (0) counts as left over from before, so that
            the backlog is off by a number that is the same throughout.

    Returns:
        None as well for fewer than 100 requests, which cannot tell.
    """
    if len(sent_ns) < _LEAST_REQUESTS:
        return None
    sent = np.sort(sent_ns)
    backlog = np.arange(1, len(sent) + 1) - np.searchsorted(np.sort(completed_ns), sent, "right")
    blocks = min(_MOST_BLOCKS, max(_LEAST_BLOCKS, len(sent) // _BLOCK))
    size = len(sent) // blocks
    seconds = (sent - sent[0]) / _NS
    if not seconds[-1]:
        return None
    x, y = (values[: blocks * size].reshape(blocks, size).mean(axis=1) for values in (seconds, backlog))
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (blocks - 2) / (x @ x)))
    rate = float((len(sent) - 1) / seconds[-1])
    if slope < _LEAST_GROWTH * rate or slope <= float(t_quantile(blocks - 2, _GROWTH_TAIL)) * error:
        return None
    half = float(t_quantile(blocks - 2)) * error
    return Saturated(slope, slope - half, slope + half, rate)
