"""Models: the one that does nothing, torchvision's by name, and the user's by `_target_`."""

import difflib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torchvision.models import get_model_builder, list_models

from bench.backend import weights
from bench.config import Model, Settings
from bench.errors import BenchError, ConfigError

# Errors allowed between two correct ways of computing one answer (eager and compiled, other kernels, other
# order of sums), as (rtol, atol relative to the largest absolute reference). Roundings of the precision
# (2**-24, 2**-11, 2**-8) grow some ten times on the way through a deep model. On CUDA float32
# convolutions are TF32, with the mantissa of float16. Another payload's answer is off by about 1.
_TOLERANCES = {
    torch.float32: (1e-4, 5e-3),
    torch.float16: (1e-3, 1e-2),
    torch.bfloat16: (1e-2, 4e-2),
}

_ONE_TENSOR = ("torchvision.models", "torchvision.models.video")  # the others answer with boxes, masks, flows
_SLOW_INIT = ("googlenet", "inception_v3")  # they warn unless init_weights is given, and ours replace it

_NOOP_VIEWS = 8  # inputs that Noop knows; each is kept in memory


class Noop(nn.Module):
    """Answers at once with the first element of each sample, shape (batch, 1): shows the harness itself.

    The few inputs that come again and again have their views made once. The table keeps each input
    beside its view, so no other tensor can have its identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        if is_compiling():
            return _first_elements(x)
        known = self._views.get(id(x))
        if known is None:
            if len(self._views) >= _NOOP_VIEWS:
                self._views.clear()
            known = self._views[id(x)] = x, _first_elements(x)
        return known[1]


def _first_elements(x: Tensor) -> Tensor:
    """One view, whatever the rank; indexing or flattening takes two and costs twice as much."""
    return x.as_strided((x.size(0), 1), (x.stride(0), 1))


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol relative to the largest absolute reference) for answers of `dtype`."""
    return _TOLERANCES.get(dtype, _TOLERANCES[torch.float32])


def build(settings: Settings, device: torch.device, checkpoint: Path | None) -> tuple[nn.Module, dict[str, float]]:
    """The model in eval mode on `device`, and `{'torch_load_time': s}` where a checkpoint was loaded.

    Raises:
        BenchError: when the model or the checkpoint is not what the settings say.
    """
    model = settings.model
    timings = {}
    if checkpoint is not None:
        state, timings["torch_load_time"] = weights.read(checkpoint, device)
        module = _loaded(model, settings.seed, checkpoint, state)
    else:
        module = construct(model, settings.seed)
        if model.target is None:
            weights.initialize(module, settings.seed)
    # Frozen, since inference mode is a thread's own and a thread outside it would record a graph.
    module = module.eval().requires_grad_(False).to(device=device, dtype=getattr(torch, model.dtype))
    if model.channels_last:
        module = module.to(memory_format=torch.channels_last)
    return module, timings


def check_answer(settings: Settings, answer: Any) -> None:
    """Find out whether a model answers with what can be sent. Raises BenchError."""
    if not isinstance(answer, Tensor):
        raise BenchError(
            f"model.name={settings.model.name}: answers with {type(answer).__name__}, not with a tensor. "
            "Wrap it in a module whose forward returns the one tensor that a client gets"
        )
    if answer.is_complex():
        raise BenchError(f"model.name={settings.model.name}: answers with complex numbers. Use torch.view_as_real")


def check(model: Model) -> None:
    """Find out, without memory for weights, whether `model` can be built.

    Raises:
        ConfigError: naming key, value and next step.
    """
    if model.target is None:
        construct(model, 0, torch.device("meta"))
    else:
        _target(model)


