"""Real runs of a model that takes a known time, against queueing theory; and what freezes show up as."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from queueing import burst_latencies, lateness, mean_waits, mg1_wait

from bench.config import Settings
from bench.gauge import Reading
from bench.job import compose
from bench.measure import Outcome, Progress, measure, no_progress
from bench.results.checks import judge
from bench.results.load import load_metrics
from bench.results.metrics import Stamps, run_metrics
from bench.results.stages import tail_evidence
from bench.stamps import COMPLETED, COMPUTE_END, COMPUTE_START, INTENDED, SENT

MS = 1_000_000

# Real time on a machine that may be busy with other things: a disturbed run is repeated, a fault fails all three.
pytestmark = pytest.mark.flaky(reruns=2)


def simulated(tmp_path: Path, *overrides: str) -> Settings:
    small = ("model=simulated", "model.input_shape=[1]", "batch_size=1", "compile=false", "telemetry=false")
    return compose(*small, "stream_layout=serial", f"cache_dir={tmp_path}/cache", "stall_timeout_s=60", *overrides)


def run(settings: Settings, directory: Path, progress: Progress = no_progress) -> tuple[Outcome, Stamps]:
    """The outcome of a real run and the stamps of its measured requests."""
    outcome = measure(settings, directory, progress)
    assert outcome.failure is None, outcome.failure
    return outcome, outcome.stamps[1 + settings.warmup_iters :]


@pytest.mark.parametrize("distribution", ["constant", "exponential"])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_open_loop_waits_as_lindley_and_theory_say(tmp_path: Path, distribution: str, rho: float) -> None:
    """M/D/1 and M/M/1: no request starts before its queue lets it, most within 1 ms of it, and the mean wait
    is what 99.8 % of simulated runs of so many requests have, but for what the measured delays add."""
    mean_ms, count = 4.0, 600
    overrides = [f"model.args.distribution={distribution}", f"model.args.mean_ms={mean_ms}", f"num_iters={count}"]
    _, stamps = run(simulated(tmp_path, "load=poisson", f"load.rate={1000 * rho / mean_ms}", *overrides), tmp_path)
    sent, start, end = stamps[:, SENT], stamps[:, COMPUTE_START], stamps[:, COMPUTE_END]
    _, late = lateness(sent, start, end)
    assert late.min() >= 0
    assert np.median(late) < MS

    service = (end - start).astype(float)
    rate = rho / (mean_ms * MS)
    rng = np.random.default_rng(1)
    drawn = np.rint(rng.choice(service, size=(2000, count))).astype(np.int64)
    low, high = np.quantile(mean_waits(rate, drawn, rng), [0.001, 0.999])
    waited = float((start - sent).mean())
    theory = mg1_wait(rate, service.mean(), float((service**2).mean()))
    assert low < theory < high, "the simulation and the formula agree"
    # Each request of a busy period may start late by what those before it were late: the mean delay, 1/(1-ρ) times.
    assert low < waited < high + 2 * float(late.mean()) / (1 - rho)


def test_several_workers_are_one_queue_with_several_servers(tmp_path: Path) -> None:
    """M/D/2 through the async layout: no request starts before one of two workers is free."""
    overrides = ["stream_layout=async", "num_workers=2", "model.args.mean_ms=4", "num_iters=400"]
    _, stamps = run(simulated(tmp_path, "load=poisson", "load.rate=375", *overrides), tmp_path)
    _, late = lateness(stamps[:, SENT], stamps[:, COMPUTE_START], stamps[:, COMPUTE_END], 2)
    assert late.min() >= 0
    assert np.median(late) < MS


@pytest.mark.parametrize(("clients", "think_ms"), [(1, 0), (3, 0), (2, 20)])
def test_closed_loop_has_the_throughput_of_theory(tmp_path: Path, clients: int, think_ms: int) -> None:
    """N/(R+Z) by what was measured of R, exactly in the long run; and never above 1/S."""
    load = ["load=closed", f"load.clients={clients}", f"load.think_ms={think_ms}"]
    settings = simulated(tmp_path, *load, "model.args.mean_ms=5", "num_iters=120")
    _, stamps = run(settings, tmp_path)
    metrics = run_metrics(np.concatenate([stamps[:1], stamps]), 1, 0)
    service = float((stamps[:, COMPUTE_END] - stamps[:, COMPUTE_START]).mean()) / 1e9
    response = metrics["average_latency"]
    # The last `clients` answers are not followed by a think time: 5 % is more than that of 120 requests.
    assert metrics["throughput"] == pytest.approx(clients / (response + think_ms / 1e3), rel=0.05)
    assert metrics["throughput"] <= 1 / service * 1.01
    starts, ends = np.sort(stamps[:, SENT]), np.sort(stamps[:, COMPLETED])
    in_flight = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, "right")
    assert in_flight.max() <= clients


def test_burst_latencies_are_places_in_the_queue(tmp_path: Path) -> None:
    """The i-th of a burst waits for those before it: i·S, never less."""
    _, stamps = run(simulated(tmp_path, "model.args.mean_ms=5", "num_iters=40"), tmp_path)
    latency = np.sort(stamps[:, COMPLETED] - stamps[:, INTENDED])
    spread = int(stamps[:, SENT].max() - stamps[:, SENT].min())
    assert (latency >= burst_latencies(40, 5 * MS) - spread).all()
    service = int((stamps[:, COMPUTE_END] - stamps[:, COMPUTE_START]).mean())
    assert float(np.median(latency / burst_latencies(40, service))) == pytest.approx(1, rel=0.1)


def freezing(name: str, seconds: float) -> Progress:
    """Stop the run's process `name` for so long, half a second after the window has opened."""
    done = threading.Event()

    def freeze() -> None:
        pids = [process.pid for process in multiprocessing.active_children() if process.name == name]
        time.sleep(0.5)
        for pid in pids:
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            assert pid is not None
            os.kill(pid, signal.SIGCONT)

    def progress(reading: Reading) -> None:
        if reading.phase == "measuring" and not done.is_set():
            done.set()
            threading.Thread(target=freeze).start()

    return progress


