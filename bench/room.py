"""What there is of everything that a run takes: memory, /dev/shm, descriptors, tasks, disk. Imports no torch."""

import contextlib
import os
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.backend.checkpoints import cache_directory
from bench.config import Settings
from bench.telemetry.control_groups import control_groups, memory

_ROOT = Path("/")
_OOM_FILES = (("", "memory.events"), ("memory", "memory.oom_control"))  # of control groups, version 2 and 1


@dataclass(frozen=True)
class Room:
    """What is free, in bytes and counts.

    Attributes:
        memory: of the machine, or of the tightest control group around us, without swap.
        memory_limit: what that control group allows in all; None where the machine is the limit.
        shm: of /dev/shm.
        descriptors: how many files one process may have open.
        tasks: processes and threads that the control group still allows; None without a limit.
        output: of the disk that results go to.
        compile: of the disk on which the compiler keeps what it makes.
        output_place, compile_place: directories on these disks.
    """

    memory: int
    memory_limit: int | None
    shm: int
    descriptors: int
    tasks: int | None
    output: int
    compile: int
    output_place: str
    compile_place: str


def room(settings: Settings, output: Path, root: Path = _ROOT) -> Room:
    """What is free now for a run that writes to `output`; `root` is where /proc, /sys and /dev are."""
    known = memory(root)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    compile_place = Path(tempfile.gettempdir()) if settings.compile_cache == "cold" else cache_directory(settings)
    return Room(
        memory=known["available_bytes"],
        memory_limit=known["total_bytes"] if known["total_bytes"] < machine else None,
        shm=free_bytes(root / "dev/shm"),
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        tasks=_free_tasks(root),
        output=free_bytes(output),
        compile=free_bytes(compile_place),
        output_place=str(output),
        compile_place=str(compile_place),
    )


def free_bytes(place: Path) -> int:
    """Free bytes of the disk that `place` lies on, or will lie on."""
    disk = os.statvfs(existing(place))
    return disk.f_bavail * disk.f_frsize


def existing(place: Path) -> Path:
    """`place`, or the nearest directory above it that is there."""
    place = place.expanduser().absolute()
    return next((path for path in (place, *place.parents) if os.path.lexists(path)), place)


def unwritable(place: Path) -> str | None:
    """Why no file can be made in `place`, or below the nearest directory above it; None where it can."""
    try:
        with tempfile.TemporaryFile(dir=existing(place)) as probe:
            probe.write(b"\0")
    except OSError as error:
        return error.strerror or str(error)
    return None


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes the kernel has killed in our control group for want of memory; elsewhere where it has none."""
    for controller, name in _OOM_FILES:
        for directory in control_groups(root, controller):
            if (count := _counter(directory / name)) is not None:
                return count
    return _counter(root / "proc/vmstat") or 0


def _counter(file: Path) -> int | None:
    """The number after `oom_kill`."""
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _free_tasks(root: Path) -> int | None:
    free = []
    for controller in ("", "pids"):
        for directory in control_groups(root, controller):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                most = int((directory / "pids.max").read_text())
                free.append(max(0, most - int((directory / "pids.current").read_text())))
    return min(free, default=None)
