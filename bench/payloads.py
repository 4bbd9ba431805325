"""Payloads: the few distinct random inputs of a run, in shared memory, made before the clock starts."""

from collections.abc import Sequence

import torch

from bench.config import Settings


def pool_of(memory: Sequence[memoryview], settings: Settings) -> list[torch.Tensor]:
    """The payloads as tensors over shared `memory`: each `(batch_size, *input_shape)` in the model's dtype."""
    dtype = getattr(torch, settings.model.dtype)
    pool = []
    for part in memory:
        tensor = torch.frombuffer(part, dtype=dtype).view(settings.payload_shape)
        if settings.model.channels_last:
            # The same bytes, seen as a tensor whose channels lie next to each other.
            batch, channels, height, width = settings.payload_shape
            tensor = tensor.view(batch, height, width, channels).permute(0, 3, 1, 2)
        pool.append(tensor)
    return pool


def fill(pool: list[torch.Tensor], seed: int) -> None:
    """Standard normal values, as PyTorch's benchmark sends, from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in pool:
        tensor.normal_(generator=generator)