@pytest.fixture
def steady(tmp_path: Path) -> Callable[..., Settings]:
    """100 requests/s for 5 s of a model that takes 2 ms."""
    return lambda *more: simulated(
        tmp_path, "load=constant", "load.rate=100", "num_iters=500", "model.args.mean_ms=2", *more
    )


def test_a_frozen_backend_shows_up_in_the_tail(tmp_path: Path, steady: Callable[..., Settings]) -> None:
    """3 s of silence under a constant rate: the requests sent meanwhile waited, and the percentiles tell."""
    _, stamps = run(steady(), tmp_path, freezing("backend", 3))
    metrics = run_metrics(np.concatenate([stamps[:1], stamps]), 1, 0)
    assert metrics["max_latency"] > 2.5
    assert metrics["latency_p99"] > 2
    assert float(np.median(stamps[:, SENT] - stamps[:, INTENDED])) < 10 * MS, "the client kept its time"
    tail = tail_evidence(stamps)
    assert tail is not None
    assert tail.stage == "queue_wait"


def test_a_frozen_client_shows_up_as_its_own_delay(tmp_path: Path, steady: Callable[..., Settings]) -> None:
    """3 s in which nothing is sent: latency from the intended send tells, the backend's own part does not."""
    settings = steady()
    outcome, stamps = run(settings, tmp_path, freezing("frontend", 3))
    delay = stamps[:, SENT] - stamps[:, INTENDED]
    assert delay.max() > 2.5e9
    assert load_metrics(settings, stamps)["late_share"] > 0.1
    assert float(np.median(stamps[:, COMPUTE_END] - stamps[:, COMPUTE_START])) < 10 * MS
    report = outcome.report["backend"]
    verdict = judge(settings, outcome.stamps, report, outcome.digests, outcome.kept, outcome.in_flight_ns)
    assert verdict.status == "invalid"
    assert any("fell behind" in reason for reason in verdict.reasons)
