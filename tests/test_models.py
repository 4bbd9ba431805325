"""Models are built as the settings say, from checkpoints, with answers that can be checked."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from bench.backend import models, weights
from bench.backend.models import Noop, build, check, tolerance
from bench.config import Model, Settings
from bench.errors import BenchError, ConfigError
from bench.job import compose

CPU = torch.device("cpu")
SMALL = compose(
    "model=mobilenet_v3_small",
    "model.input_shape=[3,64,64]",
    "stream_layout=serial",
    "device=cpu",
    "batch_size=1",
    "compile=false",
    "num_workers=1",
    "num_iters=1",
    "telemetry=false",
    "stall_timeout_s=60",
)


class Custom(nn.Module):
    """A user's model, with a tensor that is in no checkpoint and one that is no parameter."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(3, width)
        self.register_buffer("shift", torch.ones(width), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = self.linear(x) + self.shift
        return shifted


def make_settings(**model: Any) -> Settings:
    """Small settings with the given keys of the model."""
    return dataclasses.replace(SMALL, model=dataclasses.replace(SMALL.model, **model))


def save(module: nn.Module, path: Path) -> Path:
    torch.save(module.state_dict(), path)
    return path


@pytest.mark.parametrize("shape", [(5,), (3, 7), (3, 8, 8), (2, 3, 4, 5)])
@pytest.mark.parametrize("batch", [1, 6])
def test_noop_answers_with_the_first_element_of_each_sample(shape: tuple[int, ...], batch: int) -> None:
    x = torch.randn(batch, *shape)
    with torch.inference_mode():
        answer = Noop()(x)
    assert torch.equal(answer, x.flatten(1)[:, :1])


def test_noop_follows_the_strides_of_views_and_of_channels_last() -> None:
    x = torch.randn(8, 3, 4, 4)
    for view in (x[::2], x[3:], x.contiguous(memory_format=torch.channels_last), x[:, 1:]):
        assert torch.equal(Noop()(view), view.flatten(1)[:, :1])


def test_noop_is_found_by_its_target_and_needs_no_checkpoint() -> None:
    module, timings = build(make_settings(target="bench.backend.models.Noop", channels_last=True), CPU, None)
    assert isinstance(module, Noop)
    assert timings == {}


def test_a_checkpoint_is_loaded_into_the_very_model(tmp_path: Path) -> None:
    source = torchvision.models.squeezenet1_1(weights=None).eval()
    path = save(source, tmp_path / "c.pth")
    module, timings = build(make_settings(name="squeezenet1_1"), CPU, path)
    x = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(module(x), source(x))
    assert set(timings) == {"torch_load_time"}
    assert timings["torch_load_time"] > 0
    assert not any(part.training for part in module.modules())


def test_resnet18_is_the_resnet_of_basic_blocks_and_no_meta_tensor_is_left(tmp_path: Path) -> None:
    """Old checkpoints lack num_batches_tracked, which must not stay on the meta device."""
    state = torchvision.models.resnet18(weights=None).state_dict()
    old = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "c.pth")
    module, _ = build(make_settings(name="resnet18"), CPU, tmp_path / "c.pth")
    wanted = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2])
    assert str(module) == str(wanted.eval())
    assert not any(t.is_meta for t in (*module.parameters(), *module.buffers()))


def test_dtype_and_memory_format_are_applied(tmp_path: Path) -> None:
    path = save(torchvision.models.squeezenet1_1(weights=None), tmp_path / "c.pth")
    settings = make_settings(name="squeezenet1_1", dtype="bfloat16", channels_last=True)
    module, _ = build(settings, CPU, path)
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    kernel = next(p for p in module.parameters() if p.dim() == 4 and p.shape[2] > 1)
    assert kernel.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_models_with_auxiliary_heads_answer_with_one_tensor(name: str) -> None:
    module, _ = build(make_settings(name=name), CPU, None)
    with torch.inference_mode():
        assert module(torch.randn(1, 3, 96, 96)).shape == (1, 1000)


def test_old_names_in_densenet_files_are_understood(tmp_path: Path) -> None:
    args = {"growth_rate": 4, "block_config": [2], "num_init_features": 8}
    source = torchvision.models.DenseNet(**args).eval()
    old = {
        key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.") if "denselayer" in key else key: value
        for key, value in source.state_dict().items()
    }
    assert old.keys() != source.state_dict().keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_torchvision", lambda _: torchvision.models.DenseNet(**args))
        torch.save(old, tmp_path / "c.pth")
        module, _ = build(make_settings(name="densenet121"), CPU, tmp_path / "c.pth")
    x = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(module(x), source(x))


def test_versions_of_modules_in_a_checkpoint_reach_them(tmp_path: Path) -> None:
    """MNASNet refuses a state dict without its version."""
    path = save(torchvision.models.mnasnet0_5(weights=None), tmp_path / "c.pth")
    build(make_settings(name="mnasnet0_5"), CPU, path)


def test_a_model_with_a_tensor_that_is_in_no_checkpoint_is_really_built(tmp_path: Path) -> None:
    path = save(Custom(), tmp_path / "c.pth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_torchvision", lambda _: Custom())
        module, _ = build(make_settings(name="resnet18"), CPU, path)
    assert torch.equal(module.get_buffer("shift"), torch.ones(4))


