"""What the harness costs: each figure beside its opponent, measured side by side in one run.

    scripts/overhead [SECTION…] [--output DIR]

Sections: help, noop, closed, open, memory, wall, resnet18; all without one. Prints a Markdown table and
writes it to DIR/overhead.md (default outputs/overhead). A target that is missed is said so.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil

from bench import fork_server
from bench.config import Settings
from bench.job import compose
from bench.measure import Outcome, measure, no_progress
from bench.results.metrics import run_metrics
from bench.results.pace import behind
from bench.results.text import markdown_table
from bench.stamps import INTENDED, SENT
from bench.telemetry.environment import environment

MESSAGE = bytes(24)
HERE = Path(__file__).resolve()
BARE_LOOP_S = 3.0


@dataclass(frozen=True)
class Row:
    """One line of the table; `target` is a bound on `ratio`, from below or from above.

    `ratio` may be the ratios of several measurements, of which the median counts; their range is printed.
    """

    what: str
    ours: str
    opponent: str
    ratio: float | list[float]
    target: str

    @property
    def met(self) -> bool:
        bound = float(self.target.strip("≥≤ ×"))
        return self._median >= bound if self.target.startswith("≥") else self._median <= bound

    def cells(self) -> list[str]:
        ratio = f"{self._median:.3g}×"
        if isinstance(self.ratio, list):
            ratio += f" ({min(self.ratio):.2f} to {max(self.ratio):.2f})"
        return [self.what, self.ours, self.opponent, ratio, self.target, "yes" if self.met else "NO"]

    @property
    def _median(self) -> float:
        return statistics.median(self.ratio) if isinstance(self.ratio, list) else self.ratio


# Our side


def settings(*overrides: str) -> Settings:
    """A burst through the shared-memory queue and the serial layout with the noop model, unless overridden."""
    ours = ("model=noop", "compile=false", "stream_layout=serial", "device=cpu", "batch_size=1", "num_iters=100000")
    return compose(*ours, "stall_timeout_s=120", *overrides)


def run(*overrides: str) -> dict[str, float]:
    """Metrics of one run through the product's own processes."""
    wanted = settings(*overrides)
    outcome = run_outcome(wanted)
    return run_metrics(outcome.stamps, wanted.batch_size, wanted.warmup_iters)


def run_outcome(wanted: Settings) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        outcome = measure(wanted, Path(directory), no_progress)
    if outcome.failure is not None:
        raise outcome.failure
    return outcome


# The opponents


@contextmanager
def echo() -> "Iterator[tuple[Connection, Connection]]":
    """A second process that sends every message of one pipe back over another."""
    request_reader, request_writer = Pipe(duplex=False)
    response_reader, response_writer = Pipe(duplex=False)
    if (pid := os.fork()) == 0:
        try:
            while True:
                response_writer.send_bytes(request_reader.recv_bytes())
        finally:
            os._exit(0)
    request_reader.close()
    response_writer.close()
    try:
        yield request_writer, response_reader
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def echo_burst(count: int) -> float:
    """Messages a second there and back, sent in a burst by one thread and received by another."""
    with echo() as (out, back):

        def receive() -> None:
            for _ in range(count):
                back.recv_bytes()

        receiver = threading.Thread(target=receive)
        started = time.perf_counter()
        receiver.start()
        for _ in range(count):
            out.send_bytes(MESSAGE)
        receiver.join()
        return count / (time.perf_counter() - started)


def ping_pong(count: int) -> float:
    """Median of a message there and back, one at a time, in µs."""
    with echo() as (out, back):
        times = []
        for _ in range(count):
            started = time.perf_counter_ns()
            out.send_bytes(MESSAGE)
            back.recv_bytes()
            times.append(time.perf_counter_ns() - started)
        return statistics.median(times) / 1e3


def bare_loop(batch_size: int, count: int) -> float:
    """Samples a second of the same module called in a loop, in a fresh process with all cores."""
    code = (
        "import sys, time, torch\n"
        "from pathlib import Path\n"
        "from bench.backend.checkpoints import prepare\n"
        "from bench.backend.models import build\n"
        "from bench.telemetry.control_groups import usable_cores\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from overhead import settings\n"
        "batch, count = int(sys.argv[2]), int(sys.argv[3])\n"
        "s = settings('model=resnet18')\n"
        "torch.set_num_threads(usable_cores())\n"
        "model, _ = build(s, torch.device('cpu'), prepare(s).path)\n"
        "inputs = [torch.randn(batch, 3, 250, 250) for _ in range(4)]\n"
        "with torch.inference_mode():\n"
        "    model(inputs[0])\n"
        "    started = time.perf_counter()\n"
        "    for k in range(count): model(inputs[k % 4])\n"
        "    print(batch * count / (time.perf_counter() - started))\n"
    )
    command = [sys.executable, "-c", code, str(HERE.parent), str(batch_size), str(count)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)


