"""Out of memory in words: what was allocated, what was asked for, and which batch size would fit."""

import errno
import re
import resource
from collections.abc import Iterator
from typing import Any

import torch

from bench.config import Settings
from bench.errors import OutOfMemory
from bench.telemetry.control_groups import memory as host_memory

_DEVICE = re.compile(
    r"CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|cudaErrorMemoryAll"
)
_HOST = re.compile(r"DefaultCPUAllocator|can't allocate memory|not enough memory: you tried to allocate")
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]+) ?([KMGT]i?B|bytes)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def explained(
    error: BaseException, settings: Settings, device: torch.device, model: torch.nn.Module | None
) -> BaseException:
    """An `OutOfMemory` for an error that means it, or has one that does behind it; any other error as it is."""
    for cause in _chain(error):
        if isinstance(cause, OutOfMemory):
            return cause
        is_device = isinstance(cause, torch.OutOfMemoryError) or _DEVICE.search(str(cause))
        if is_device or _is_of_host(cause):
            figures = _device_figures(device) if is_device else _host_figures()
            figures["parameter_bytes"] = _size(model)
            figures["tried_bytes"] = tried_bytes(str(cause))
            figures["batch_size_that_fits"] = _fitting(settings.batch_size, figures)
            explanation = OutOfMemory(_words(cause, settings, figures), figures)
            explanation.__cause__ = error
            return explanation
    return error


def batch_size_that_fits(batch_size: int, needed: int, parameters: int, capacity: int) -> int:
    """The largest smaller batch size, if memory is that of the parameters and a part in proportion to the batch.

    `needed` is a lower bound of what `batch_size` takes, so what comes out is an upper one; 0 where none fits.
    """
    of_sample = max(1, needed - parameters) / batch_size
    return max(0, min(batch_size - 1, int((capacity - parameters) / of_sample)))


def tried_bytes(message: str) -> int | None:
    """What could not be allocated, as torch's messages tell it."""
    found = _TRIED.search(message)
    return round(float(found[1]) * _UNITS.get(found[2], 1)) if found else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from: a compiler wraps what happened to it."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _is_of_host(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and _HOST.search(str(error)) is not None


def _device_figures(device: torch.device) -> dict[str, Any]:
    """What is known of the device's memory; nothing but its name where torch keeps no account."""
    figures: dict[str, Any] = {"of": str(device)}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        figures |= {
            "allocated_bytes": torch.cuda.memory_allocated(device),
            "reserved_bytes": torch.cuda.memory_reserved(device),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
            "free_bytes": free,
            "total_bytes": total,
        }
    return figures


def _host_figures() -> dict[str, Any]:
    """This process's memory, and what the machine or the control group has."""
    with open("/proc/self/statm") as file:
        mapped, resident = (int(pages) * resource.getpagesize() for pages in file.read().split()[:2])
    known, most = host_memory(), resource.getrlimit(resource.RLIMIT_AS)[0]
    free = known["available_bytes"] if most == resource.RLIM_INFINITY else min(known["available_bytes"], most - mapped)
    return {
        "of": "host",
        "allocated_bytes": resident,
        "peak_allocated_bytes": max(resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        "free_bytes": max(0, free),
        "total_bytes": known["total_bytes"],
    }


def _fitting(batch_size: int, figures: dict[str, Any]) -> int | None:
    """The batch size that would fit, where all that it follows from is known."""
    parameters, tried = figures["parameter_bytes"], figures["tried_bytes"]
    if parameters is None or tried is None or "allocated_bytes" not in figures:
        return None
    needed = max(figures["peak_allocated_bytes"], figures["allocated_bytes"] + tried)
    # What other processes have is not ours; what torch has reserved is.
    capacity = figures["free_bytes"] + figures.get("reserved_bytes", figures["allocated_bytes"])
    return batch_size_that_fits(batch_size, needed, parameters, capacity)


def _words(error: BaseException, settings: Settings, figures: dict[str, Any]) -> str:
    place = "out of host memory" if figures["of"] == "host" else f"out of memory on {figures['of']}"
    parts = [f"{place} at batch_size={settings.batch_size}"]
    if "allocated_bytes" in figures:
        reserved = f", {_mib(figures['reserved_bytes'])} reserved" if "reserved_bytes" in figures else ""
        parts.append(
            f"{_mib(figures['allocated_bytes'])} allocated, peak {_mib(figures['peak_allocated_bytes'])}{reserved}, "
            f"{_mib(figures['free_bytes'])} of {_mib(figures['total_bytes'])} free"
        )
    tried = figures["tried_bytes"]
    parts.append(f"{_mib(tried)} more were asked for" if tried else f"{type(error).__name__}: {_first_line(error)}")
    skip = "" if settings.skip_larger else ", or set skip_larger=true"
    advice = f"Lower batch_size, num_workers or stream_layout.buffers_per_worker{skip}"
    return ". ".join(["; ".join(parts), *_estimate(figures), advice])


def _estimate(figures: dict[str, Any]) -> list[str]:
    """What would fit, in words; nothing where it is not known."""
    if figures["parameter_bytes"] is None:
        return ["The model itself had not been loaded"]
    if (fitting := figures["batch_size_that_fits"]) is None:
        return []
    basis = f"parameters {_mib(figures['parameter_bytes'])}, the rest in proportion to batch_size"
    return [f"By a linear estimate ({basis}) {f'at most batch_size={fitting}' if fitting else 'no batch size'} fits"]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _size(model: torch.nn.Module | None) -> int | None:
    if model is None:
        return None
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))


def _mib(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"
