"""`timeline.json` of a run: Chrome trace events, which ui.perfetto.dev opens. Made from the run's directory alone.

What is drawn of each request is in `bench.results.slices`. Beside it: how many requests were in flight, what was
known of GPU and host, and the profiler's events where there are any.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError
from bench.results.files import write_text
from bench.results.metrics import Stamps
from bench.results.profile import TraceEvent, moved
from bench.results.raw import Sample, read_stamps, read_telemetry, read_workers
from bench.results.record import REQUESTS_FILE, Record, read_record
from bench.results.slices import PID, Slice, placed, slices_of
from bench.stamps import COMPLETED, INTENDED, SENT

TIMELINE_FILE = "timeline.json"
_MOST_SAMPLES = 1000
_MOST_COUNTS = 500  # of requests in flight, beside those at the drawn requests' own times


# Telemetry's columns that are shown: name, unit, and what of the column's unit is one of this.
_COUNTERS = {
    "gpu_util": ("GPU utilization", "%", 1),
    "gpu_power_w": ("GPU power", "W", 1),
    "gpu_sm_clock_mhz": ("GPU clock", "MHz", 1),
    "gpu_memory_used_bytes": ("GPU memory", "MiB", 2**20),
    "cpu_util": ("CPU utilization", "%", 1),
    "backend_cpu_util": ("CPU of the backend", "% of a core", 1),
    "frontend_cpu_util": ("CPU of the frontend", "% of a core", 1),
}


def write_timeline(directory: Path) -> Path | None:
    """Write the timeline of the run in `directory`, as long as its setting `timeline.max_requests` allows.

    None, and no file, where that is 0 or null, where nothing was sent, or where the stamps were taken away.

    Raises:
        BenchError: when what it is made from cannot be read, or it cannot be written.
    """
    file = directory / TIMELINE_FILE
    try:
        record = read_record(directory)
        if not (directory / REQUESTS_FILE).exists():
            return None
        most = record.settings.get("timeline", {}).get("max_requests")
        if not most or not ((stamps := read_stamps(directory))[:, SENT] > 0).any():
            return None
        rest = read_workers(directory), read_telemetry(directory), _profile(directory)
        made = timeline(record, stamps, *rest, most)
        write_text(file, json.dumps(made, separators=(",", ":")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:  # files may be anybody's
        raise BenchError(f"{file}: not written: {type(error).__name__}: {error}") from error
    return file


def timeline(
    record: Record,
    stamps: Stamps,
    workers: npt.NDArray[np.int16],
    samples: Sequence[Sample],
    profile: Sequence[TraceEvent],
    max_requests: int,
) -> dict[str, Any]:
    """The trace of at most `max_requests` requests of a run of which at least one was sent.

    `workers` has the number of the worker that computed each request, or -1.
    """
    drawn = chosen(stamps, record.settings["warmup_iters"], max_requests)
    rows = stamps[drawn]
    origin = int(rows[rows > 0].min())
    end = max(int(stamps.max()), *(int(sample["time_ns"]) for sample in samples), origin)
    slices = placed(list(slices_of(drawn, rows, workers[drawn].tolist(), end)))
    spans = _spans(drawn, rows, end)
    events = [
        *(event for slice_ in slices for event in slice_.events(origin)),
        *_in_flight(stamps, rows, spans, origin),
        *_counters(samples, origin),
        *moved(profile, origin, spans),
    ]
    names = [event for event in events if event["ph"] == "M"]
    timed = sorted((event for event in events if event["ph"] != "M"), key=lambda event: event["ts"])
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "experiment": record.experiment,
            "started_at": record.started_at,
            "verdict": record.verdict.status,
            "requests": f"{len(drawn)} of {int((stamps[:, SENT] > 0).sum())}",
            "origin_ns": origin,
        },
        "traceEvents": [*_names(slices), *names, *timed],
    }


def chosen(stamps: Stamps, warmup_iters: int, most: int) -> list[int]:
    """Which requests are drawn: the measured ones that were sent, `most` of them.

    Where there are more: the first half from the start of the window, the other around the slowest request. A run
    that measured nothing shows the last of those before.
    """
    sent = np.flatnonzero(stamps[:, SENT])
    measured = sent[sent > warmup_iters]
    if not len(measured):
        return [int(index) for index in sent[-most:]]
    if len(measured) <= most:
        return [int(index) for index in measured]
    first = most // 2
    completed, intended = stamps[measured, COMPLETED], stamps[measured, INTENDED]
    slowest = int(np.argmax(np.where(completed > 0, completed, np.iinfo(np.int64).max) - intended))
    start = min(max(first, slowest - (most - first) // 2), len(measured) - (most - first))
    return [int(index) for index in (*measured[:first], *measured[start : start + most - first])]


def _spans(drawn: Sequence[int], rows: Stamps, end: int) -> list[tuple[int, int]]:
    """From the first to the last stamp of each stretch of requests that follow one another."""
    stretches = np.split(rows, 1 + np.flatnonzero(np.diff(drawn) > 1))
    return [
        (int(rows[rows > 0].min()), int(rows.max()) if (rows[:, COMPLETED] > 0).all() else end) for rows in stretches
    ]


def _in_flight(stamps: Stamps, rows: Stamps, spans: Sequence[tuple[int, int]], origin: int) -> Iterator[TraceEvent]:
    """How many requests were in flight, drawn or not, at the drawn ones' times and on a grid between."""
    sent = np.sort(stamps[stamps[:, SENT] > 0, SENT])
    completed = np.sort(stamps[stamps[:, COMPLETED] > 0, COMPLETED])
    own = rows[:, [SENT, COMPLETED]]
    grid = np.linspace(spans[0][0], spans[-1][1], _MOST_COUNTS, dtype=np.int64)
    times = np.unique(np.concatenate([own[own > 0], grid] if len(spans) > 1 else [own[own > 0], [origin]]))
    counts = np.searchsorted(sent, times, "right") - np.searchsorted(completed, times, "right")
    for time, count in zip(times.tolist(), counts.tolist(), strict=True):
        yield _count("in flight", "requests", count, time, origin)