def construct(model: Model, seed: int, device: torch.device | None = None) -> nn.Module:
    """The module as its constructor leaves it; `seed` gives a custom model its own initialization.

    `device` is where torchvision's constructors put parameters (meta: nowhere). A custom class is
    constructed on the CPU, since nothing says that it can be elsewhere.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if model.target is not None:
            target = _target(model)
            try:
                module = target(**model.args)
            except Exception as error:
                raise ConfigError(
                    [
                        f"model._target_={model.target}: its constructor failed with model.args={model.args}: "
                        f"{type(error).__name__}: {error}. Set model.args to what it takes"
                    ]
                ) from error
            if not isinstance(module, nn.Module):
                raise ConfigError(
                    [f"model._target_={model.target}: gave a {type(module).__name__}, not a torch.nn.Module"]
                )
            return module
        with device or torch.device("cpu"):
            return _torchvision(model)


def _torchvision(model: Model) -> nn.Module:
    """What torchvision's builder of that name makes, without weights (resnet18: BasicBlock, [2, 2, 2, 2])."""
    known = [n for n in list_models() if get_model_builder(n).__module__.rpartition(".")[0] in _ONE_TENSOR]
    if model.name not in known:
        what = "its answer is not one tensor" if model.name in list_models() else "not a model of torchvision"
        raise ConfigError(
            [
                f"model.name={model.name}: {what}. {_close(model.name, known)}Set model.name to one of "
                "torchvision.models.list_models(), or model=custom with your own class"
            ]
        )
    args = dict(model.args)
    if model.name in _SLOW_INIT:
        args.setdefault("init_weights", False)
        args.setdefault("transform_input", model.weights == "pretrained")
    try:
        built: nn.Module = get_model_builder(model.name)(**{"weights": None, **args})
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            [f"model.args={model.args}: refused by torchvision's {model.name} ({error}). Set model.args={{}}"]
        ) from error
    return built


def _target(model: Model) -> Callable[..., Any]:
    """The user's class, found by its dotted name, whose constructor takes `model.args`."""
    target = str(model.target)
    try:
        found: Callable[..., Any] = pkgutil.resolve_name(target)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigError([f"model._target_={target}: {error}. {_close_target(target)}{_WHERE}"]) from error
    if not callable(found):
        raise ConfigError([f"model._target_={target}: is a {type(found).__name__}, not a class. {_WHERE}"])
    try:
        inspect.signature(found).bind(**model.args)
    except TypeError as error:
        raise ConfigError([f"model.args={model.args}: refused by {target} ({error}). Set model.args"]) from error
    return found


_WHERE = "Set it as package.module.Class, importable from the working directory or installed"


def _close_target(target: str) -> str:
    """Names in the target's module that are close to its last part."""
    module, _, name = target.replace(":", ".").rpartition(".")
    try:
        return _close(name, dir(pkgutil.resolve_name(module)))
    except (ImportError, ValueError, AttributeError):
        return ""


def _close(name: str, known: list[str]) -> str:
    matches = difflib.get_close_matches(name, known, 3)
    return f"Close: {', '.join(matches)}. " if matches else ""


def _loaded(model: Model, seed: int, checkpoint: Path, state: dict[str, Tensor]) -> nn.Module:
    """The module with exactly the tensors of `state`, copied nowhere."""
    module = construct(model, seed, torch.device("meta"))
    if model.target is None:
        for key in list(state):  # in place, since a state dict carries its modules' versions
            # torchvision's DenseNet files are older than its module names.
            state[re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key)] = state.pop(key)
        if any(tensor.is_meta for tensor in _unsaved(module)):
            module = construct(model, seed)  # some tensors are in no checkpoint
    try:
        module.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        faults = textwrap.shorten(str(error), 800, placeholder=" …")
        raise BenchError(
            f"{checkpoint}: not of model.name={model.name} with model.args={model.args}. {faults}"
        ) from error
    empty = [n for n, t in chain(module.named_parameters(), module.named_buffers()) if t.is_meta]
    if empty:
        raise BenchError(f"{checkpoint}: gave no values to {', '.join(empty[:5])} of {model.name}")
    return module


def _unsaved(module: nn.Module) -> Iterator[Tensor]:
    """Tensors of `module` that its state dict does not hold."""
    saved = set(module.state_dict())
    yield from (buffer for name, buffer in module.named_buffers() if name not in saved)
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, Tensor))
