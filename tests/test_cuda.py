"""The same runs on a real CUDA device. `scripts/gpu_check` runs these; elsewhere they are skipped."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import torch

from bench.backend import device as devices
from bench.backend.checkpoints import prepare
from bench.config import Device, Settings
from bench.device_claim import identify
from bench.job import compose
from bench.measure import measure, no_progress
from bench.preflight import preflight
from bench.results.checks import judge
from bench.results.overlap import overlap_metrics
from bench.run import Job, run
from bench.stamps import STAMPS

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def settings(tmp_path: Path, *overrides: str) -> Settings:
    """ResNet-18 on small images, its weights made as the preflight makes them."""
    small = ["model.input_shape=[3,96,96]", "batch_size=4", "num_workers=3", "num_iters=60", "warmup_iters=3"]
    wanted = compose("device=cuda", "compile=false", f"cache_dir={tmp_path}/cache", *small, *overrides)
    prepare(wanted)
    return wanted


@pytest.mark.parametrize("queue", ["shared_memory", "torch"])
@pytest.mark.parametrize("layout", ["serial", "async", "pipelined"])
def test_every_layout_and_queue_gives_right_answers_in_order(tmp_path: Path, layout: str, queue: str) -> None:
    wanted = settings(tmp_path, f"stream_layout={layout}", f"queue={queue}")
    record = run(wanted, tmp_path, Job(None, {}), no_progress)
    assert record.verdict.status == "valid", record.reasons
    assert record.backend["device"] == "cuda:0"
    table = pyarrow.parquet.read_table(tmp_path / "requests.parquet").to_pandas()
    measured = table[table.phase == "measured"]
    columns = [f"{name}_ns" for name in STAMPS]
    assert (measured[columns].diff(axis=1).iloc[:, 1:] >= 0).all().all(), "the device's own times keep the order"
    assert (measured.compute_end_ns > measured.compute_start_ns).all(), "a forward pass takes time on the device"


def test_a_captured_graph_answers_like_the_module(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "stream_layout.cuda_graph=true")
    record = run(wanted, tmp_path, Job(None, {}), no_progress)
    assert record.verdict.status == "valid", record.reasons


def test_a_compiled_model_with_the_compilers_own_graphs_is_right(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "compile=true", "compile_mode=reduce-overhead", "num_workers=2")
    record = run(wanted, tmp_path, Job(None, {}), no_progress)
    assert record.verdict.status == "valid", record.reasons
    assert record.backend["compilations_in_window"] == 0


def test_gpu_utilization_is_sampled(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "num_iters=400", "batch_size=32")
    record = run(wanted, tmp_path, Job(None, {}), no_progress)
    assert "gpu_util" in record.metrics
    assert json.loads((tmp_path / "metrics.json").read_text())["environment"]["gpu"]


def test_shared_memory_is_pinned_in_place() -> None:
    memory = torch.zeros(1 << 20, dtype=torch.uint8)
    devices.pin(memory)
    assert memory.is_pinned()


def test_pipelined_copies_overlap_with_computing(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "batch_size=64", "model.input_shape=[3,224,224]")
    outcome = measure(wanted, tmp_path, no_progress)
    assert outcome.failure is None
    backend = outcome.report["backend"]
    assert judge(wanted, outcome.stamps, backend, outcome.digests, outcome.kept).status == "valid"
    assert overlap_metrics(outcome.stamps[4:])["copy_overlap"] > 0


def test_preflight_tries_the_model_on_the_device(tmp_path: Path) -> None:
    """Nothing stands against it, and the answer's size and what the device has free are known."""
    checked, problems = preflight([wanted := settings(tmp_path)], 1, tmp_path, lambda _kind, _content: None)
    assert problems == []
    sizes = checked[wanted.cell].sizes
    assert (sizes.device, sizes.output_bytes) == ("cuda:0", 4 * 1000 * 4)
    assert sizes.device_bytes is not None
    assert 0 < sizes.device_bytes <= torch.cuda.get_device_properties(0).total_memory


def test_out_of_memory_tells_what_would_fit_and_that_fits(tmp_path: Path) -> None:
    """A GiB a sample, more of them than there is memory: figures in the record, and 0.9 of the estimate works."""
    model = ["model=custom", "model._target_=toys.TakesDeviceMemory", "model.input_shape=[3,16,16]"]
    few = [*model, "stream_layout=serial", "num_iters=5", "warmup_iters=0"]
    (tmp_path / "large").mkdir()
    (tmp_path / "small").mkdir()
    large = compose("device=cuda", "compile=false", f"cache_dir={tmp_path}/cache", *few, "batch_size=4096")
    failed = run(large, tmp_path / "large", Job(None, {}), no_progress)
    assert failed.error is not None
    memory = failed.error["memory"]
    assert (memory["of"], memory["tried_bytes"]) == ("cuda:0", 2**42)
    assert 0 < memory["allocated_bytes"] <= memory["peak_allocated_bytes"] <= memory["total_bytes"]
    fitting = memory["batch_size_that_fits"]
    assert 0 < fitting < 4096
    assert f"at most batch_size={fitting} fits" in failed.reasons[0]
    small = dataclasses.replace(large, batch_size=max(1, int(0.9 * fitting)))
    assert run(small, tmp_path / "small", Job(None, {}), no_progress).verdict.status == "valid"


def test_a_device_is_known_by_its_uuid_whatever_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of the visible devices is the first where only it is visible: the same lock, and not the CPU's."""
    last = Device("cuda", torch.cuda.device_count() - 1)
    name = identify(last)
    assert name == devices.uuid(torch.device("cuda", last.index))
    code = "from bench.device_claim import *; print(identify(Device('cuda', 0)))"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{name}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == name
