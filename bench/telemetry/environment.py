"""Where a run took place: machine, versions, limits. Plain JSON values; what is unknown is absent."""

import contextlib
import copy
import functools
import hashlib
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bench.telemetry.gpu import list_gpus

_PACKAGES = (
    "inference-bench",
    "torch",
    "torchvision",
    "triton",
    "hydra-core",
    "omegaconf",
    "numpy",
    "pandas",
    "pyarrow",
    "nvidia-ml-py",
    "psutil",
)
_ROOT = Path("/")
_GIT_TIMEOUT_S = 2


def environment() -> dict[str, Any]:
    """All that is known of this machine and installation, as nested plain containers.

    What cannot change while the process lives is found once; later calls take about a millisecond.
    `gpu` is a list, or None where NVML cannot be asked. Imports no torch and makes no CUDA context.
    """
    found = copy.deepcopy(_constant())
    found["memory"] = memory()
    found["battery"] = battery()
    found["cpu"]["governor"] = governor()
    with contextlib.suppress(OSError):
        found["load_average"] = list(psutil.getloadavg())
    gpus = found.pop("gpu")
    return {**_without_none(found), "gpu": gpus}


@functools.cache
def _constant() -> dict[str, Any]:
    return {
        "hostname": _text(platform.node()),
        "machine_id": machine_id(),
        "os": operating_system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "cpu": {
            "model": cpu_model(),
            "cores": usable_cores(),
            "affinity": _affinity(),
            "quota": cpu_quota(),
        },
        "container": container(),
        "hypervisor": any(k == "flags" and "hypervisor" in v.split() for k, v in _cpuinfo()) or None,
        "git": git_state(Path(__file__).resolve().parent),
        "command": command_line(sys.argv),
        "gpu": list_gpus(),
    }


def usable_cores(root: Path = _ROOT) -> int:
    """Cores this process can keep busy: of the CPUs it may run on, what its cgroup's quota allows.

    A part of a core is left out: a thread for it would be stopped for part of each period.
    """
    quota = cpu_quota(root)
    allowed = len(_affinity() or range(os.cpu_count() or 1))
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs' worth of time that the control group, or one above it, allows; None without a limit."""
    pairs = [_read(directory / "cpu.max").split() for directory in control_groups(root, "")]
    for directory in control_groups(root, "cpu"):
        pairs.append([_read(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period")])
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
            limit = _read(directory / limit_name)
            # Version 1 writes "no limit" as a number larger than any machine.
            if not limit.isdigit() or int(limit) > machine.total:
                continue
            stat = dict(line.split(" ", 1) for line in _read(directory / "memory.stat").splitlines())
            # Cached files are given up when memory is wanted.
            cached = sum(int(stat.get(f"{prefix}{state}_file", 0)) for state in ("inactive", "active"))
            used = int(_read(directory / usage_name) or 0) - cached
            total = min(total, int(limit))
            available = min(available, max(0, int(limit) - used))
    return {"total_bytes": total, "available_bytes": available}


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of our control group and those above it; `controller` is "" for version 2.

    In a container the path in /proc may be the host's and not be there: what is above it then is.
    """
    base = root / "sys/fs/cgroup" / controller
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = base / path.lstrip("/")
            yield from (d for d in (own, *own.parents) if d.is_relative_to(base) and d.is_dir())


def machine_id(root: Path = _ROOT) -> str:
    """A short stable name of this machine that tells nothing else about it."""
    known = _read(root / "etc/machine-id") or _read(root / "var/lib/dbus/machine-id") or platform.node()
    return hashlib.sha256(f"inference-bench {known}".encode()).hexdigest()[:12]


def operating_system() -> str:
    """Name and version, such as "Debian GNU/Linux 12 (bookworm)"."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME") or platform.system()
    except OSError:
        return platform.system()


def cpu_model() -> str | None:
    """The processor's name, as the kernel gives it."""
    names = [value for key, value in _cpuinfo() if key in ("model name", "Model", "cpu model")]
    return names[0] if names else platform.processor() or None


def governor(root: Path = _ROOT) -> str | None:
    """The frequency governors of the CPUs, each once; None where the kernel does not tell (as most VMs)."""
    names = {_read(path) for path in (root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")}
    return " ".join(sorted(names - {""})) or None


def battery() -> dict[str, Any] | None:
    """Charge in percent and whether mains power is plugged in; None without a battery."""
    try:
        state = psutil.sensors_battery()
    except (OSError, AttributeError):  # the latter where psutil has no such call for this system
        return None
    return None if state is None else {"percent": state.percent, "plugged_in": state.power_plugged}


def container(root: Path = _ROOT) -> str | None:
    """What kind of container this is in, as far as its usual marks tell."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    marks = {"docker": root / ".dockerenv", "podman": root / "run/.containerenv"}
    return next((name for name, mark in marks.items() if mark.exists()), None)


def git_state(directory: Path) -> dict[str, Any] | None:
    """`commit` and `dirty` of the checkout that this source is part of; None where it is in none.

    An installed copy within somebody's own checkout, in its .venv say, is not part of that checkout.
    """
    if not _git(directory, "ls-files", "__init__.py"):
        return None
    described = _git(directory, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    if not described:
        return None
    commit, _, dirty = described.partition("-")
    return {"commit": commit, "dirty": bool(dirty)}


def command_line(argv: list[str]) -> str:
    """`argv` as a line for a shell."""
    module = bool(argv) and os.path.basename(argv[0]) == "__main__.py"
    return _text(f"python -m bench {shlex.join(argv[1:])}".rstrip() if module else shlex.join(argv))


def _git(directory: Path, *arguments: str) -> str:
    # A hook that runs us names its own repository, and looking must not write.
    told = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}
    variables = {k: v for k, v in os.environ.items() if k not in told} | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=variables,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _affinity() -> list[int] | None:
    """Numbers of the CPUs this process may run on; None where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _cpuinfo() -> Iterator[tuple[str, str]]:
    for line in _read(_ROOT / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def _read(path: Path) -> str:
    """The file's text, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _text(text: str) -> str:
    """`text` with bytes that are no text, as a command line may hold, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
