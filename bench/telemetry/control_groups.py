"""What of the machine this process may use: cores and memory, as control groups (containers) allow."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Cores this process can keep busy: of the CPUs it may run on, what its cgroup's quota allows.

    A part of a core is left out: a thread for it would be stopped for part of each period.
    """
    quota = cpu_quota(root)
    allowed = len(affinity() or range(os.cpu_count() or 1))
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs' worth of time that the control group, or one above it, allows; None without a limit."""
    pairs = [text_of(directory / "cpu.max").split() for directory in control_groups(root, "")]
    for directory in control_groups(root, "cpu"):
        pairs.append([text_of(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period")])
    # Without a limit the quota reads "max" in version 2 and "-1" in version 1.
    limits = [int(p[0]) / int(p[1]) for p in pairs if len(p) == 2 and all(map(str.isdigit, p))]
    return min(limits, default=None)


def memory(root: Path = _ROOT) -> dict[str, int]:
    """`total_bytes` and `available_bytes` of the machine, or of the tightest control group around us."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    for controller, limit_name, usage_name, prefix in (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        for directory in control_groups(root, controller):
            limit = text_of(directory / limit_name)
            # Version 1 writes "no limit" as a number larger than any machine.
            if not limit.isdigit() or int(limit) > machine.total:
                continue
            stat = dict(line.split(" ", 1) for line in text_of(directory / "memory.stat").splitlines())
            # Cached files are given up when memory is wanted.
            cached = sum(int(stat.get(f"{prefix}{state}_file", 0)) for state in ("inactive", "active"))
            used = int(text_of(directory / usage_name) or 0) - cached
            total = min(total, int(limit))
            available = min(available, max(0, int(limit) - used))
    return {"total_bytes": total, "available_bytes": available}


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of our control group and those above it; `controller` is "" for version 2.

    In a container the path in /proc may be the host's and not be there: what is above it then is.
    """
    base = root / "sys/fs/cgroup" / controller
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = base / path.lstrip("/")
            yield from (d for d in (own, *own.parents) if d.is_relative_to(base) and d.is_dir())


def affinity() -> list[int] | None:
    """Numbers of the CPUs this process may run on; None where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def text_of(path: Path) -> str:
    """The file's text, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
