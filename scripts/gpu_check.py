"""Checks the CUDA code on a real GPU: its tests, a small sweep, and throughput against what the device can do.

    scripts/gpu_check [SECTION…] [--output DIR]

Sections: tests, sweep, throughput; all without one. Where the packages are installed already, any
interpreter will do: PYTHONPATH=. python scripts/gpu_check.py. Torch 2.9 or newer.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.backend.checkpoints import prepare
from bench.backend.models import build
from bench.job import compose
from bench.measure import measure, no_progress
from bench.results.metrics import run_metrics
from bench.results.overlap import overlap_metrics
from bench.results.stages import stage_metrics
from bench.results.text import markdown_table

ROOT = Path(__file__).resolve().parent.parent
BATCH_SIZES = (1, 32, 128, 256)
LAYOUTS = (("serial",), ("async",), ("pipelined",), ("pipelined", "stream_layout.cuda_graph=true"))
WINDOW_S = 0.7  # how long each figure is measured for, about
GOAL = 0.95


def tests(_output: Path) -> bool:
    """The tests that need a CUDA device."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", str(ROOT / "tests" / "test_cuda.py")]
    return subprocess.run(command, cwd=ROOT, timeout=240, check=False).returncode == 0


def sweep(output: Path) -> bool:
    """A small sweep by the command itself."""
    axes = ["batch_size=1,32", "compile=true,false", "repeat=range(1)"]
    fixed = ["device=cuda", "num_iters=50", f"output_dir={output}", "experiment=gpu_check"]
    command = [sys.executable, "-m", "bench", "-m", *axes, *fixed]
    return subprocess.run(command, cwd=ROOT, timeout=400, check=False).returncode == 0


def throughput(output: Path) -> bool:
    """Each layout and queue beside a bare loop over resident inputs and the limit of the copies.

    The bare loop is measured before and after each run: at small batches it is bound by the host, whose
    speed may change within seconds.
    """
    output.mkdir(parents=True, exist_ok=True)
    rows, met, runs = [], True, []
    for queue, batch_size in itertools.product(("shared_memory", "torch"), BATCH_SIZES):
        measure_loop, copies = bare_loop(batch_size), copy_limit(batch_size)
        loops = [measure_loop()]
        for layout, *graph in LAYOUTS:
            samples, overlap, metrics = ours(batch_size, layout, queue, min(loops[-1], copies), *graph)
            loops.append(measure_loop())
            loop = (loops[-2] + loops[-1]) / 2
            reached = samples / min(loop, copies)
            met &= reached >= GOAL or (layout, queue) != ("pipelined", "shared_memory")
            name = layout + ", CUDA graph" * bool(graph)
            runs.append({"batch_size": batch_size, "layout": name, "queue": queue, "bare_loop": loop, **metrics})
            figures = map(per_second, (loop, copies, samples))
            rows.append([queue, str(batch_size), name, *figures, f"{reached:.2f}", overlap])
            print(*rows[-1], flush=True)
            (output / "gpu_check.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    header = ["queue", "batch", "layout", "bare loop", "copy limit", "bench", "of the smaller", "copies overlapped"]
    table = markdown_table(header, rows, right=(1, 3, 4, 5, 6, 7))
    text = (
        f"{table}\nResNet-18, float32, eager, samples/s, {torch.cuda.get_device_name(0)}, torch {torch.__version__}. "
        f"The goal is {GOAL} of the smaller limit for pipelined over shared memory: {'met' if met else 'NOT met'}.\n"
    )
    (output / "gpu_check.md").write_text(text, encoding="utf-8")
    print(text)
    return True  # a report, not a verdict: it depends on the machine


def ours(batch_size: int, layout: str, queue: str, bound: float, *more: str) -> tuple[float, str, dict[str, float]]:
    """Samples a second of one run, the share of copy time under which something was computed, and all its metrics."""
    num_iters = max(20, min(2000, round(WINDOW_S * bound / batch_size)))
    settings = compose(
        "device=cuda",
        "compile=false",
        f"batch_size={batch_size}",
        f"stream_layout={layout}",
        f"queue={queue}",
        f"num_iters={num_iters}",
        "warmup_iters=8",
        "telemetry=false",
        *more,
    )
    with tempfile.TemporaryDirectory() as directory:
        outcome = measure(settings, Path(directory), no_progress)
    if outcome.failure is not None:
        return 0.0, f"FAILED: {outcome.failure}", {}
    metrics = run_metrics(outcome.stamps, batch_size, settings.warmup_iters)
    measured = outcome.stamps[1 + settings.warmup_iters :]
    metrics |= stage_metrics(measured) | overlap_metrics(measured)
    return metrics["throughput"], share(metrics.get("copy_overlap")), metrics


def bare_loop(batch_size: int) -> Callable[[], float]:
    """Measures samples a second of the module alone, its inputs on the device."""
    settings = compose("device=cuda", "compile=false", f"batch_size={batch_size}")
    model, _ = build(settings, torch.device("cuda", 0), prepare(settings).path)
    inputs = [torch.randn(settings.payload_shape, device="cuda") for _ in range(4)]

    def loop() -> float:
        with torch.inference_mode():
            return batch_size * per_call(lambda k: model(inputs[k % 4]))

    return loop


def copy_limit(batch_size: int) -> float:
    """Samples a second that the host can send from pinned memory."""
    host = torch.randn(compose(f"batch_size={batch_size}").payload_shape).pin_memory()
    device = torch.empty_like(host, device="cuda")
    return batch_size * per_call(lambda _k: device.copy_(host, non_blocking=True))


def per_call(call: Callable[[int], object]) -> float:
    """Calls a second, after warming up."""
    for k in range(10):
        call(k)
    torch.cuda.synchronize()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < WINDOW_S:
        for k in range(10):
            call(k)
        torch.cuda.synchronize()
        count += 10
    return count / (time.perf_counter() - started)


def share(value: float | None) -> str:
    """In percent; a dash where it is not known, as of a run whose copies took no time."""
    return "–" if value is None else f"{100 * value:.0f} %"


def per_second(value: float) -> str:
    return f"{value:,.0f}"


SECTIONS: dict[str, Callable[[Path], bool]] = {"tests": tests, "sweep": sweep, "throughput": throughput}


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the CUDA code on a machine that has a GPU.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--output", type=Path, default=Path("outputs/gpu_check"))
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}. There are {', '.join(SECTIONS)}")
    if not torch.cuda.is_available():
        print("gpu_check: torch sees no CUDA device here, so there is nothing to check", file=sys.stderr)
        return 2
    good = True
    for name in arguments.sections or SECTIONS:
        started = time.perf_counter()
        passed = SECTIONS[name](arguments.output)
        print(f"{name}: {'ok' if passed else 'FAILED'} ({time.perf_counter() - started:.0f} s)", flush=True)
        good &= passed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
