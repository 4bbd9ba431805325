"""The queueing theory that other tests lean on: recursions against loops, formulas against simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queueing import (
    Times,
    burst_latencies,
    closed_loop,
    closed_throughput,
    fifo,
    lateness,
    lindley,
    md1_wait,
    mdc_wait,
    mean_waits,
    mg1_wait,
    mm1_wait,
    mm1_wait_quantile,
    mmc_wait,
    one_step,
    poisson_arrivals,
)

MS = 1_000_000
S = 5 * MS
N = 200_000


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def ms(*values: float) -> Times:
    return np.array([round(value * MS) for value in values], dtype=np.int64)


def exponential(shape: int | tuple[int, int], seed: int = 2) -> Times:
    return np.rint(rng(seed).exponential(S, shape)).astype(np.int64)


def test_one_server_by_hand() -> None:
    """Services of 10 ms: the second waits 5 ms, the third 9 ms, and the fourth finds the server free."""
    assert lindley(ms(0, 5, 11, 40), ms(10, 10, 10, 10)).tolist() == ms(0, 10, 20, 40).tolist()


def test_two_servers_by_hand() -> None:
    """The third takes the server that is free at 4 ms and not that of the long first request."""
    assert fifo(ms(0, 1, 2, 50), ms(30, 3, 10, 1), 2).tolist() == ms(0, 1, 4, 50).tolist()


@given(seed=st.integers(0, 2**32), count=st.integers(1, 60))
def test_the_recursion_without_a_loop_is_the_loop(seed: int, count: int) -> None:
    """`lindley`, `fifo` of one server and `one_step` over the resulting ends agree to the nanosecond."""
    arrivals = np.sort(rng(seed).integers(0, 100 * count, count))
    services = rng(seed + 1).integers(1, 200, count)
    starts = lindley(arrivals, services)
    assert (fifo(arrivals, services) == starts).all()
    assert (one_step(arrivals, starts + services) == starts).all()


@given(seed=st.integers(0, 2**32), servers=st.integers(1, 5))
def test_more_servers_agree_with_their_measured_ends(seed: int, servers: int) -> None:
    """Of a queue that keeps to theory both kinds of lateness are 0, whatever the order of the rows."""
    arrivals, services = np.sort(rng(seed).integers(0, 3000, 40)), rng(seed + 1).integers(1, 200, 40)
    starts = fifo(arrivals, services, servers)
    shuffled = np.argsort(arrivals, kind="stable")[::-1] if len(set(arrivals.tolist())) == 40 else np.arange(40)
    for late in lateness(arrivals[shuffled], starts[shuffled], (starts + services)[shuffled], servers):
        assert not late.any()


def test_lateness_adds_up_over_a_busy_period_or_not() -> None:
    """A harness that takes 1 ms before each of 4 requests in a row: 1…4 ms late in all, 1 ms each on its own."""
    starts = ms(1, 12, 23, 34)
    whole, each = lateness(ms(0, 0, 0, 0), starts, starts + 10 * MS)
    assert whole.tolist() == ms(1, 2, 3, 4).tolist()
    assert each.tolist() == ms(1, 1, 1, 1).tolist()


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_mean_waits_of_one_server(rho: float) -> None:
    """Constant, exponential and two-point services: 200,000 simulated requests wait as theory says, within 5 %."""
    arrivals = poisson_arrivals(rho / S, N, rng())
    fast, slow = S / 1.9, 10 * S / 1.9
    two_point = np.where(rng(3).random(N) < 0.1, slow, fast).astype(np.int64)
    second_moment = 0.9 * fast**2 + 0.1 * slow**2
    for services, theory in (
        (np.full(N, S), md1_wait(rho, S)),
        (exponential(N), mm1_wait(rho, S)),
        (two_point, mg1_wait(rho / S, S, second_moment)),
    ):
        assert (lindley(arrivals, services) - arrivals).mean() == pytest.approx(theory, rel=0.05)
    assert mm1_wait(rho, S) == pytest.approx(2 * md1_wait(rho, S))


def test_quantiles_of_the_wait() -> None:
    """M/M/1 at 0.8: half of the requests wait less than 11.8 ms, a tenth more than 52 ms; below 0.2 nobody waits."""
    arrivals = poisson_arrivals(0.8 / S, N, rng())
    waits = np.sort(lindley(arrivals, exponential(N)) - arrivals)
    for quantile in (0.5, 0.9):
        assert waits[int(quantile * N)] == pytest.approx(mm1_wait_quantile(0.8, S, quantile), rel=0.05)
    assert (mm1_wait_quantile(0.8, S, 0.19), waits[int(0.15 * N)]) == (0, 0)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_mean_waits_of_several_servers(rho: float) -> None:
    """M/M/4 waits as Erlang's formula says, within 5 %; with one server it is M/M/1, and M/D/1 is M/D/c with c = 1."""
    arrivals = poisson_arrivals(4 * rho / S, N, rng())
    assert (fifo(arrivals, exponential(N), 4) - arrivals).mean() == pytest.approx(mmc_wait(rho, S, 4), rel=0.05)
    assert mmc_wait(rho, S, 1) == pytest.approx(mm1_wait(rho, S))
    assert mdc_wait(rho, S, 1, N, rng()) == pytest.approx(md1_wait(rho, S), rel=0.05)


def test_equal_services_take_turns() -> None:
    """M/D/3 by three queues is M/D/3 by the first free server, to the last digit."""
    arrivals = poisson_arrivals(3 * 0.8 / S, 30_000, rng())
    waits = (fifo(arrivals, np.full(30_000, S), 3) - arrivals).mean()
    assert mdc_wait(0.8, S, 3, 30_000, rng()) == pytest.approx(waits, rel=1e-12)


def test_the_spread_of_short_runs_is_around_theory() -> None:
    """Runs of 2000 requests at 0.5 have the mean of theory between them, and single ones stray by 5 to 15 %."""
    waits = mean_waits(0.5 / S, exponential((500, 2000)), rng())
    assert waits.shape == (500,)
    assert waits.mean() == pytest.approx(mm1_wait(0.5, S), rel=0.02)
    assert 0.05 < waits.std() / waits.mean() < 0.15


@pytest.mark.parametrize(("clients", "think_ms", "servers"), [(1, 0, 1), (3, 20, 1), (9, 20, 1), (8, 0, 4), (2, 5, 4)])
def test_a_closed_loop_is_limited_by_its_clients_or_its_servers(clients: int, think_ms: int, servers: int) -> None:
    """1000 simulated requests of 5 ms come out at N/(S+Z) or c/S, whichever is less, within 2 %."""
    arrivals, ends = closed_loop(clients, np.full(1000, S), think_ms * MS, servers)
    theory = closed_throughput(clients, S, think_ms * MS, servers)
    assert (1000 - clients) / (int(ends[-1]) - int(ends[clients - 1])) == pytest.approx(theory, rel=0.02)
    assert int((ends - arrivals).min()) == S


def test_burst_latencies_are_places_in_the_queue() -> None:
    """Requests sent at once: with one server the i-th takes i·S, with two each pair takes as long."""
    assert burst_latencies(4, S).tolist() == ms(5, 10, 15, 20).tolist()
    assert burst_latencies(5, S, 2).tolist() == ms(5, 5, 10, 10, 15).tolist()
    at_once = np.zeros(50, dtype=np.int64)
    for servers in (1, 3):
        ends = fifo(at_once, np.full(50, S), servers) + S
        assert (ends == burst_latencies(50, S, servers)).all()
