"""The slices of a run's timeline: the way of each request through the two processes, as Chrome trace events. Pure.

The slices of a request lie end to end, from the time at which it was to be sent to its completion, and arrows join
them. Each worker has a track for what it computed. Where slices of one track overlap, as the copies of several
workers do, they lie on lanes of it. Waits overlap freely, as asynchronous events; a viewer sorts their tracks by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.results.metrics import Stamps
from bench.results.profile import TraceEvent
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

PID = 2**22  # beyond every process id, so that none in a profile is the same


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
# The stages of the cold first request are not told apart, and no worker is there yet.
_COLD = (*STAGES[:3], Stage("load, compile, compute", "compute", RECEIVED, REPLIED), *STAGES[-2:])
_ORDER = list(dict.fromkeys(stage.track for stage in STAGES))


@dataclass
class Slice:
    """One stage of one request.

    Attributes:
        worker: which one computed the request; -1 where there are none.
        start, end: in nanoseconds.
        is_open: it had not ended when the run had.
        lane, tid: where it is drawn: see `placed`.
    """

    stage: Stage
    request: int
    worker: int
    start: int
    end: int
    is_first: bool
    is_last: bool
    is_open: bool
    lane: int = 0
    tid: int = PID

    @property
    def track(self) -> str:
        """What its track is called."""
        return f"worker-{self.worker}" if self.stage.track == "compute" and self.worker >= 0 else self.stage.track

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


def slices_of(drawn: Sequence[int], rows: Stamps, workers: Sequence[int], end: int) -> Iterator[Slice]:
    """The stages of each request whose both stamps were taken; and the one that had begun when the run ended."""
    for request, row, worker in zip(drawn, rows.tolist(), workers, strict=True):
        made = []
        for stage in STAGES if request else _COLD:
            start, stop = row[stage.start], row[stage.end]
            if start and stop:
                made.append(Slice(stage, request, worker, start, max(start, stop), False, False, False))
            elif start and not any(row[stage.end :]):
                made.append(Slice(stage, request, worker, start, end, False, False, True))
        made.sort(key=lambda slice_: slice_.start)  # stamps of an invalid run may be out of order
        if made:
            made[0].is_first = made[-1].is_last = True
        yield from made


def placed(slices: list[Slice]) -> list[Slice]:
    """The same, each on a lane of its track; a request's own slices on one track share a lane."""
    tracks: dict[tuple[int, int], dict[int, list[Slice]]] = {}
    for slice_ in slices:
        if not slice_.stage.is_wait:
            place = _ORDER.index(slice_.stage.track), slice_.worker if slice_.stage.track == "compute" else -1
            tracks.setdefault(place, {}).setdefault(slice_.request, []).append(slice_)
    tid = PID
    for _, track in sorted(tracks.items()):
        free: list[int] = []  # when each lane becomes so
        for group in sorted(track.values(), key=lambda g: (g[0].start, g[-1].end)):
            lane = next((k for k, time in enumerate(free) if time <= group[0].start), len(free))
            free[lane : lane + 1] = [group[-1].end]
            for slice_ in group:
                slice_.lane, slice_.tid = lane, tid + 1 + lane
        tid += len(free)
    return slices
