"""A trace of torch.profiler on the clock of the stamps. Pure.

The profiler counts from a base of its own. The backend leaves marks in the profile whose names say the time at
which each was begun (`bench.clock.MARK`).
"""

from collections.abc import Sequence
from typing import Any

from bench.clock import MARK

TraceEvent = dict[str, Any]


def offset_ns(events: Sequence[TraceEvent]) -> int | None:
    """What to add to a profile's times, in nanoseconds, for those of the stamps; None for one without marks.

    A mark lies after the time in its name, so the one that lies the least after it is the truest.
    """
    marks = [event for event in events if str(event.get("name", "")).startswith(MARK) and "ts" in event]
    late = [round(event["ts"] * 1000) - int(event["name"].removeprefix(MARK)) for event in marks]
    return -min(late) if late else None


def moved(events: Sequence[TraceEvent], origin_ns: int, spans_ns: Sequence[tuple[int, int]]) -> list[TraceEvent]:
    """The profile's events in microseconds from `origin_ns`, its names and those that begin within a span.

    None of a profile that has no marks, since nothing says where its times lie.
    """
    offset = offset_ns(events)
    if offset is None:
        return []
    kept = []
    for event in events:
        if event.get("ph") == "M":
            kept.append({**event, "ts": 0})
        elif "ts" in event and not str(event.get("name", "")).startswith(MARK):
            time_ns = round(event["ts"] * 1000) + offset
            if any(start <= time_ns <= end for start, end in spans_ns):
                kept.append({**event, "ts": (time_ns - origin_ns) / 1000})
    return kept
