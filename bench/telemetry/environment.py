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

from bench.telemetry.control_groups import affinity, cpu_quota, memory, text_of, usable_cores
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
            "affinity": affinity(),
            "quota": cpu_quota(),
        },
        "container": container(),
        "hypervisor": any(k == "flags" and "hypervisor" in v.split() for k, v in _cpuinfo()) or None,
        "git": git_state(Path(__file__).resolve().parent),
        "command": command_line(sys.argv),
        "gpu": list_gpus(),
    }


def machine_id(root: Path = _ROOT) -> str:
    """A short stable name of this machine that tells nothing else about it."""
    known = text_of(root / "etc/machine-id") or text_of(root / "var/lib/dbus/machine-id") or platform.node()
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
    names = {text_of(path) for path in (root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")}
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


def _cpuinfo() -> Iterator[tuple[str, str]]:
    for line in text_of(_ROOT / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def _text(text: str) -> str:
    """`text` with bytes that are no text, as a command line may hold, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
