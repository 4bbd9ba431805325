"""The checks that a run makes of itself: what would make a number wrong, what a reader should know."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.config import Settings
from bench.queues.digest import DigestPlan
from bench.results.metrics import Stamps
from bench.results.record import Verdict
from bench.stamps import COMPLETED, SENT, STAMPS

_CANNOT_CHECK = 10  # references of different payloads must differ by more than so many tolerances
_SHORT_NS = 1_000_000_000
_FEW = 30
_OVERHEADS = 20  # of the harness, that a request must take to be more than the harness


def judge(
    settings: Settings,
    stamps: Stamps,
    backend: Mapping[str, Any],
    digests: bytes | None,
    plan: DigestPlan | None,
    overhead_us: float | None = None,
) -> Verdict:
    """The verdict on a run that ended by itself.

    Args:
        digests: the kept bytes of every answer.
        overhead_us: what the harness costs for each request, where it was calibrated.
    """
    reasons = [*_counted(stamps), *_ordered(stamps), *_as_asked(settings, backend)]
    measured = stamps[1 + settings.warmup_iters :]
    warnings = [*_short(measured), *_harness(measured, overhead_us)]
    if settings.verify and digests is not None and plan is not None and "references" in backend:
        wrong, doubts = check_answers(digests, plan, str(backend["output_dtype"]), backend["references"], len(stamps))
        reasons += wrong
        warnings += doubts
    elif settings.verify:
        warnings.append("answers were not checked: the backend gave no references")
    return Verdict("invalid" if reasons else "valid", reasons, warnings)


def _counted(stamps: Stamps) -> list[str]:
    sent, answered = int((stamps[:, SENT] > 0).sum()), int((stamps[:, COMPLETED] > 0).sum())
    if sent == answered == len(stamps):
        return []
    return [f"{len(stamps)} requests were due, {sent} were sent and {answered} answered"]


def _ordered(stamps: Stamps) -> list[str]:
    """Stamps of one request must not go back in time. A stage that was not stamped (0) is passed over."""
    latest = np.maximum.accumulate(stamps, axis=1)
    wrong = (stamps < latest) & (stamps > 0)
    wrong[:, SENT] &= stamps[:, SENT] < stamps[:, 0]
    if not wrong.any():
        return []
    row, column = (int(k) for k in np.argwhere(wrong)[0])
    count = int(wrong.any(axis=1).sum())
    return [f"stamps out of order in {count} requests, first {STAMPS[column]} of request {row}"]


def _as_asked(settings: Settings, backend: Mapping[str, Any]) -> list[str]:
    """What the backend says it ran, against what was asked."""
    device = settings.device.name
    wanted: dict[str, Any] = {
        "dtype": settings.model.dtype,
        "input_shape": list(settings.payload_shape),
        "compiled": settings.compile,
        "stream_layout": settings.stream_layout.name,
        "compute_threads": settings.compute_threads,
        "buffers": settings.buffers,
        "compilations_in_window": 0,
    }
    if device != "auto":
        wanted["device"] = f"cuda:{settings.device.index}" if device == "cuda" else device
    if settings.stream_layout.intraop_threads is not None:
        wanted["intraop_threads"] = settings.stream_layout.intraop_threads
    reasons = [
        f"the backend ran {key}={backend.get(key)} where {value} was asked"
        for key, value in wanted.items()
        if backend.get(key) != value
    ]
    if settings.compile and backend.get("compilations") == 0:
        reasons.append("compile=true, but the compiler made no graph")
    return reasons


def _short(measured: Stamps) -> list[str]:
    answered = measured[measured[:, COMPLETED] > 0]
    if not len(answered):
        return []
    span = int(answered[:, COMPLETED].max() - answered[:, SENT].min())
    warnings = []
    if span < _SHORT_NS:
        warnings.append(f"short: the measured window took less than {_SHORT_NS / 1e9:g} s")
    if len(answered) < _FEW:
        warnings.append(f"short: fewer than {_FEW} measured requests")
    return warnings


def _harness(measured: Stamps, overhead_us: float | None) -> list[str]:
    """A run in which the harness is no small part of what a request costs."""
    answered = measured[measured[:, COMPLETED] > 0]
    if overhead_us is None or not len(answered):
        return []
    each_us = int(answered[:, COMPLETED].max() - answered[:, SENT].min()) / len(answered) / 1e3
    if each_us >= _OVERHEADS * overhead_us:
        return []
    return [
        f"measures the harness: a request took {each_us:.3g} µs, less than {_OVERHEADS} times the "
        f"{overhead_us:.3g} µs that the harness itself costs"
    ]


def check_answers(
    digests: bytes, plan: DigestPlan, dtype: str, references: Mapping[str, Any], count: int
) -> tuple[list[str], list[str]]:
    """Compare what was kept of `count` answers with the references.

    Returns:
        Reasons (wrong answers) and doubts (references too alike to tell payloads apart).
    """
    expected = np.asarray(references["values"], dtype=np.float64)  # (payloads, elements)
    kept = decode(digests, plan, dtype, count)
    tolerance = references["rtol"] * np.abs(expected) + references["atol"] * np.abs(expected).max()
    doubts = []
    if len(expected) < 2:
        doubts.append("answers could not be checked: with one payload every answer is the same. Set payloads=4")
    else:
        gaps = [
            float((np.abs(expected[a] - expected[b]) / np.maximum(tolerance[a], 1e-300)).max())
            for a in range(len(expected))
            for b in range(a)
        ]
        if min(gaps) < _CANNOT_CHECK:
            doubts.append("answers could not be checked: different payloads have too similar answers")
    payload = np.arange(count) % len(expected)
    wrong = ~(np.abs(kept - expected[payload]) <= tolerance[payload]).all(axis=1)  # NaN is wrong, too
    if not wrong.any():
        return [], doubts
    first = int(np.argmax(wrong))
    return [
        f"{int(wrong.sum())} of {count} answers are wrong, first that to request {first}: "
        f"{kept[first, 0]:g} where {expected[payload[first], 0]:g} was due"
    ], doubts


def decode(digests: bytes, plan: DigestPlan, dtype: str, count: int) -> npt.NDArray[np.float64]:
    """The kept elements as numbers, `(count, elements)`."""
    raw = np.frombuffer(digests, dtype=f"u{plan.itemsize}").reshape(-1, plan.stride)[:count, : plan.elements]
    if dtype == "bfloat16":  # the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.ascontiguousarray(raw).view(np.dtype(dtype)).astype(np.float64)
