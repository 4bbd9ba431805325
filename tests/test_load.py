"""Load patterns are schedules: when each request is meant to be sent, and nothing else."""

from queue import Empty
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import Load as LoadSettings
from bench.frontend.load import Burst, Closed, make_load


def answer(load: Closed, completed_ns: int) -> None:
    """Tell a load of an answer, as the receiver does."""
    assert load.answered is not None
    load.answered(completed_ns)


@given(st.integers(0, 200))
@settings(deadline=None)
def test_burst_sends_everything_at_once(count: int) -> None:
    """No request of a burst has a planned time of its own, and none waits for an answer."""
    burst = Burst()
    assert list(burst.times(count)) == [None] * count
    assert burst.answered is None


@given(clients=st.integers(1, 20), count=st.integers(0, 60), steps=st.lists(st.integers(1, 10**9), min_size=60))
@settings(deadline=None)
def test_closed_never_has_more_in_flight_than_clients(clients: int, count: int, steps: list[int]) -> None:
    """Each client's first request goes at once, each further one at the time of an answer, in their order."""
    load = Closed(clients, timeout_s=0.0)
    times = load.times(count)
    planned: list[int | None] = []
    completed: list[int] = []
    while len(completed) < count:
        while True:  # send until the load waits for an answer
            try:
                planned.append(next(times))
            except (Empty, StopIteration):
                break
            in_flight = len(planned) - len(completed)
            assert in_flight <= clients
            if in_flight == clients:
                break
        assert len(planned) - len(completed) == min(clients, count - len(completed))
        completed.append(sum(steps[: len(completed) + 1]))
        answer(load, completed[-1])
    assert planned == ([None] * clients + completed[: max(0, count - clients)])[:count]


def test_closed_takes_answers_in_the_order_they_came() -> None:
    """Answers that wait for the sender are not lost, and their times are passed on unchanged."""
    load = Closed(1, timeout_s=0.0)
    times = load.times(4)
    assert next(times) is None
    for completed_ns in (30, 10, 20):
        answer(load, completed_ns)
    assert list(times) == [30, 10, 20]


def test_closed_does_not_wait_for_ever() -> None:
    """Without an answer the next request's time is an error after the time-out, not a hang."""
    times = Closed(2, timeout_s=0.01).times(3)
    assert [next(times), next(times)] == [None, None]
    started = monotonic()
    with pytest.raises(Empty):
        next(times)
    assert 0.005 < monotonic() - started < 0.5


def test_the_settings_choose_the_load() -> None:
    """The name in the settings gives the pattern, with its number of clients."""
    burst = make_load(LoadSettings("burst", None), 1.0)
    assert isinstance(burst, Burst)
    assert burst.in_flight is None
    closed = make_load(LoadSettings("closed", 3), 0.0)
    assert isinstance(closed, Closed)
    assert closed.in_flight == 3
    times = closed.times(4)
    assert [next(times) for _ in range(3)] == [None] * 3
    with pytest.raises(Empty):
        next(times)
