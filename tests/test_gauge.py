"""The gauge reads phase, requests, throughput and latency from a run's stamps and its count of answers."""

import dataclasses

import numpy as np
import pytest

from bench.config import Settings
from bench.gauge import Gauge, Reading
from bench.job import compose
from bench.stamps import COMPLETED, INTENDED, STAMPS

S = 1_000_000_000


@pytest.fixture(scope="module")
def settings() -> Settings:
    return compose("batch_size=4", "warmup_iters=2", "num_iters=100")


class Run:
    """A run whose time and answers are told."""

    def __init__(self, settings: Settings, count: int = 100) -> None:
        rows = 1 + settings.warmup_iters + count
        memory = bytearray(rows * len(STAMPS) * 8)
        self.stamps = np.frombuffer(memory, dtype=np.int64).reshape(rows, len(STAMPS))
        self.now = 50.0
        self.answered = 0
        self.gauge = Gauge(settings, count, memoryview(memory).cast("q"), lambda: self.now)

    def answer(self, count: int, latency_s: float = 0.5) -> None:
        rows = self.stamps[self.answered : self.answered + count]
        rows[:, INTENDED], rows[:, COMPLETED] = S, S + round(latency_s * S)
        self.answered += count

    def read(self, phase: str, after_s: float = 1.0) -> Reading:
        self.now += after_s
        return self.gauge.read(phase, self.answered)


def test_requests_are_counted_by_phase(settings: Settings) -> None:
    """The cold one belongs to no phase, two to the warm-up, the rest to the window."""
    run = Run(settings)
    assert run.read("load") == Reading("load")
    run.answer(1)
    assert (run.read("warm-up").done, run.read("warm-up").total) == (0, 2)
    run.answer(2)
    assert run.read("warm-up").done == 2
    run.answer(37)
    assert (run.read("measuring").done, run.read("measuring").total) == (37, 100)
    assert run.read("check") == Reading("check")


def test_throughput_is_that_of_the_last_five_seconds(settings: Settings) -> None:
    """In samples: 4 a request. Unknown at first, and an old speed is forgotten."""
    run = Run(settings)
    run.answer(3)
    assert run.read("measuring").throughput is None
    for _ in range(10):
        run.answer(2)
        assert run.read("measuring").throughput == pytest.approx(8)
    for _ in range(6):
        run.answer(8)
        reading = run.read("measuring")
    assert reading.throughput == pytest.approx(32)


def test_a_slow_model_has_a_throughput_between_two_answers(settings: Settings) -> None:
    """Where the last seconds brought no answer, that of the phase so far stands for it."""
    run = Run(settings)
    run.answer(3)
    run.read("measuring")
    run.answer(1)
    for second in range(1, 31):
        assert run.read("measuring").throughput == pytest.approx(4 / second)


def test_latency_is_that_of_the_last_answers(settings: Settings) -> None:
    """The mean of the last sixteen; one that another worker still computes does not count as none."""
    run = Run(settings)
    run.answer(13, latency_s=9)
    run.answer(16, latency_s=0.25)
    run.stamps[run.answered - 3, COMPLETED] = 0
    assert run.read("measuring").latency_s == pytest.approx(0.25)


def test_a_count_before_the_phase_is_no_negative_one(settings: Settings) -> None:
    """The phase is announced before the last warm-up answer is counted, say."""
    run = Run(settings)
    run.answer(1)
    assert run.read("measuring") == Reading("measuring", 0, 100)


def test_count_beyond_the_last_request_is_the_last(settings: Settings) -> None:
    """The message that ends a run is counted as an answer, and has no row."""
    run = Run(settings)
    run.answer(103)
    run.answered += 1
    assert run.read("measuring").done == 100
    assert run.read("measuring").latency_s == pytest.approx(0.5)


def test_where_time_ends_the_load_the_number_of_requests_is_not_known(settings: Settings) -> None:
    """A closed loop for ten seconds: the rows there are would say `of 1,000,001`."""
    load = dataclasses.replace(settings.load, name="closed", clients=1)
    run = Run(dataclasses.replace(settings, num_iters=None, duration_s=10.0, load=load))
    run.answer(40)
    reading = run.read("measuring")
    assert (reading.done, reading.total) == (37, 0)
