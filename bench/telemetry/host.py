"""The host's counters, read through psutil. What cannot be read is absent, never 0."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import psutil

# Looking for children walks the machine's process table (milliseconds), reading one process does not.
_CHILDREN_EVERY_S = 1.0
# The kernel counts CPU time in ticks of 10 ms: over less than this a share of it is noise.
_SHORTEST_S = 0.05


class HostReader:
    """Reads the machine's CPU use and load, and the CPU use and memory of the named processes.

    `pids` names processes: {"backend": 123} gives `backend_cpu_util` and `backend_rss_bytes`, each
    the sum over that process and its descendants. CPU use is in percent of the time since the last
    read: of all cores for the machine (0 to 100), of one core for a process (0 to 100 x cores).
    The resident memory holds pages that a process shares with others.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._trees = {name: _ProcessTree(pid) for name, pid in pids.items()}
        self._machine = _machine_times()
        self._read_at = time.perf_counter()

    def read(self) -> dict[str, float]:
        """What is known now. CPU use is absent on the first read and on one that follows at once."""
        now = time.perf_counter()
        elapsed_s = now - self._read_at
        values: dict[str, float] = {}
        for name, tree in self._trees.items():
            values.update({f"{name}_{key}": value for key, value in tree.read(now).items()})
        if elapsed_s >= _SHORTEST_S:
            self._read_at = now
            before, self._machine = self._machine, _machine_times()
            if before and self._machine and self._machine[1] > before[1]:
                share = (self._machine[0] - before[0]) / (self._machine[1] - before[1])
                values["cpu_util"] = 100 * min(max(share, 0.0), 1.0)
        with contextlib.suppress(OSError):
            values["load1"] = psutil.getloadavg()[0]
        return values


class _ProcessTree:
    """One process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._members: list[psutil.Process] = []
        self._listed_at = -_CHILDREN_EVERY_S
        self._seconds: dict[psutil.Process, float] = {}  # CPU seconds of each at `_counted_at`
        self._counted_at = 0.0
        self._root: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._root = psutil.Process(pid)

    def read(self, now: float) -> dict[str, float]:
        """`cpu_util` and `rss_bytes`; empty for a process that has ended."""
        seconds: dict[psutil.Process, float] = {}
        rss = 0
        for process in self._list_members(now):
            # Suppressed: it ended since it was listed, or it may not be read.
            with contextlib.suppress(psutil.Error), process.oneshot():
                if process.status() != psutil.STATUS_ZOMBIE:
                    times = process.cpu_times()
                    rss += process.memory_info().rss
                    seconds[process] = times.user + times.system
        if self._root not in seconds:
            return {}
        values: dict[str, float] = {"rss_bytes": rss}
        elapsed_s = now - self._counted_at
        if elapsed_s >= _SHORTEST_S:
            if self._root in self._seconds:
                # Only members counted both times: one that ended must not make the difference negative.
                used_s = sum(s - self._seconds[p] for p, s in seconds.items() if p in self._seconds)
                values["cpu_util"] = 100 * used_s / elapsed_s
            self._seconds, self._counted_at = seconds, now
        return values

    def _list_members(self, now: float) -> list[psutil.Process]:
        if self._root and now - self._listed_at >= _CHILDREN_EVERY_S:
            self._listed_at, self._members = now, [self._root]
            with contextlib.suppress(psutil.Error):
                self._members += self._root.children(recursive=True)
        return self._members


def _machine_times() -> tuple[float, float] | None:
    """Busy and all CPU seconds of the machine since its start."""
    try:
        times: Any = psutil.cpu_times()
    except OSError:
        return None
    # Linux counts guests within `user` and `nice` already, and waiting for a disk is not work.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total
