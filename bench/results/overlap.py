"""How much the streams of a device really overlapped, from the stamps of its stages."""

import numpy as np
import numpy.typing as npt

from bench.results.metrics import Stamps
from bench.stamps import COMPUTE_END, COMPUTE_START, D2H_END, D2H_START, H2D_END, H2D_START

Intervals = npt.NDArray[np.int64]  # (n, 2): start and end in nanoseconds


def overlap_metrics(stamps: Stamps) -> dict[str, float]:
    """Of answered requests on a device with copies of its own.

    Returns:
        `copy_overlap`: the share of the time in which anything was copied that a forward pass was
        also under way; `compute_concurrency`: forward passes under way while any is, on average.
        Absent where the time is 0.
    """
    copies = union(np.concatenate([stamps[:, [H2D_START, H2D_END]], stamps[:, [D2H_START, D2H_END]]]))
    passes = stamps[:, [COMPUTE_START, COMPUTE_END]]
    busy = union(passes)
    metrics = {}
    if length(copies):
        both = length(copies) + length(busy) - length(union(np.concatenate([copies, busy])))
        metrics["copy_overlap"] = both / length(copies)
    if length(busy):
        metrics["compute_concurrency"] = length(passes) / length(busy)
    return metrics


def union(intervals: Intervals) -> Intervals:
    """The same times as intervals that do not touch, in order."""
    if not len(intervals):
        return intervals
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate([[True], ordered[1:, 0] > reached[:-1]])
    ends = reached[np.concatenate([np.flatnonzero(first)[1:] - 1, [len(ordered) - 1]])]
    return np.stack([ordered[first, 0], ends], axis=1)


def length(intervals: Intervals) -> int:
    """Nanoseconds in all intervals together; what lies in two counts twice."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())
