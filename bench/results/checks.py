"""The checks that a run makes of itself, of what would make a number of it wrong."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.config import Settings
from bench.queues.digest import DigestPlan
from bench.results.metrics import Stamps
from bench.results.pace import behind
from bench.results.record import Verdict
from bench.stamps import COMPLETED, INTENDED, SENT, STAMPS

_CANNOT_CHECK = 10  # references of different payloads must differ by more than so many tolerances
# Little's law holds to within so much, or so much over the root of the number of requests, but never more
# than so much; and so many nanoseconds a request, since the frontend counts an answer a little after its stamp, and
# for as many as were in flight at once the time for which another program may take the frontend's core meanwhile.
_LITTLE = (0.05, 4.0, 0.5)
_COUNTED_LATE_NS = 20_000
_LOST_CORE_NS = 10_000_000


def judge(
    settings: Settings,
    stamps: Stamps,
    backend: Mapping[str, Any],
    digests: bytes | None,
    plan: DigestPlan | None,
    in_flight_ns: int | None = None,
) -> Verdict:
    """The verdict on a run that ended by itself.

    Args:
        digests: the kept bytes of every answer.
        in_flight_ns: requests in flight, counted while the window was measured, integrated over it.

    Returns:
        A verdict whose warnings are of the answers only; `cautions` has the others.
    """
    reasons = [*_counted(stamps), *_ordered(stamps), *_as_asked(settings, backend)]
    measured = stamps[1 + settings.warmup_iters :]
    reasons += [*_behind(settings, measured), *_little(measured, in_flight_ns)]
    warnings: list[str] = []
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
        "streams": settings.streams,
        "buffers": settings.buffers if str(backend.get("device")).startswith("cuda") else 0,
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


def _behind(settings: Settings, measured: Stamps) -> list[str]:
    """A client that did not keep to its schedule measured another load than was asked."""
    sent = measured[measured[:, SENT] > 0]
    if not settings.load.is_open or not len(sent):
        return []
    pace = behind(sent[:, INTENDED], sent[:, SENT])
    if not pace.fell_behind:
        return []
    return [
        f"the client fell behind: {pace.late_share:.1%} of the requests were sent late, "
        f"up to {pace.delay['max']:.3g} s. Lower load.rate, or leave a core to the client"
    ]


def _little(measured: Stamps, in_flight_ns: int | None) -> list[str]:
    """Little's law: the requests in flight, counted as they came and went, against the latencies in the stamps."""
    answered = measured[measured[:, COMPLETED] > 0]
    if not in_flight_ns or not len(answered):
        return []
    stamped = int((answered[:, COMPLETED] - answered[:, SENT]).sum())
    count = len(answered)
    tolerance = min(_LITTLE[2], max(_LITTLE[0], _LITTLE[1] / math.sqrt(count))) * stamped
    tolerance += _COUNTED_LATE_NS * count + _LOST_CORE_NS * _most_in_flight(answered)
    if abs(in_flight_ns - stamped) <= tolerance:
        return []
    span = int(answered[:, COMPLETED].max() - answered[:, SENT].min())
    return [
        f"Little's law is broken: {in_flight_ns / span:.3g} requests were in flight on average, "
        f"throughput times mean latency is {stamped / span:.3g}"
    ]


def _most_in_flight(answered: Stamps) -> int:
    """Requests that were in flight at once."""
    sent, completed = np.sort(answered[:, SENT]), np.sort(answered[:, COMPLETED])
    return int((np.arange(1, len(sent) + 1) - np.searchsorted(completed, sent)).max())


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
