"""What control groups and affinity leave of the machine's cores and memory."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from write_files import write_files

from bench.telemetry.control_groups import cpu_quota, memory, usable_cores

MIB = 2**20


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "150000 100000"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
            },
            3.0,
        ),
        ({"proc/self/cgroup": "0::/of/the/host", "sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n1:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": ""}, None),
        ({}, None),
    ],
    ids=["v2", "v2 parent", "v2 container", "v1", "v2 unlimited", "no groups", "no /proc"],
)
def test_the_tightest_cpu_quota_counts(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    """Of the group's own and those above it, in both versions; without a limit there is none."""
    assert cpu_quota(write_files(tmp_path, files)) == quota


@pytest.mark.parametrize(("limit", "cores"), [("50000", 1), ("290000", 2), ("400000", 4), ("900000", 4), ("max", 4)])
def test_usable_cores_are_whole_ones_within_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: int
) -> None:
    """Of 4 CPUs half a one's worth of time is 1 core, 2.9 are 2, and 9 or no limit are 4."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{limit} 100000"}
    assert usable_cores(write_files(tmp_path, files)) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_usable_cores_follow_the_real_affinity() -> None:
    """A process that may run on one CPU has one core."""
    code = (
        "import os; from bench.telemetry.control_groups import usable_cores;"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/job",
            "sys/fs/cgroup/job/memory.max": str(100 * MIB),
            "sys/fs/cgroup/job/memory.current": str(80 * MIB),
            "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {30 * MIB}",
        },
        {
            "proc/self/cgroup": "4:memory:/job",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(100 * MIB),
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(80 * MIB),
            "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {30 * MIB}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    ],
    ids=["v2", "v1"],
)
def test_memory_is_the_control_groups_and_cached_files_count_as_free(tmp_path: Path, files: dict[str, str]) -> None:
    """Of a limit of 100 MiB 80 are used, 30 of them by cached files that can be given up."""
    assert memory(write_files(tmp_path, files)) == {
        "total_bytes": 100 * MIB,
        "available_bytes": 50 * MIB,
    }


def test_memory_without_a_limit_is_the_machines(tmp_path: Path) -> None:
    """A group of which the limit is `max` has none."""
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}
    assert memory(write_files(tmp_path, files))["total_bytes"] == psutil.virtual_memory().total
