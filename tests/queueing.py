"""Queueing theory for tests: what a queue of known arrivals and service times must do.

Times are int64 arrays in nanoseconds, one element a request in the order of arrival; the queue is
first come, first served, with room for all. Formulas take any one unit of time. Sources:
Kleinrock, Queueing Systems, vol. 1 (1975); for Lindley's recursion, Proc. Camb. Phil. Soc. 48 (1952).
"""

import heapq
import math

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


def lindley(arrivals: Times, services: Times) -> Times:
    """When each request starts at one server: start[n] = max(arrival[n], start[n-1] + service[n-1]).

    Without the loop: the work done before n, and the latest arrival less the work before it, up to n.
    Arrays of more dimensions are queues of their own, each along the last axis.
    """
    before = np.cumsum(services, axis=-1) - services
    starts: Times = before + np.maximum.accumulate(arrivals - before, axis=-1)
    return starts


def fifo(arrivals: Times, services: Times, servers: int = 1) -> Times:
    """When each request starts at the first of `servers` to become free; `lindley` for more than one."""
    free = [int(arrivals.min(initial=0))] * servers
    starts = np.empty_like(arrivals)
    for n, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        starts[n] = start = max(arrival, free[0])
        heapq.heapreplace(free, start + service)
    return starts


def one_step(arrivals: Times, ends: Times, servers: int = 1) -> Times:
    """When each request could have started, the requests before having ended when they did.

    Lindley's recursion one step at a time: delays of the harness do not add up over a busy period.
    """
    free = [int(arrivals.min(initial=0))] * servers
    starts = np.empty_like(arrivals)
    for n, (arrival, end) in enumerate(zip(arrivals.tolist(), ends.tolist(), strict=True)):
        starts[n] = max(arrival, free[0])
        heapq.heapreplace(free, end)
    return starts


def lateness(sent: Times, compute_start: Times, compute_end: Times, servers: int = 1) -> tuple[Times, Times]:
    """How much later than in theory each request was computed, by what was measured.

    Args:
        sent, compute_start, compute_end: measured stamps, in the order of sending.

    Returns:
        Against `fifo` over the very sent times and measured durations: delays of a whole busy
        period add up. And against `one_step`: the delay of each request on its own.
    """
    order = np.argsort(sent, kind="stable")
    sent, start, end = sent[order], compute_start[order], compute_end[order]
    return start - fifo(sent, end - start, servers), start - one_step(sent, end, servers)


def closed_loop(clients: int, services: Times, think: int = 0, servers: int = 1) -> tuple[Times, Times]:
    """Arrival and end of each request when each client sends its next one `think` after its last has ended."""
    due, free = [0] * clients, [0] * servers
    arrivals, ends = np.empty_like(services), np.empty_like(services)
    for n, service in enumerate(services.tolist()):
        arrivals[n] = arrival = due[0]
        ends[n] = end = max(arrival, free[0]) + service
        heapq.heapreplace(free, end)
        heapq.heapreplace(due, end + think)
    return arrivals, ends


def burst_latencies(count: int, service: int, servers: int = 1) -> Times:
    """Latencies of requests that all come at once and take equally long: the i-th waits for those before it."""
    return (np.arange(count, dtype=np.int64) // servers + 1) * service


def closed_throughput(clients: int, service: float, think: float = 0.0, servers: int = 1) -> float:
    """Requests in a unit of time of a closed loop with constant times: N/(S+Z), and c/S where that is less."""
    return min(clients / (service + think), servers / service)


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Mean wait of Poisson arrivals at one server (Pollaczek and Khinchine)."""
    return rate * second_moment / (2 * (1 - rate * mean))


def md1_wait(rho: float, service: float) -> float:
    """Mean wait of M/D/1 at utilization `rho`."""
    return mg1_wait(rho / service, service, service**2)


def mm1_wait(rho: float, mean: float) -> float:
    """Mean wait of M/M/1 at utilization `rho`."""
    return mg1_wait(rho / mean, mean, 2 * mean**2)


def mm1_wait_quantile(rho: float, mean: float, quantile: float) -> float:
    """The wait that a share `quantile` of M/M/1's requests does not exceed: P(W > t) = ρ e^(-(1-ρ)t/S)."""
    return max(0.0, mean / (1 - rho) * math.log(rho / (1 - quantile)))


def mmc_wait(rho: float, mean: float, servers: int) -> float:
    """Mean wait of M/M/c at utilization `rho` of each server (Erlang's C)."""
    load = rho * servers
    blocked = 1.0  # Erlang's B, by its recursion in the number of servers
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    waits = blocked / (1 - rho * (1 - blocked))
    return waits * mean / (servers * (1 - rho))


def mdc_wait(rho: float, service: int, servers: int, requests: int, rng: np.random.Generator) -> float:
    """Mean wait of M/D/c, by simulation of so many requests.

    With equal services request n takes the server of request n - c, so each c-th request is a queue by itself.
    """
    arrivals = poisson_arrivals(rho * servers / service, requests, rng)
    queues = arrivals[: requests // servers * servers].reshape(-1, servers).T
    return float((lindley(queues, np.full_like(queues, service)) - queues).mean())


def poisson_arrivals(rate: float, shape: int | tuple[int, ...], rng: np.random.Generator) -> Times:
    """Arrivals at `rate` in a nanosecond, along the last axis."""
    return np.rint(np.cumsum(rng.exponential(1 / rate, shape), axis=-1)).astype(np.int64)


def mean_waits(rate: float, services: Times, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Mean wait of each of many simulated runs: how far a run of so many requests strays from theory.

    Args:
        services: (runs, requests).
    """
    arrivals = poisson_arrivals(rate, services.shape, rng)
    waits: npt.NDArray[np.float64] = (lindley(arrivals, services) - arrivals).mean(axis=-1)
    return waits
