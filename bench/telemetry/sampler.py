"""Samples the GPU and the host while a run is measured, in a process that does nothing else."""

import csv
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.child import Link
from bench.telemetry.gpu import GpuReader, load_nvml
from bench.telemetry.host import HostReader

INTERVAL_NS = 100_000_000
_NICE = 10  # a sample can wait for a moment; the run that it watches should not
MAX_ROWS = 36_000  # an hour at 10 Hz

Row = dict[str, Any]  # `time_ns` (time.perf_counter_ns()) and what was known then

_COUNTERS = ("gpu_energy_j",)  # ever growing: of these the difference is wanted, not the mean


def run_sampler(connection: "Connection[Any, Any]", pids: Mapping[str, int], interval_ns: int = INTERVAL_NS) -> None:
    """Wait for a start, sample until a stop, send back the rows.

    Protocol: receives `("start", uuid)`, with the CUDA device's UUID or None for the host alone,
    then `("stop",)`, then sends `("done", rows)` and ends. A closed connection ends it too.
    """
    nvml = load_nvml()
    try:
        while not connection.poll(60):
            pass
        _, uuid = connection.recv()
        gpu = None if uuid is None else GpuReader.find(uuid, pids.values(), nvml)
        host = HostReader(pids)
        try:
            rows = sample(lambda: {**(gpu.read() if gpu else {}), **host.read()}, connection.poll, interval_ns)
            connection.recv()
            connection.send(("done", rows))
        finally:
            if gpu:
                gpu.close()
    except (EOFError, ConnectionError):
        pass  # nobody is left who wants the rows


def serve(pids: Mapping[str, int], link: Link) -> None:
    """Entry of the sampler process, see `child.start`."""
    os.nice(_NICE)
    run_sampler(link.connection, pids)


def sample(
    read: Callable[[], Row],
    stopped: Callable[[float], bool],
    interval_ns: int = INTERVAL_NS,
    max_rows: int = MAX_ROWS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[Row]:
    """Rows of `read` at a fixed rate until `stopped(seconds)`, which waits that long, says so.

    The first row is taken at once and the last after the stop, so the rows enclose what is measured.
    Rows lie on a grid that does not drift; a late read skips what it missed. At `max_rows` every
    second row goes and the interval doubles, so that memory stays bounded however long a run is.
    """
    rows: list[Row] = []
    origin = due = clock()
    while True:
        stop = stopped(max(0, due - clock()) / 1e9)
        rows.append({"time_ns": clock(), **read()})
        if stop:
            return rows
        if len(rows) >= max_rows:
            rows = rows[::2]
            interval_ns *= 2
        due = origin + ((clock() - origin) // interval_ns + 1) * interval_ns


def means(rows: Sequence[Row], start_ns: int, end_ns: int) -> dict[str, float]:
    """Mean of each numeric column over the rows within the window; a counter's growth over it.

    A column without a value in the window is absent. NVML's own figures look back by up to a second.
    """
    inside = [row for row in rows if start_ns <= row["time_ns"] <= end_ns]
    result = {}
    for column in _columns(rows):
        if column in _COUNTERS:
            growth = _growth([(r["time_ns"], r[column]) for r in rows if column in r], start_ns, end_ns)
            if growth is not None:
                result[column] = growth
            continue
        values = [row[column] for row in inside if isinstance(row.get(column), int | float)]
        if values:
            result[column] = sum(values) / len(values)
    return result


def seen(rows: Sequence[Row], column: str, start_ns: int, end_ns: int) -> list[Any] | None:
    """All that a list-valued column (`gpu_throttle_reasons`, `other_processes`) held in the window.

    Sorted, each once; None where the column was never known.
    """
    lists = [row[column] for row in rows if column in row and start_ns <= row["time_ns"] <= end_ns]
    return sorted({item for items in lists for item in items}) if lists else None


def write_telemetry(directory: Path, rows: Sequence[Row]) -> Path | None:
    """Write `telemetry.csv`: a row a sample, blank where unknown, lists joined by spaces.

    Without rows nothing is written and None returned.
    """
    if not rows:
        return None
    path = directory / "telemetry.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["time_ns", *_columns(rows)])
        writer.writeheader()
        for row in rows:
            writer.writerow({k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})
    return path


def _columns(rows: Sequence[Row]) -> list[str]:
    """Every column that any row has, in order of first sight, but for the time."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name != "time_ns"]


def _growth(points: list[tuple[int, float]], start_ns: int, end_ns: int) -> float | None:
    """By how much a counter grew in the window, interpolated between its (time, value) points.

    Where the points cover only part of the window, the rest is taken to have gone on alike; None where
    they cover less than half of it, or where the counter was set back.
    """
    if len(points) < 2 or end_ns <= start_ns:
        return None
    low, high = max(start_ns, points[0][0]), min(end_ns, points[-1][0])
    if high - low < (end_ns - start_ns) / 2:
        return None
    growth = _value_at(points, high) - _value_at(points, low)
    return growth * (end_ns - start_ns) / (high - low) if growth >= 0 else None


def _value_at(points: list[tuple[int, float]], time_ns: int) -> float:
    """The counter at a time between its first and last point."""
    times = [time for time, _ in points]
    (t0, v0) = points[bisect_right(times, time_ns) - 1]
    (t1, v1) = points[bisect_left(times, time_ns)]
    return v0 if t1 == t0 else v0 + (v1 - v0) * (time_ns - t0) / (t1 - t0)
