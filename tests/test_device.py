"""How a forward pass is called: as the module itself would call it, and no slower than it must be."""

from typing import Any

import torch
from torch import Tensor, nn

from bench.backend.device import direct


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class CallsItsOwnWay(Doubles):
    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x) + 1


ONE = torch.ones(1)


def test_a_module_without_hooks_is_its_forward() -> None:
    """Nothing stands between the layout and forward()."""
    model = Doubles()
    assert direct(model) == model.forward


def test_a_hook_is_called() -> None:
    """A module's own hook, before or after, changes what direct() gives."""
    after, before = Doubles(), Doubles()
    after.register_forward_hook(lambda _module, _inputs, output: output + 5)
    before.register_forward_pre_hook(lambda _module, inputs: (inputs[0] + 5,))
    assert direct(after)(ONE) == 7
    assert direct(before)(ONE) == 12


def test_a_global_hook_is_called() -> None:
    """So is one that stands for all modules."""
    seen: list[Any] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, _inputs, _output: seen.append(module))
    try:
        model = Doubles()
        direct(model)(ONE)
    finally:
        handle.remove()
    assert seen == [model]


def test_a_call_of_ones_own_is_kept() -> None:
    """A subclass that overrides __call__ is called by it."""
    assert direct(CallsItsOwnWay())(ONE) == 3


def test_a_compiled_module_is_called_compiled() -> None:
    """model.compile() takes effect."""
    model = Doubles()
    model.compile(backend="eager")
    assert direct(model) is model._compiled_call_impl
    assert direct(model)(ONE) == 2
