"""Metrics of a run from its stamps. Pure: stamps in, numbers out; an unknown number is absent.

Durations are in seconds, as in PyTorch's benchmark, whose names keep PyTorch's meaning.
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from bench.stamps import COMPLETED, INTENDED, SENT, STAMPS

Stamps = npt.NDArray[np.int64]  # (requests, len(STAMPS)) in nanoseconds, 0 where never taken

# Stage: from its first stamp to its second. In this order they add up to the latency.
STAGES: Mapping[str, tuple[str, str]] = {
    "schedule_delay": ("intended", "sent"),
    "queue_wait": ("sent", "h2d_start"),
    "h2d": ("h2d_start", "h2d_end"),
    "compute_wait": ("h2d_end", "compute_start"),
    "compute": ("compute_start", "compute_end"),
    "d2h_wait": ("compute_end", "d2h_start"),
    "d2h": ("d2h_start", "d2h_end"),
    "respond": ("d2h_end", "completed"),
}
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
_CONFIDENCE = 0.95


def durations(stamps: Stamps) -> dict[str, npt.NDArray[np.int64]]:
    """Each stage, the latency and the service latency of each request, in nanoseconds."""
    column = {name: stamps[:, k] for k, name in enumerate(STAMPS)}
    pairs = {**STAGES, "latency": ("intended", "completed"), "service_latency": ("sent", "completed")}
    return {name: column[end] - column[start] for name, (start, end) in pairs.items()}


def requests_needed(quantile: float) -> int:
    """Requests with which the largest of them lies beyond the quantile with 95 % confidence.

    The chance that all n lie below it is quantile ** n; p99 needs 299.
    """
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log(quantile))


def percentile(ordered: npt.NDArray[np.int64], quantile: float) -> int:
    """The smallest value that at least `quantile` of the values do not exceed (nearest rank)."""
    return int(ordered[max(0, math.ceil(quantile * len(ordered)) - 1)])


def run_metrics(stamps: Stamps, batch_size: int, warmup_iters: int) -> dict[str, float]:
    """The design's metrics of one run. `stamps` holds every request: the cold first, warm-up, measured."""
    metrics: dict[str, float] = {}
    if len(stamps) and stamps[0, COMPLETED]:
        metrics["warmup_latency"] = (stamps[0, COMPLETED] - stamps[0, INTENDED]) / 1e9
    warm = answered(stamps[1 : 1 + warmup_iters])
    if len(warm):
        metrics["warmup_iters_average_latency"] = float((warm[:, COMPLETED] - warm[:, INTENDED]).mean()) / 1e9
    measured = answered(stamps[1 + warmup_iters :])
    if len(measured):
        metrics.update(window_metrics(measured, batch_size))
    return metrics


def answered(stamps: Stamps) -> Stamps:
    return stamps[(stamps[:, SENT] > 0) & (stamps[:, COMPLETED] > 0)]


def window_metrics(measured: Stamps, batch_size: int) -> dict[str, float]:
    """Metrics of the measured requests that were answered; at least one."""
    each = durations(measured)
    latency = np.sort(each["latency"])
    span = int(measured[:, COMPLETED].max() - measured[:, SENT].min())
    metrics = {
        "average_latency": float(latency.mean()) / 1e9,
        "min_latency": float(latency[0]) / 1e9,
        "max_latency": float(latency[-1]) / 1e9,
        "throughput": len(measured) * batch_size / (span / 1e9),
        "window": span / 1e9,
    }
    for name, quantile in PERCENTILES.items():
        if len(latency) >= requests_needed(quantile):
            metrics[f"latency_{name}"] = percentile(latency, quantile) / 1e9
    return metrics