def opponent(model: str, batch_size: int, num_iters: int, num_workers: int) -> dict[str, float]:
    """PyTorch's structure; adds `beside`, the wall time that is neither warm-up nor window."""
    arguments = [model, *map(str, (batch_size, num_iters, num_workers))]
    started = time.perf_counter()
    command = [sys.executable, str(HERE.with_name("opponent.py")), *arguments]
    result: dict[str, float] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    )
    result["beside"] = time.perf_counter() - started - result["window"] - result["warmup_latency"]
    return result


# The sections


def noop() -> list[Row]:
    """Bursts through a model that does nothing."""
    run("num_iters=1000")  # the fork server and every file are warm
    bare, serial, pipelined, wide = [echo_burst(50_000)], [], [], []
    for _ in range(7):
        serial.append(run()["throughput"])
        pipelined.append(run("stream_layout=pipelined")["throughput"])
        wide.append(run("batch_size=32")["throughput"] / 32)
        bare.append(echo_burst(50_000))
    torch_serial = run("queue=torch", "num_iters=2000")["throughput"]
    torch_pipelined = run("queue=torch", "num_iters=2000", "stream_layout=pipelined")["throughput"]
    structure = opponent("noop", 1, 500, 4)["throughput"]
    b, s, p, w = map(statistics.median, (bare, serial, pipelined, wide))
    return [
        Row("noop, burst, serial", rate(s), f"{rate(torch_serial)} queue=torch", s / torch_serial, "≥ 100×"),
        Row("noop, burst, pipelined", rate(p), f"{rate(torch_pipelined)} queue=torch", p / torch_pipelined, "≥ 100×"),
        Row("noop, burst, pipelined", rate(p), f"{rate(structure)} PyTorch's structure", p / structure, "≥ 100×"),
        Row("noop, burst, serial", rate(s), f"{rate(b)} bare echo", in_between(serial, bare), "≥ 0.7×"),
        Row("noop, burst, pipelined", rate(p), f"{rate(b)} bare echo", in_between(pipelined, bare), "≥ 0.3×"),
        Row("noop, batch 32 against 1, serial", rate(w), f"{rate(s)} batch 1", ratios(wide, serial), "≥ 0.9×"),
    ]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of what was measured one after the other, since a machine's speed changes within minutes."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def in_between(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The same where an opponent was measured before and after each."""
    return ratios(ours, [statistics.mean(pair) for pair in pairwise(theirs)])


def closed() -> list[Row]:
    """One request at a time."""
    load = ("load=closed", "load.clients=1", "num_iters=5000")
    bare, serial, pipelined = [ping_pong(5000)], [], []
    for _ in range(7):
        serial.append(run(*load)["latency_p50"] * 1e6)
        pipelined.append(run("stream_layout=pipelined", *load)["latency_p50"] * 1e6)
        bare.append(ping_pong(5000))
    b, s, p = map(statistics.median, (bare, serial, pipelined))
    return [
        Row(
            "closed loop, 1 client, p50, serial",
            f"{s:.1f} µs",
            f"{b:.1f} µs ping-pong",
            in_between(serial, bare),
            "≤ 2×",
        ),
        Row(
            "closed loop, 1 client, p50, pipelined",
            f"{p:.1f} µs",
            f"{b:.1f} µs ping-pong",
            in_between(pipelined, bare),
            "≤ 3×",
        ),
    ]


def open_loop() -> list[Row]:
    """A Poisson load of 20,000 requests/s against noop: is it delivered, and on time?"""
    wanted = settings("load=poisson", "load.rate=20000", "num_iters=100000")
    paces = []
    for _ in range(3):
        stamps = run_outcome(wanted).stamps[1:]
        paces.append(behind(stamps[:, INTENDED], stamps[:, SENT]))
    pace = min(paces, key=lambda one: one.delay["p99"])
    asked, delivered = pace.asked_rate or 0, pace.delivered_rate or 0
    delay_ms = pace.delay["p99"] * 1e3
    return [
        Row(
            "open loop, Poisson, noop, delivered", rate(delivered), f"{rate(asked)} asked", delivered / asked, "≥ 0.99×"
        ),
        Row("the same, p99 schedule delay", f"{delay_ms:.3f} ms", "0.3 ms", delay_ms / 0.3, "≤ 1×"),
    ]


