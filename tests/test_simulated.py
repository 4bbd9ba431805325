"""The simulated model takes the time that its generator draws, from any thread, compiled or not."""

import ctypes
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from scipy.stats import kstest

from bench.backend import models, simulated
from bench.backend.models import Noop
from bench.backend.simulated import DISTRIBUTIONS, Simulated, generator, service_times
from bench.config import Model
from bench.errors import ConfigError
from bench.frontend.schedules import poisson

CONF = Path(__file__).parent.parent / "conf" / "model"
MS = 1_000_000


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def timed(model: torch.nn.Module, calls: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How long each call took, in nanoseconds."""
    x = torch.ones(2, 3)
    times = []
    with torch.inference_mode():
        for _ in range(calls):
            started = time.perf_counter_ns()
            model(x)
            times.append(time.perf_counter_ns() - started)
    return np.array(times)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (2, 7), (3,)])
def test_it_answers_as_noop_does(shape: tuple[int, ...]) -> None:
    """The first element of each sample, so that a wrong payload's answer is seen."""
    x = torch.arange(float(torch.Size(shape).numel())).view(shape)
    assert torch.equal(Simulated(mean_ms=0.001)(x), Noop()(x))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_mean_is_the_mean(distribution: str) -> None:
    """Of 200,000 draws it is what was asked, within 2 %, whichever the distribution, and none is negative."""
    drawn = service_times(distribution, 5 * MS, rng(), 200_000)
    assert drawn.mean() == pytest.approx(5 * MS, rel=0.02)
    assert drawn.min() >= 0


def test_the_distributions_are_what_they_are_called() -> None:
    """Constant has one value, exponential passes a Kolmogorov-Smirnov test, two_point has two in their shares."""
    assert set(service_times("constant", 5 * MS, rng(), 100)) == {5 * MS}
    assert kstest(service_times("exponential", 5 * MS, rng(), 20_000), "expon", args=(0, 5 * MS)).pvalue > 0.05
    values, counts = np.unique(service_times("two_point", 4 * MS, rng(), 20_000, 0.25, 5), return_counts=True)
    assert values.tolist() == [2 * MS, 10 * MS]
    assert counts[1] / 20_000 == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_services_are_independent_of_arrivals(seed: int) -> None:
    """Of the same seed the service times and the intervals between Poisson arrivals do not go together."""
    services = service_times("exponential", 5 * MS, generator(seed), 10_000)
    for repeat in (0, 1):
        intervals = np.diff(poisson(100, np.random.default_rng([seed, repeat]), num_iters=10_001))
        for shift in (0, 1):
            assert abs(np.corrcoef(services[shift:], intervals[: 10_000 - shift])[0, 1]) < 0.05


@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_each_call_takes_its_drawn_time(how: str) -> None:
    """50 exponential service times of 2 ms: none is short, and a fifth, on whatever machine, less than 0.2 ms late."""
    drawn = service_times("exponential", 2 * MS, generator(7), 1024)[:50]  # as many as the model draws at once
    late = timed(Simulated("exponential", 2, 7, how), 50) - drawn
    assert late.min() >= 0
    assert np.quantile(late, 0.2) < 0.2 * MS


@pytest.mark.parametrize(("how", "busy"), [("sleep", False), ("spin", True)])
def test_sleep_leaves_the_core_and_spin_keeps_it(how: str, busy: bool) -> None:
    """In 200 ms of service a spinning thread uses most of the time that its core has for it, a sleeping one none."""
    model = Simulated("constant", 200, 0, how)
    started = time.thread_time()
    timed(model, 1)
    used = time.thread_time() - started
    assert used > 0.05 if busy else used < 0.02


def test_a_spinning_thread_does_not_hold_up_the_others() -> None:
    """While one spins for 300 ms another wakes each millisecond, as it could not if the first kept the GIL for 5 ms."""
    model = Simulated("constant", 300, 0, "spin")
    thread = threading.Thread(target=timed, args=(model, 1))
    thread.start()
    wakes = 0
    while thread.is_alive():
        time.sleep(0.001)
        wakes += 1
    thread.join(10)
    assert wakes > 120  # at 5 ms each it would be 50


def test_workers_share_one_series_of_draws() -> None:
    """Four threads call at once while a draw takes its time: each draw is served once, none is lost or fails."""
    model = Simulated()
    served: list[int] = []  # appending is atomic
    frozen = time.perf_counter_ns()

    def slow_draws() -> Iterator[int]:
        for draw in range(40):
            time.sleep(0.001)
            yield draw

    model._draws = slow_draws()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr(simulated, "now", lambda: frozen)
        patch.setattr(model, "_wait_until", lambda deadline: served.append(deadline - frozen))
        list(pool.map(lambda _: model(torch.ones(1, 1)), range(40)))
    assert sorted(served) == list(range(40))


def test_sleeping_workers_serve_side_by_side() -> None:
    """Four threads with 4 requests of 50 ms each are done after some 200 ms, not 800."""
    model = Simulated("constant", 50, 0)
    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: timed(model, 4), range(4)))
    assert 0.2 <= time.perf_counter() - started < 0.6


