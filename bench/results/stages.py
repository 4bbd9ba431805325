"""Where the latency goes: shares and percentiles of the stages, and what the slowest requests waited for. Pure.

Of stamps only answered requests count. Seconds leave this module, nanoseconds stay inside.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.results.metric_names import metric
from bench.results.metrics import PERCENTILES, STAGES, Stamps, answered, durations, percentile, requests_needed
from bench.results.overlap import length, union
from bench.stamps import COMPLETED, COMPUTE_START, SENT

TAIL_NEEDS = 20  # requests, so that the slowest 5 and the middle 5 have others between them
_AT_LEAST = 5  # requests of a group
_SLOWEST, _MIDDLE = 100, 10  # one in so many requests is in the group
_NO_TAIL = 1.2  # times the median, up to which there is nothing to explain
_MOST = 0.5  # of the difference; a stage that explains less is not named alone
_ALWAYS = 0.9  # share of the window in which a request waits, from which on the backend is saturated

# What it means when most of a difference is this stage, and what to try. The waits for a worker have two meanings.
ADVICE: Mapping[str, tuple[str, str]] = {
    "schedule_delay": (
        "the client sent late, and the backend is not to blame",
        "leave a core to the client (stream_layout.intraop_threads, num_workers), lower load.rate, use fewer processes",
    ),
    "queue_wait": (
        "requests came faster, at times, than the backend takes them",
        "more num_workers, compile=true or a faster model, so that bunches drain sooner; or a lower load.rate",
    ),
    "h2d": (
        "copies to the device were held up",
        "queue=shared_memory, whose memory is pinned, or a smaller batch_size or dtype",
    ),
    "compute_wait": (
        "requests came faster, at times, than the workers take them",
        "more num_workers, compile=true or a faster model, so that bunches drain sooner; or a lower load.rate",
    ),
    "compute": (
        "the forward pass itself took longer",
        "look for throttling and other load in the warnings, try fewer num_workers, and profile=true to see its parts",
    ),
    "d2h_wait": (
        "answers waited to be copied back",
        "stream_layout=async, where each worker copies its own answers, or fewer num_workers",
    ),
    "d2h": (
        "copies back to the host were held up",
        "queue=shared_memory, whose memory is pinned, or a model that answers with less",
    ),
    "respond": (
        "answers waited until the client took them",
        "leave a core to the client (stream_layout.intraop_threads, num_workers), or queue=shared_memory",
    ),
}
_SATURATED = (
    "the backend is saturated",
    "a lower load.rate or fewer load.clients, or more throughput: larger batch_size, more num_workers, compile=true",
)
_BACKLOG = (
    "all requests were sent at once, so this is the backlog, the time that those before them take",
    "load=closed, constant or poisson to see latencies that do not depend on num_iters",
)


@dataclass(frozen=True)
class Tail:
    """The slowest requests beside ordinary ones; all times are means in seconds.

    Attributes:
        slow: the latency and each stage of the slowest 1 % (at least 5).
        middle: the same of the middle 10 % by latency (at least 5), those around the median.
        explains: the share of the difference in latency that each stage holds; sums to 1, and a
            stage that was shorter in the slow requests has a negative one. Empty where there is no difference.
        stage: the stage that explains most of it; None where there is no tail.
        sentence: all this in words; `advice`: what to try, empty where there is nothing.
    """

    slow: dict[str, float]
    middle: dict[str, float]
    slow_requests: int
    middle_requests: int
    explains: dict[str, float]
    stage: str | None
    sentence: str
    advice: str


def missing_percentiles(n: int) -> dict[str, int]:
    """The percentiles that `n` requests do not support, and how many more each needs."""
    needed = {name: requests_needed(quantile) for name, quantile in PERCENTILES.items()}
    return {name: most - n for name, most in needed.items() if most > n}


def stage_shares(stamps: Stamps) -> dict[str, float]:
    """Mean of each stage over the mean latency; they sum to 1. Empty without answers that took time."""
    each = durations(answered(stamps))
    total = int(each["latency"].sum())
    return {name: int(each[name].sum()) / total for name in STAGES} if total else {}


def stage_metrics(stamps: Stamps) -> dict[str, float]:
    """Mean (`queue_wait`) and supported percentiles (`queue_wait_p99`) of each stage and of the service latency."""
    each = durations(answered(stamps))
    metrics: dict[str, float] = {}
    for name in (*STAGES, "service_latency"):
        ordered = np.sort(each[name])
        if not len(ordered):
            continue
        metrics[name] = float(ordered.mean()) / 1e9
        for label, quantile in PERCENTILES.items():
            if len(ordered) >= requests_needed(quantile):
                metrics[f"{name}_{label}"] = percentile(ordered, quantile) / 1e9
    return metrics


def tail_evidence(stamps: Stamps, *, burst: bool = False) -> Tail | None:
    """What the slowest of the measured requests waited for; None for fewer than `TAIL_NEEDS` answers.

    Args:
        burst: all requests were sent at once, so a long latency is a place at the end of the queue.
    """
    rows = answered(stamps)
    if len(rows) < TAIL_NEEDS:
        return None
    each = durations(rows)
    by_latency = np.argsort(each["latency"], kind="stable")
    slow_rows = by_latency[-max(_AT_LEAST, len(rows) // _SLOWEST) :]
    count = max(_AT_LEAST, len(rows) // _MIDDLE)
    first = (len(rows) - count) // 2
    slow, middle = _means(each, slow_rows), _means(each, by_latency[first : first + count])
    difference = slow["latency"] - middle["latency"]
    explains = {name: (slow[name] - middle[name]) / difference for name in STAGES} if difference > 0 else {}
    headline, ratio = _headline(each["latency"][by_latency], slow, middle, len(slow_rows))
    stage, sentence, advice = None, f"{headline}: no tail to explain", ""
    if explains and ratio > _NO_TAIL:
        stage = max(explains, key=lambda name: explains[name])
        meaning, advice = _meaning(stage, rows, burst)
        sentence = f"{headline}; {_named(explains)}: {meaning}"
    return Tail(slow, middle, len(slow_rows), count, explains, stage, sentence, advice)


def _means(each: Mapping[str, npt.NDArray[np.int64]], rows: npt.NDArray[np.intp]) -> dict[str, float]:
    return {name: float(each[name][rows].mean()) / 1e9 for name in ("latency", *STAGES)}


def _headline(
    ordered: npt.NDArray[np.int64], slow: Mapping[str, float], middle: Mapping[str, float], count: int
) -> tuple[str, float]:
    """How far the tail is from the middle, by percentiles where there are enough requests for p99."""
    if len(ordered) >= requests_needed(PERCENTILES["p99"]):
        ratio = percentile(ordered, 0.99) / max(1, percentile(ordered, 0.5))
        return f"p99 is {ratio:.3g} times p50", ratio
    ratio = slow["latency"] / max(1e-9, middle["latency"])
    return f"the slowest {count} of {len(ordered)} requests took {ratio:.3g} times as long as those around p50", ratio


def _meaning(stage: str, rows: Stamps, burst: bool) -> tuple[str, str]:
    """What a tail made of this stage means, and what to try."""
    if stage not in ("queue_wait", "compute_wait"):
        return ADVICE[stage]
    if burst:
        return _BACKLOG
    waiting = union(rows[:, [SENT, COMPUTE_START]])
    share = length(waiting) / max(1, int(rows[:, COMPLETED].max() - rows[:, SENT].min()))
    meaning, advice = _SATURATED if share >= _ALWAYS else ADVICE[stage]
    return f"{meaning} (a request was waiting {100 * share:.0f} % of the time)", advice


def _named(explains: Mapping[str, float]) -> str:
    """The stage that explains most of the difference; the second, too, where the first is not half of it."""
    (first, share), (second, next_share) = sorted(explains.items(), key=lambda item: -item[1])[:2]
    if share < _MOST:
        parts = f"{_words(first)} ({100 * share:.0f} %) and {_words(second)} ({100 * next_share:.0f} %)"
        return f"no stage is most of the difference, {parts} come first"
    return f"{'all' if share > 0.995 else f'{100 * share:.0f} %'} of the difference is {_words(first)}"


def _words(stage: str) -> str:
    return f"the {metric(stage).words}" if stage in ("h2d", "d2h") else metric(stage).words
