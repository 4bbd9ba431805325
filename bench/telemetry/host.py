"""The host's counters. What cannot be read is absent, never 0."""

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import psutil

from bench.queues.memory import Descriptor

# Looking for children walks the machine's process table (milliseconds), reading one process does not.
_CHILDREN_EVERY_S = 10.0
# The kernel counts the machine's CPU time in ticks of 10 ms: over less than this a share of it is noise.
_SHORTEST_S = 0.05
_HELD_UP_S = 0.005  # what reading one process takes at most, but for a sampler that lost its core
# The machine's counters cost the kernel a walk through all interrupts (0.3 ms), so after a while they are read
# less often.
_OFTEN_S = 1.0
_MACHINE_EVERY_S = 0.45
_CPU_CLOCK = 2  # CPUCLOCK_SCHED: the clock of a process is (~pid << 3) | 2; see clock_getcpuclockid(3)
_PAGE = os.sysconf("SC_PAGE_SIZE")


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
        self._began = self._read_at = time.perf_counter()

    def read(self) -> dict[str, float]:
        """What is known now. CPU use is absent on the first read and on one that follows at once.

        After the first second the machine's own figures are absent from most reads.
        """
        now = time.perf_counter()
        values: dict[str, float] = {}
        for name, tree in self._trees.items():
            values.update({f"{name}_{key}": value for key, value in tree.read().items()})
        if now - self._read_at >= (_SHORTEST_S if now - self._began < _OFTEN_S else _MACHINE_EVERY_S):
            self._read_at = now
            before, self._machine = self._machine, _machine_times()
            if before and self._machine and self._machine[1] > before[1]:
                share = (self._machine[0] - before[0]) / (self._machine[1] - before[1])
                values["cpu_util"] = 100 * min(max(share, 0.0), 1.0)
            with contextlib.suppress(OSError):
                values["load1"] = os.getloadavg()[0]
        return values


class _ProcessTree:
    """One process and its descendants: each a clock of its CPU time and an open `/proc/PID/statm`.

    A sample takes a core from the very run that it watches; through psutil it took 0.8 ms of a busy machine,
    which slowed a forward pass on all cores by 4 %.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[int, Descriptor] = {}
        self._listed_at = -_CHILDREN_EVERY_S
        self._seconds: dict[int, float] = {}  # CPU seconds of each at `_counted_at`
        self._counted_at = 0.0

    def read(self) -> dict[str, float]:
        """`cpu_util` and `rss_bytes`; empty for a process that has ended.

        Without CPU use where the sampler itself lost its core meanwhile: a time and a count that were not taken
        together make a share of more cores than there are.
        """
        seconds: dict[int, float] = {}
        rss = 0
        members = self._list_members(time.perf_counter())
        now = time.perf_counter()
        for pid, file in members.items():
            # Suppressed: it ended since it was listed, or it may not be read.
            with contextlib.suppress(OSError):
                if pages := int(
                    os.pread(file.fd, 4096, 0).split()[1]
                ):  # none: it has ended, and nobody has waited for it
                    rss += pages * _PAGE
                    seconds[pid] = time.clock_gettime(~pid << 3 | _CPU_CLOCK)
        if self._pid not in seconds:
            return {}
        values: dict[str, float] = {"rss_bytes": rss}
        elapsed_s = now - self._counted_at
        if elapsed_s >= _SHORTEST_S and time.perf_counter() - now < _HELD_UP_S:
            if self._pid in self._seconds:
                # Only members counted both times: one that ended must not make the difference negative.
                used_s = sum(s - self._seconds[p] for p, s in seconds.items() if p in self._seconds)
                values["cpu_util"] = 100 * used_s / elapsed_s
            self._seconds, self._counted_at = seconds, now
        return values

    def _list_members(self, now: float) -> dict[int, Descriptor]:
        if now - self._listed_at >= _CHILDREN_EVERY_S:
            self._listed_at = now
            pids = [self._pid]
            with contextlib.suppress(psutil.Error):
                pids += [child.pid for child in psutil.Process(self._pid).children(recursive=True)]
            for pid in self._files.keys() - set(pids):
                self._files.pop(pid).close()
            for pid in set(pids) - self._files.keys():
                with contextlib.suppress(OSError):
                    self._files[pid] = Descriptor(os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC))
        return self._files


def _machine_times() -> tuple[float, float] | None:
    """Busy and all CPU seconds of the machine since its start."""
    try:
        times: Any = psutil.cpu_times()
    except OSError:
        return None
    # Linux counts guests within `user` and `nice` already, and waiting for a disk is not work.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total
