"""`timeline.json` of a run: Chrome trace events, which ui.perfetto.dev opens. Made from the run's directory alone.

Tracks are the way of a request through the two processes, see `STAGES`; the slices of a request lie end to end,
from the time at which it was to be sent to its completion, and arrows join them. Stages that a thread works on
lie on lanes without overlap: the stamps do not say which worker ran a request, so two lanes are what was busy at
the same time, not two threads. Waits overlap freely, as asynchronous events; their tracks are sorted by name.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.results.files import write_text
from bench.results.metrics import Stamps
from bench.results.profile import TraceEvent, moved
from bench.results.raw import Sample, read_stamps, read_telemetry
from bench.results.record import Record, read_record
from bench.stamps import (
    COMPLETED,
    COMPUTE_END,
    COMPUTE_START,
    D2H_END,
    D2H_START,
    H2D_END,
    H2D_START,
    INTENDED,
    RECEIVED,
    REPLIED,
    SENT,
)

TIMELINE_FILE = "timeline.json"
PID = 2**22  # beyond every process id, so that none in a profile is the same
_MOST_SAMPLES = 1000
_MOST_COUNTS = 500  # of requests in flight, beside those at the drawn requests' own times


@dataclass(frozen=True)
class Stage:
    """One slice of a request, from stamp `start` to stamp `end`; waits overlap one another on their track."""

    name: str
    track: str
    start: int
    end: int
    is_wait: bool = False


STAGES = (
    Stage("schedule delay", "wait 1: to be sent", INTENDED, SENT, is_wait=True),
    Stage("sent", "sender", SENT, SENT),
    Stage("request queue", "wait 2: request queue", SENT, RECEIVED, is_wait=True),
    Stage("wait for h2d", "wait 3: for h2d", RECEIVED, H2D_START, is_wait=True),
    Stage("h2d", "h2d", H2D_START, H2D_END),
    Stage("wait for a worker", "wait 4: for a worker", H2D_END, COMPUTE_START, is_wait=True),
    Stage("compute", "compute", COMPUTE_START, COMPUTE_END),
    Stage("wait for d2h", "wait 5: for d2h", COMPUTE_END, D2H_START, is_wait=True),
    Stage("d2h", "d2h", D2H_START, D2H_END),
    Stage("reply", "d2h", D2H_END, REPLIED),
    Stage("response queue", "wait 6: response queue", REPLIED, COMPLETED, is_wait=True),
    Stage("completed", "receiver", COMPLETED, COMPLETED),
)
# The stages of the cold first request are not told apart.
_COLD = (*STAGES[:3], Stage("load, compile, compute", "compute", RECEIVED, REPLIED), *STAGES[-2:])

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

    None, and no file, where that is 0 or null, or where nothing was sent.

    Raises:
        BenchError: when what it is made from cannot be read, or it cannot be written.
    """
    file = directory / TIMELINE_FILE
    try:
        record = read_record(directory)
        most = record.settings.get("timeline", {}).get("max_requests")
        if not most or not ((stamps := read_stamps(directory))[:, SENT] > 0).any():
            return None
        made = timeline(record, stamps, read_telemetry(directory), _profile(directory), most)
        write_text(file, json.dumps(made, separators=(",", ":")))
    except (OSError, ValueError) as error:
        raise BenchError(f"{file}: not written: {error}") from error
    return file


def timeline(
    record: Record, stamps: Stamps, samples: Sequence[Sample], profile: Sequence[TraceEvent], max_requests: int
) -> dict[str, Any]:
    """The trace of at most `max_requests` requests of a run of which at least one was sent."""
    drawn = chosen(stamps, record.settings["warmup_iters"], max_requests)
    rows = stamps[drawn]
    origin = int(rows[rows > 0].min())
    end = max(int(stamps.max()), *(int(sample["time_ns"]) for sample in samples), origin)
    slices = _placed(list(_slices(drawn, rows, end)))
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


@dataclass
class _Slice:
    stage: Stage
    request: int
    start: int
    end: int
    is_first: bool
    is_last: bool
    is_open: bool  # it has not ended; the run has
    lane: int = 0

    def events(self, origin: int) -> Iterator[TraceEvent]:
        """One complete event, or the pair of an asynchronous one; the arrow comes from the one before."""
        stage = self.stage
        event: TraceEvent = {
            "name": stage.track if stage.is_wait else f"#{self.request} {stage.name}",
            "cat": stage.name,
            "pid": PID,
            "ts": (self.start - origin) / 1000,
            "args": {"request": self.request} | ({"unfinished": True} if self.is_open else {}),
        }
        if not (self.is_first and self.is_last):
            event |= {"bind_id": hex(self.request + 1)}
            event |= {} if self.is_first else {"flow_in": True}
            event |= {} if self.is_last else {"flow_out": True}
        if not stage.is_wait:
            yield event | {"ph": "X", "tid": self.tid, "dur": (self.end - self.start) / 1000}
            return
        pair = {"id2": {"local": hex(self.request + 1)}, "tid": PID}  # local: of this process
        yield event | {"ph": "b"} | pair
        kept = {key: event[key] for key in ("name", "cat", "pid")}
        yield kept | {"ph": "e", "ts": (self.end - origin) / 1000} | pair

    @property
    def tid(self) -> int:
        """Of its lane; in the order of the stages."""
        return PID + 1000 * (1 + _ORDER.index(self.stage.track)) + self.lane


_ORDER = list(dict.fromkeys(stage.track for stage in STAGES))


def _slices(drawn: Sequence[int], rows: Stamps, end: int) -> Iterator[_Slice]:
    """The stages of each request whose both stamps were taken; and the one that had begun when the run ended."""
    for request, row in zip(drawn, rows.tolist(), strict=True):
        made = []
        for stage in STAGES if request else _COLD:
            start, stop = row[stage.start], row[stage.end]
            if start and stop:
                made.append(_Slice(stage, request, start, max(start, stop), False, False, False))
            elif start and not any(row[stage.end :]):
                made.append(_Slice(stage, request, start, end, False, False, True))
        made.sort(key=lambda slice_: slice_.start)  # stamps of an invalid run may be out of order
        if made:
            made[0].is_first = made[-1].is_last = True
        yield from made


def _placed(slices: list[_Slice]) -> list[_Slice]:
    """The same, each on a lane of its track; a request's own slices on one track share a lane."""
    for track in _ORDER:
        groups: dict[int, list[_Slice]] = {}
        for slice_ in slices:
            if slice_.stage.track == track and not slice_.stage.is_wait:
                groups.setdefault(slice_.request, []).append(slice_)
        free: list[int] = []  # when each lane becomes so
        for group in sorted(groups.values(), key=lambda g: (g[0].start, g[-1].end)):
            lane = next((k for k, time in enumerate(free) if time <= group[0].start), len(free))
            free[lane : lane + 1] = [group[-1].end]
            for slice_ in group:
                slice_.lane = lane
    return slices


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


def _names(slices: Iterable[_Slice]) -> Iterator[TraceEvent]:
    """What the process and its tracks are called, in which order."""
    lanes = {slice_.tid: slice_ for slice_ in slices if not slice_.stage.is_wait}
    yield _name("process_name", PID, name="requests")
    yield _name("process_sort_index", PID, sort_index=-1)
    several = {slice_.stage.track for slice_ in lanes.values() if slice_.lane}
    for tid, slice_ in sorted(lanes.items()):
        track = slice_.stage.track
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
