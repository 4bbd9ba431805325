"""Preflight: what needs torch to check, for all cells of a sweep at once, in a process of its own."""

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

from bench.backend import device as devices
from bench.backend.checkpoints import Prepared, prepare
from bench.backend.models import build
from bench.child import Link
from bench.config import Settings
from bench.errors import BenchError
from bench.setup import Checked


def preflight(cells: list[Settings], link: Link) -> None:
    """Body of the preflight process: sends `done` with a list of problems and a `Checked` a cell."""
    problems: list[str] = []
    checked: list[Checked | None] = []
    models: dict[str, tuple[int, Prepared]] = {}
    for settings in cells:
        try:
            checked.append(_check(settings, models, link))
        except BenchError as error:
            checked.append(None)
            problems.extend(line for line in str(error).splitlines() if line not in problems)
    link.send("done", (problems, checked))


def _check(settings: Settings, models: dict[str, tuple[int, Prepared]], link: Link) -> Checked:
    device = devices.find_device(settings.device)
    if settings.stream_layout.cuda_graph and device.type != "cuda":
        raise BenchError(
            "stream_layout.cuda_graph=true: needs a CUDA device, and torch sees none here. Set it to false"
        )
    if settings.compile:
        _check_compiler(device)
    key = repr((settings.model, settings.seed, settings.model_dir, settings.cache_dir))
    if key not in models:
        models[key] = _try_model(settings, link)
    return Checked(str(device), *models[key])


def _check_compiler(device: torch.device) -> None:
    """torch.compile needs a C++ compiler on the CPU, and Python's headers wherever Triton builds its launcher."""
    missing = []
    if device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        missing.append("a C++ compiler (Debian: apt-get install g++)")
    if device.type == "cuda" and not any(map(shutil.which, ("gcc", "clang", "cc"))):
        missing.append("a C compiler (Debian: apt-get install gcc)")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        missing.append(f"Python.h (Debian: apt-get install python{version}-dev)")
    if missing:
        raise BenchError(f"compile=true: needs {' and '.join(missing)}. Install that, or set compile=false")


def _try_model(settings: Settings, link: Link) -> tuple[int, Prepared]:
    """Fetch or make the checkpoint, build the model on the CPU and try it on one sample."""

    def report(name: str, done: int, total: int | None) -> None:
        link.send("download", (name, done, total))

    prepared = prepare(settings, progress=report)
    model, _ = build(settings, torch.device("cpu"), prepared.path)
    size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    sample = torch.zeros((1, *settings.model.input_shape), dtype=getattr(torch, settings.model.dtype))
    try:
        with torch.inference_mode():
            output: Any = model(sample)
    except Exception as error:
        raise BenchError(
            f"model {settings.model.name}: its forward pass fails on an input of shape {tuple(sample.shape)}, "
            f"{settings.model.dtype}: {type(error).__name__}: {error}. "
            "Set model.input_shape and model.dtype to what it takes"
        ) from error
    if not isinstance(output, torch.Tensor):
        raise BenchError(
            f"model {settings.model.name} answers with {type(output).__name__}, not with a tensor. "
            "Wrap it in a module whose forward returns the one tensor that a client gets"
        )
    return size, prepared