def _counters(samples: Sequence[Sample], origin: int) -> Iterator[TraceEvent]:
    """The samples since `origin`; of very many, every so many."""
    for sample in samples[:: 1 + len(samples) // _MOST_SAMPLES]:
        for column in _COUNTERS.keys() & sample.keys():
            name, unit, divisor = _COUNTERS[column]
            if sample["time_ns"] >= origin:
                yield _count(name, unit, sample[column] / divisor, int(sample["time_ns"]), origin)


def _count(name: str, unit: str, value: float, time_ns: int, origin: int) -> TraceEvent:
    return {"ph": "C", "name": name, "pid": PID, "tid": PID, "ts": (time_ns - origin) / 1000, "args": {unit: value}}


def _names(slices: Iterable[Slice]) -> Iterator[TraceEvent]:
    """What the process and its tracks are called, in which order."""
    lanes = {slice_.tid: slice_ for slice_ in slices if not slice_.stage.is_wait}
    several = {slice_.track for slice_ in lanes.values() if slice_.lane}
    yield _name("process_name", PID, name="requests")
    yield _name("process_sort_index", PID, sort_index=-1)
    for tid, slice_ in sorted(lanes.items()):
        track = slice_.track
        yield _name("thread_name", tid, name=f"{track} lane {slice_.lane + 1}" if track in several else track)
        yield _name("thread_sort_index", tid, sort_index=tid - PID)


def _name(kind: str, tid: int, **args: Any) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": PID, "tid": tid, "ts": 0, "args": args}


def _profile(directory: Path) -> list[TraceEvent]:
    """The events of the profiler's trace; none where the run was not profiled."""
    file = directory / "trace.json"
    if not file.exists():
        return []
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise ValueError(f"{file} is not a trace")
    return [event for event in content["traceEvents"] if isinstance(event, dict)]
