"""Load patterns are schedules: when each request is meant to be sent, and nothing else."""

from pathlib import Path
from queue import Empty
from time import monotonic, perf_counter_ns

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.frontend.load import Burst, Closed, Open, Plan, make_load, plan, unused
from bench.job import compose

MS = 1_000_000
SOON_NS = 5 * 10**8  # in which a line of Python is surely run


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


@given(
    clients=st.integers(1, 20),
    think_ns=st.sampled_from([0, 1, 10**9]),
    count=st.integers(0, 60),
    steps=st.lists(st.integers(1, 10**9), min_size=60),
)
@settings(deadline=None)
def test_closed_never_has_more_in_flight_than_clients(
    clients: int, think_ns: int, count: int, steps: list[int]
) -> None:
    """Each client's first request goes at once, each further one a think time after an answer, in their order."""
    load = Closed(clients, think_ns, timeout_s=0.0)
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
    later = [moment + think_ns for moment in completed[: max(0, count - clients)]]
    assert planned == ([None] * clients + later)[:count]


def test_closed_takes_answers_in_the_order_they_came() -> None:
    """Answers that wait for the sender are not lost, and their times are passed on unchanged."""
    load = Closed(1, 0, timeout_s=0.0)
    times = load.times(4)
    assert next(times) is None
    for completed_ns in (30, 10, 20):
        answer(load, completed_ns)
    assert list(times) == [30, 10, 20]


def test_closed_does_not_wait_for_ever() -> None:
    """Without an answer the next request's time is an error after the time-out, not a hang."""
    times = Closed(2, 0, timeout_s=0.01).times(3)
    assert [next(times), next(times)] == [None, None]
    started = monotonic()
    with pytest.raises(Empty):
        next(times)
    assert 0.005 < monotonic() - started < 0.5


def test_closed_clients_that_think_are_not_answered_by_a_request() -> None:
    """Only without a think time does an answer itself send the next request, for as many as there are clients."""
    assert Closed(3, 0, timeout_s=0.0).in_flight == 3
    assert Closed(3, MS, timeout_s=0.0).in_flight is None


def test_the_settings_choose_the_load() -> None:
    """The name in the settings gives the pattern, with its number of clients and their think time."""
    burst = compose("num_iters=7")
    assert isinstance(make_load(burst, plan(burst)), Burst)
    asked = compose("load=closed", "load.clients=3", "load.think_ms=2.5", "stall_timeout_s=0.1", "num_iters=7")
    closed = make_load(asked, plan(asked))
    assert isinstance(closed, Closed)
    times = closed.times(4)
    assert [next(times) for _ in range(3)] == [None] * 3
    answer(closed, 100)
    assert next(times) == 100 + 2_500_000
    for name in ("constant", "poisson"):
        asked = compose(f"load={name}", "load.rate=100", "num_iters=7")
        assert isinstance(make_load(asked, plan(asked)), Open)


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (("num_iters=7",), 7),
        (("load=closed", "num_iters=7"), 7),
        (("load=closed", "num_iters=7", "duration_s=0.001"), 7),
        (("load=constant", "load.rate=100", "num_iters=7"), 7),
        (("load=constant", "load.rate=100", "num_iters=null", "duration_s=0.2"), 20),
        (("load=constant", "load.rate=100", "num_iters=30", "duration_s=0.2"), 20),
        (("load=poisson", "load.rate=100", "num_iters=7"), 7),
        (("load=ramp", "load.steps=[{rate: 100, duration_s: 0.1}, {rate: 50, requests: 5}]"), 15),
    ],
)
def test_a_plan_has_as_many_requests_as_the_settings_ask(overrides: tuple[str, ...], count: int) -> None:
    """A number of requests, a duration at a rate, or the first of the two to end; a ramp adds its steps."""
    made = plan(compose(*overrides))
    assert made.count == count
    assert made.offsets is None or len(made.offsets) == count


def test_a_closed_loop_that_only_time_ends_has_room_for_a_fast_backend() -> None:
    """How many requests it will be is not known, so there is a row for 100,000 a second, and a bound."""
    timed = ("load=closed", "num_iters=null")
    assert plan(compose(*timed, "duration_s=0.5")) == Plan(50_001)
    assert plan(compose(*timed, "duration_s=1e6")) == Plan(2_000_000)


def test_a_plan_is_that_of_its_seed_and_its_repeat() -> None:
    """Poisson arrivals are the same for the same seed and repeat, so cells meet the same load, and else others."""
    base = ("load=poisson", "load.rate=100", "num_iters=50")
    made = [plan(compose(*base, *other)).offsets for other in ((), ("batch_size=1",), ("seed=1",), ("repeat=1",))]
    first, same, seed, repeat = (offsets for offsets in made if offsets is not None)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, seed)
    assert not np.array_equal(first, repeat)
    assert not np.array_equal(seed, repeat)


def test_a_ramp_knows_the_step_of_each_request() -> None:
    """10 at 100 a second, then 2 at 50 a second."""
    made = plan(compose("load=ramp", "load.steps=[{rate: 100, duration_s: 0.1}, {rate: 50, requests: 2}]"))
    assert made.offsets is not None
    assert made.steps is not None
    assert made.steps.tolist() == [0] * 10 + [1] * 2
    assert made.offsets.tolist() == [*range(0, 100 * MS, 10 * MS), 100 * MS, 120 * MS]


def test_a_replay_sends_when_its_file_says(tmp_path: Path) -> None:
    """Offsets in seconds, up to num_iters of them."""
    file = tmp_path / "times.csv"
    file.write_text("seconds\n0\n0.25\n0.25\n1\n")
    for count, overrides in ((4, ()), (3, ("num_iters=3",))):
        made = plan(compose("load=replay", f"load.file={file}", *overrides))
        assert made.offsets is not None
        assert made.offsets.tolist() == [0, 250 * MS, 250 * MS, 1000 * MS][:count]


def test_open_keeps_to_its_plan_from_when_it_starts() -> None:
    """Whatever becomes of the requests before: all times are known at once, the first just after now."""
    offsets = np.array([0, 3, 10], dtype=np.int64) * MS
    load = Open(offsets)
    assert (load.in_flight, load.answered) == (None, None)
    before = perf_counter_ns()
    times = [time for time in load.times(3) if time is not None]
    assert [time - times[0] for time in times] == offsets.tolist()
    assert before < times[0] < before + SOON_NS


def test_open_warms_up_at_its_mean_rate() -> None:
    """More requests than planned, as in a long warm-up, come at the mean interval of the plan; fewer are its first."""
    offsets = np.array([0, 3, 10], dtype=np.int64) * MS
    for count, expected in ((5, [0, 5, 10, 15, 20]), (2, [0, 3])):
        times = [time for time in Open(offsets).times(count) if time is not None]
        assert [(time - times[0]) // MS for time in times] == expected


def test_key_that_no_load_uses_is_named() -> None:
    """load.rate beside load=burst would be left aside as if it had been heeded; beside burst,poisson it is used."""
    burst, poisson = (compose(f"load={name}", "load.rate=5") for name in ("burst", "poisson"))
    said = "load.rate=5.0: load=burst does not use it. Leave it out, or set load=constant or load=poisson"
    assert unused([burst, burst]) == [said]
    assert unused([burst, poisson]) == unused([poisson]) == unused([compose()]) == []
