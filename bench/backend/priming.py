"""Fills the compiler's cache for `compile_cache=warm`, in a process of its own."""

import torch

from bench.backend import device as devices
from bench.backend.checkpoints import locate
from bench.backend.models import build
from bench.child import Link
from bench.config import Settings


def prime(task: tuple[Settings, str], link: Link) -> None:
    """Compile the model as the backend will and run it once."""
    settings, cache = task
    devices.use_compile_cache(cache)
    device = devices.find_device(settings.device)
    with devices.thread_state(device, devices.intraop_threads(settings)):
        model, _ = build(settings, device, locate(settings))
        model.compile(mode=settings.compile_mode)
        example = torch.zeros(settings.payload_shape, dtype=getattr(torch, settings.model.dtype), device=device)
        if settings.model.channels_last:
            example = example.contiguous(memory_format=torch.channels_last)
        model(example)
    link.send("done")