def resnet18() -> list[Row]:
    """A real model, eager, against the bare loop."""
    rows = []
    for batch_size in (1, 8, 32):
        count = max(6, round(BARE_LOOP_S * bare_loop(batch_size, 6) / batch_size))
        bare, ours = [bare_loop(batch_size, count)], []
        for _ in range(7):
            ours.append(run("model=resnet18", f"batch_size={batch_size}", f"num_iters={count}")["throughput"])
            bare.append(bare_loop(batch_size, count))
        o, b = statistics.median(ours), statistics.median(bare)
        what, pairs = f"ResNet-18 eager, serial, batch {batch_size}", in_between(ours, bare)
        rows.append(Row(what, f"{o:.2f} samples/s", f"{b:.2f} samples/s bare loop", pairs, "≥ 0.98×"))
    return rows


def wall() -> list[Row]:
    """The wall time of a run beside load, compile, warm-up and measuring, from the second run on."""
    with tempfile.TemporaryDirectory() as directory:
        overrides = [
            "compile=false",
            "batch_size=1",
            "num_iters=20",
            "repeat=range(8)",
            "stream_layout=serial",
            "progress=false",
            "plots=false",
            f"output_dir={directory}",
        ]
        command = [sys.executable, "-m", "bench", "-m", *overrides]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        records = [json.loads(file.read_text()) for file in Path(directory).glob("*/*/*/metrics.json")]
    records.sort(key=lambda record: record["started_at"])
    starts = [np.datetime64(record["started_at"].removesuffix("+00:00"), "us").astype(int) / 1e6 for record in records]
    measured = ("load", "compile", "warm-up", "measuring")
    beside = [
        starts[k + 1] - starts[k] - sum(records[k]["environment"]["phases_s"].get(phase, 0) for phase in measured)
        for k in range(1, len(records) - 1)
    ]
    ours, theirs = statistics.median(beside), opponent("resnet18", 1, 20, 1)["beside"]
    return [
        Row("run beside its measuring, ResNet-18, batch 1", f"{ours:.3f} s", "0.3 s", ours / 0.3, "≤ 1×"),
        Row(
            "the same, PyTorch's structure against ours",
            f"{ours:.3f} s",
            f"{theirs:.1f} s PyTorch's structure",
            theirs / ours,
            "≥ 20×",
        ),
    ]


def memory() -> list[Row]:
    """Peak memory of all processes and what they share, at 100,000 requests against 1,000."""
    peaks = {}
    for num_iters in (1000, 100_000):
        with peak_memory() as peak:
            run_outcome(settings(f"num_iters={num_iters}"))
        peaks[num_iters] = peak[0]
    rows_bytes = 160 * 99_000
    many, few = peaks[100_000] - rows_bytes, peaks[1000]
    what = "peak memory, 100,000 requests (less 160 bytes each) against 1,000"
    return [Row(what, f"{many / 2**20:.0f} MiB", f"{few / 2**20:.0f} MiB", many / few, "≤ 1.05×")]


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The highest sum of proportional set sizes of this process and its children, looked at every 20 ms."""
    peak, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            me = psutil.Process()
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                except OSError:
                    continue
                total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) * 1024
            peak[0] = max(peak[0], total)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def help_text() -> list[Row]:
    """`--help`, which needs neither torch nor pandas."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bench", "--help"], check=True, capture_output=True, timeout=60)
        times.append(time.perf_counter() - started)
    took = statistics.median(times)
    return [Row("python -m bench --help", f"{took:.2f} s", "1 s", took, "≤ 1×")]


def rate(value: float) -> str:
    return f"{value:,.0f} requests/s"


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "help": help_text,
    "noop": noop,
    "closed": closed,
    "open": open_loop,
    "memory": memory,
    "wall": wall,
    "resnet18": resnet18,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the harness costs, beside its opponents.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--output", type=Path, default=Path("outputs/overhead"))
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}. There are {', '.join(SECTIONS)}")
    here = environment()
    rows = []
    for name in arguments.sections or SECTIONS:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += SECTIONS[name]()
    table = markdown_table(
        ["what", "this harness", "beside it", "ratio", "target", "met"], [row.cells() for row in rows]
    )
    versions = here["versions"]
    text = (
        f"{table}\n{here['cpu']['model']}, {here['cpu']['cores']} cores, Linux {here['kernel']}; "
        f"Python {versions['python']}, torch {versions['torch']}. Medians, measured in turn "
        "in one run; where a range is given, the ratio is the median of neighbours' ratios.\n"
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "overhead.md").write_text(text, encoding="utf-8")
    print(text)
    print(arguments.output / "overhead.md")


if __name__ == "__main__":
    fork_server.context()
    main()