def test_strict_loading_names_the_keys(tmp_path: Path) -> None:
    state = torchvision.models.squeezenet1_1(weights=None).state_dict()
    state["stranger.weight"] = state.pop("features.0.weight")
    torch.save(state, tmp_path / "c.pth")
    with pytest.raises(BenchError, match=r"c\.pth.*features\.0\.weight.*stranger\.weight"):
        build(make_settings(name="squeezenet1_1"), CPU, tmp_path / "c.pth")


def test_a_checkpoint_of_other_shapes_is_refused_with_the_key(tmp_path: Path) -> None:
    path = save(torchvision.models.squeezenet1_1(weights=None, num_classes=7), tmp_path / "c.pth")
    with pytest.raises(BenchError, match=r"size mismatch for classifier\.1\.weight"):
        build(make_settings(name="squeezenet1_1"), CPU, path)
    build(make_settings(name="squeezenet1_1", args={"num_classes": 7}), CPU, path)


def test_a_custom_model_takes_args_seed_and_checkpoint(tmp_path: Path) -> None:
    settings = make_settings(name="mine", target=f"{__name__}.Custom", args={"width": 6}, input_shape=[3])
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, _ = build(settings, CPU, None)
    assert torch.equal(torch.get_rng_state(), before)
    again, _ = build(settings, CPU, None)
    other, _ = build(dataclasses.replace(settings, seed=1), CPU, None)
    key = "linear.weight"
    assert first.get_parameter(key).shape == (6, 3)
    assert torch.equal(first.get_parameter(key), again.get_parameter(key))
    assert not torch.equal(first.get_parameter(key), other.get_parameter(key))
    loaded, timings = build(settings, CPU, save(other, tmp_path / "c.pth"))
    assert torch.equal(loaded.get_parameter(key), other.get_parameter(key))
    assert torch.equal(loaded.get_buffer("shift"), torch.ones(6))
    assert "torch_load_time" in timings


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"name": "resnet81"}, r"model\.name=resnet81: not a model of torchvision\. Close: resnet18"),
        ({"name": "fcn_resnet50"}, r"fcn_resnet50: its answer is not one tensor.*Set model\.name"),
        ({"name": "resnet18", "args": {"clases": 3}}, r"model\.args=\{'clases': 3\}: refused.*'clases'"),
        ({"target": "bench.backend.models.Noob"}, r"model\._target_=.*Noob.*Close: Noop.*package\.module"),
        ({"target": "no_such_package.Net"}, r"model\._target_=no_such_package\.Net: No module named"),
        ({"target": "1+1"}, r"model\._target_=1\+1"),
        ({"target": "math.pi"}, r"model\._target_=math\.pi: is a float, not a class"),
        ({"target": f"{__name__}.Custom", "args": {"depth": 3}}, r"model\.args=.*refused.*'depth'"),
    ],
)
def test_what_cannot_be_built_is_named_with_the_next_step(model: dict[str, Any], words: str) -> None:
    settings = make_settings(**model)
    with pytest.raises(ConfigError, match=words):
        check(settings.model)
    with pytest.raises(ConfigError, match=words):
        build(settings, CPU, None)


def test_a_target_that_makes_no_module_is_refused() -> None:
    with pytest.raises(ConfigError, match="gave a Counter, not a torch"):
        build(make_settings(target="collections.Counter"), CPU, None)


def test_checking_a_model_takes_no_memory_for_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.device] = []
    original = models._torchvision

    def spy(model: Model) -> nn.Module:
        module = original(model)
        made.extend(p.device for p in module.parameters())
        return module

    monkeypatch.setattr(models, "_torchvision", spy)
    check(make_settings(name="vit_b_16").model)
    assert {device.type for device in made} == {"meta"}


def answers(name: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers of a randomly weighted model to 4 payloads, in float32 and in bfloat16."""
    x = torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(1))
    module, _ = build(make_settings(name=name), CPU, None)
    with torch.inference_mode():
        return module(x), module.bfloat16()(x.bfloat16())


@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 64), ("resnet50", 64), ("mobilenet_v3_small", 64), ("vit_b_16", 224)]
)
def test_answers_of_random_weights_tell_payloads_apart_by_far_more_than_10_tolerances(name: str, size: int) -> None:
    for output in answers(name, size):
        assert output.isfinite().all()
        rtol, atol = tolerance(output.dtype)
        values = output.float()
        allowed = (rtol + atol) * values.abs().max()
        for one, other in itertools.combinations(values, 2):
            assert (one - other).abs().max() > 15 * allowed


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v3_small"])
def test_roundings_of_bfloat16_stay_within_its_tolerance(name: str) -> None:
    """The same bfloat16 weights, computed in float32 and in bfloat16, give equal answers to the check."""
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    module, _ = build(make_settings(name=name, dtype="bfloat16"), CPU, None)
    with torch.inference_mode():
        rounded = module(x).float()
        exact = module.float()(x.float())
    rtol, atol = tolerance(torch.bfloat16)
    assert torch.allclose(rounded, exact, rtol=rtol, atol=atol * exact.abs().max().item())
    assert not torch.equal(rounded, exact)


def test_random_weights_follow_the_seed() -> None:
    first, again, other = (torchvision.models.squeezenet1_1(weights=None) for _ in range(3))
    for module, seed in ((first, 0), (again, 0), (other, 1)):
        weights.initialize(module, seed)
    for one, same, different in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)
        assert one.dim() < 2 or not torch.equal(one, different)