def test_threads_started_later_wake_on_time() -> None:
    """A sleeping model lowers the timer slack of the threads that its maker starts; a spinning one leaves it alone."""
    set_slack, get_slack = 29, 30
    prctl = ctypes.CDLL(None).prctl

    def made(how: str) -> int:
        prctl(set_slack, ctypes.c_ulong(50_000), 0, 0, 0)
        Simulated(how=how)
        with ThreadPoolExecutor(1) as started_later:
            return int(started_later.submit(prctl, get_slack, 0, 0, 0, 0).result(10))

    with ThreadPoolExecutor(1) as maker:
        assert [maker.submit(made, how).result(10) for how in ("spin", "sleep")] == [50_000, 1]


def test_compiled_it_still_waits() -> None:
    """With torch.compile there is one graph, every call waits, and the draws go on: the compiler traced no clock."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = Simulated("exponential", 5, 9)
    model.compile()
    timed(model, 1)
    took = timed(model, 20)
    drawn = service_times("exponential", 5 * MS, generator(9), 1024)[1:21]
    assert (took >= drawn).all()
    assert np.quantile(took - drawn, 0.2) < 2 * MS
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"distribution": "gauss"}, "model.args.distribution=gauss: must be one of constant, exponential, two_point"),
        ({"how": "nap"}, "model.args.how=nap: must be one of sleep, spin"),
        ({"mean_ms": 0}, "model.args.mean_ms=0: must be a number from 0.001"),
        ({"mean_ms": float("nan")}, "model.args.mean_ms=nan: must be"),
        ({"mean_ms": "5"}, "model.args.mean_ms=5: must be"),
        ({"slow_share": 1.5}, "model.args.slow_share=1.5: must be a number from 0 to 1"),
        ({"slow_times": 0.5}, "model.args.slow_times=0.5: must be a number from 1"),
        ({"seed": -1}, "model.args.seed=-1: must be a whole number"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, Any], message: str) -> None:
    """Key, value and what is allowed, before anything runs."""
    with pytest.raises(ConfigError, match=message):
        Simulated(**args)


def test_all_wrong_arguments_are_named_at_once() -> None:
    """Two wrong arguments are two problems."""
    with pytest.raises(ConfigError) as caught:
        Simulated(distribution="gauss", mean_ms=-1)
    assert len(caught.value.problems) == 2


def test_its_configuration_makes_it() -> None:
    """conf/model/simulated.yaml has the keys of the other models and makes a `Simulated` that takes 5 ms."""
    conf = OmegaConf.create({"seed": 6, "model": OmegaConf.load(CONF / "simulated.yaml")})
    values: Any = OmegaConf.to_container(conf.model, resolve=True)
    assert list(values) == list(OmegaConf.load(CONF / "noop.yaml"))
    assert values["args"]["seed"] == 6
    made = models.construct(Model(target=values.pop("_target_"), **values), seed=0)
    assert isinstance(made, Simulated)
    assert timed(made, 3).min() >= 5 * MS
