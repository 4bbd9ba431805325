"""What is in a checkpoint file, and what random weights are made of."""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.ops import SqueezeExcitation

from bench.errors import BenchError

RECIPE = 1  # of `initialize`: raise it with every change of the weights that a seed gives


@torch.no_grad()
def initialize(module: nn.Module, seed: int) -> None:
    """Give `module` seeded random weights, in place, with answers that depend on the payload.

    The rows of each weight matrix sum to zero and have norm 1, biases are 0, norms are identities. Behind
    a ReLU all channels share one positive mean; rows that sum to zero cancel it, and what is left of a
    signal is what tells one payload from another. Ordinary random rows pass the mean on from layer to
    layer, until answers to different payloads differ by a few percent only. Rows of norm 1 keep residual
    branches smaller than their skip connections, so rounding errors do not grow with the depth.
    Position embeddings and the like keep the values that their constructor gave them.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        kind = name.rpartition(".")[2]
        if parameter.dim() >= 2 and kind.endswith("weight"):
            rows = torch.randn(parameter.shape, generator=generator).flatten(1)
            if rows.shape[1] > 1:
                rows -= rows.mean(1, keepdim=True)
            parameter.copy_((rows / rows.norm(dim=1, keepdim=True)).view(parameter.shape))
        elif kind.endswith("bias"):
            parameter.zero_()
        elif kind.endswith("weight") or kind == "layer_scale":
            parameter.fill_(1)
    _tune_blocks(module)


def _tune_blocks(module: nn.Module) -> None:
    """Adjust the two kinds of block that would let the signal vanish, or its rounding errors grow."""
    for block in module.modules():
        if isinstance(block, SqueezeExcitation) and block.fc2.bias is not None:
            block.fc2.bias.fill_(2)  # a gate at 0.5 halves the signal in every block; this one is open
        last = block.bn3 if isinstance(block, Bottleneck) else block.bn2 if isinstance(block, BasicBlock) else None
        if isinstance(last, nn.BatchNorm2d):
            last.weight.fill_(0.5)  # the place that torchvision's zero_init_residual sets to 0


def diagnose(path: Path) -> str | None:
    """What is wrong with a checkpoint file, in words that follow its name, or None. Skips a zip's weights."""
    fault = _look(path)
    return fault if fault is not None else _load(path, torch.device("meta"))[1]


def read(path: Path, device: torch.device) -> tuple[dict[str, Tensor], float]:
    """The state dict in `path` on `device`, and the seconds that `torch.load` took.

    Raises:
        BenchError: naming what the file is instead.
    """
    fault = _look(path)
    if fault is None:
        started = perf_counter()
        state, fault = _load(path, device)
        seconds = perf_counter() - started
    if fault is not None:
        raise BenchError(f"{path}: {fault}")
    return state, seconds


def _look(path: Path) -> str | None:
    """What is wrong with a file that can be seen from its size, its first bytes and a zip's directory."""
    if path.is_dir():
        return "is a directory, not a checkpoint file"
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not head:
        return "is empty (0 bytes)"
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        return "is an HTML page, not a checkpoint (an error or login page saved under its name?)"
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the checkpoint itself. Fetch it with: git lfs pull"
    if head.startswith(b"PK") and not zipfile.is_zipfile(path):
        return f"is truncated: the first {path.stat().st_size} bytes of a zip without its end"
    return None


def _load(path: Path, device: torch.device) -> tuple[dict[str, Tensor], str | None]:
    """`torch.load` of nothing but tensors, and what is wrong with what it gave."""
    try:
        # Files of the old format, from before torch 1.6, are no zip and cannot be mapped.
        state = torch.load(path, mmap=zipfile.is_zipfile(path), weights_only=True, map_location=device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a stranger's bytes make its reader raise anything
        return {}, _refusal(error)
    return (state, None) if (fault := _contents(state)) is None else ({}, fault)


def _refusal(error: Exception) -> str:
    """Why `torch.load` refused a file, in a line."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return (
            f"holds pickled code ({found[1]}), not only tensors; it was refused and not run. "
            "Save the weights alone: torch.save(model.state_dict(), path)"
        )
    if isinstance(error, EOFError) or "EOF" in str(error):
        return "is truncated: it ends too early"
    lines = str(error).splitlines() or [""]
    return f"is not a PyTorch checkpoint ({type(error).__name__}: {lines[0][:120]})"


def _contents(state: Any) -> str | None:
    """What keeps a loaded object from being a state dict."""
    advice = "A state dict is needed: torch.save(model.state_dict(), path)"
    if not isinstance(state, Mapping):
        return f"holds a {type(state).__name__}, not a state dict. {advice}"
    others = [str(key) for key, value in state.items() if not isinstance(value, Tensor)]
    if not state or others:
        keys = ", ".join(others[:5]) or "nothing"
        return f"holds {keys} beside or instead of tensors. {advice}"
    return None
