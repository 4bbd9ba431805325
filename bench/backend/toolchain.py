"""What torch.compile needs beside torch, by Inductor's and Triton's rules: a compiler, Python's headers, Triton."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

_TIMEOUT_S = 10.0
_TRITON_CAPABILITY = (7, 0)


def missing(device: torch.device) -> list[str]:
    """What is not there, each with how to get it."""
    lacks = []
    if device.type == "cpu":
        compiler = os.environ.get("CXX", "g++")
        if not _runs(compiler) and not os.environ.get("TORCH_INDUCTOR_INSTALL_GXX"):
            lacks.append(f"a C++ compiler ({compiler} cannot be run; Debian: apt-get install g++, or set CXX)")
    else:
        compiler = os.environ.get("CC", "")
        if not (_runs(compiler) if compiler else shutil.which("gcc") or shutil.which("clang")):
            lacks.append("a C compiler (Debian: apt-get install gcc, or set CC)")
        if importlib.util.find_spec("triton") is None:
            lacks.append("Triton (pip install triton)")
        if torch.cuda.get_device_capability(device) < _TRITON_CAPABILITY:
            lacks.append("a GPU of compute capability 7.0 or more")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        lacks.append(f"Python.h (Debian: apt-get install python{version}-dev)")
    return lacks


def _runs(compiler: str) -> bool:
    """Whether the command answers to --version, as Inductor asks."""
    try:
        command = [*shlex.split(compiler), "--version"]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return True
