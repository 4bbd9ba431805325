"""The frontend process: sends the load, receives the answers, and stamps both."""

import gc
import threading
from itertools import islice
from time import perf_counter_ns as now
from time import sleep

import torch

from bench.child import Link
from bench.clock import wake_on_time
from bench.errors import BenchError
from bench.frontend.load import Load, make_load
from bench.payloads import fill, pool_of
from bench.queues.base import BEGIN, END, Client
from bench.queues.memory import IN_FLIGHT_NS, BoardView
from bench.setup import RunSetup
from bench.stamps import COMPLETED, INTENDED, SENT, WIDTH

_READ_S = 0.1  # how long one read waits before it is asked again
_OUTER = 2  # what the supervisor waits for as well, it gives up first: it knows who is stopped or dead

# To wake a receiver that waits costs the backend several microseconds for each answer, more than all else. So
# when answers come at a rate that only a model that does nothing has, the receiver lets some gather, as
# network cards do. Such a run measures the harness and says so.
_QUICK_NS = 30_000
_QUICK_IN_A_ROW = 16
_GATHER_S = 50e-6


def drive(setup: RunSetup, link: Link) -> None:
    """Body of the frontend process: payloads, the cold first request, warm-up, the measured window."""
    settings = setup.settings
    timeout_s = settings.stall_timeout_s
    view = setup.board.open()
    pool = pool_of(view.payloads, settings)
    fill(pool, settings.seed)
    torch.set_num_threads(1)  # from here on the cores are the backend's
    client: Client = setup.queue.client(view, pool)
    gc.disable()  # a pause of the client would be charged to the server
    wake_on_time()
    link.send("ready")
    link.expect("go", _OUTER * timeout_s)

    frontend = Frontend(client, view, link, timeout_s)
    frontend.phase(0, 1, make_load(settings, setup.plan))
    link.send("phase", "warm-up")
    frontend.phase(1, settings.warmup_iters, make_load(settings, setup.plan))
    frontend.control(BEGIN)
    link.send("phase", "measuring")
    frontend.phase(1 + settings.warmup_iters, setup.plan.count, make_load(settings, setup.plan), settings.duration_s)
    view.control[IN_FLIGHT_NS] = frontend.in_flight_ns
    link.send("measured")
    client.send(END)
    link.send("done")
    link.expect("exit", _OUTER * timeout_s)  # a producer outlives its tensors: stay until the backend has ended
    client.close()


class Frontend:
    """A sender, which is the calling thread, and a receiver, which is a thread of its own.

    `in_flight_ns` is the last phase's integral of the requests in flight over time: each arrival of an
    answer takes its time from it, each sending gives its own. It knows nothing of which request is
    which, so it checks the stamps: by Little's law it is the sum of their latencies.
    """

    def __init__(self, client: Client, view: BoardView, link: Link, timeout_s: float) -> None:
        self._client = client
        self._stamps = view.stamps
        self._link = link
        self._timeout_s = timeout_s
        self._due = 0  # answers of this phase; less than planned where its time is over
        self.in_flight_ns = 0
        self._sent_ns = self._received_ns = 0  # sums of the times of all sends and of all arrivals

    def phase(self, first: int, count: int, load: Load, duration_s: float | None = None) -> None:
        """Send up to `count` requests from `first` on as `load` plans, for `duration_s`; receive all answers."""
        if not count:
            return
        self._due, self.in_flight_ns = count, 0
        end_ns = None if duration_s is None or load.is_planned else now() + round(duration_s * 1e9)
        if load.in_flight is not None and not self._client.prepares:
            self._exchange(first, count, load.in_flight, end_ns)
            return
        receiver = threading.Thread(target=self._receive, args=(load,), name="receiver", daemon=True)
        receiver.start()
        self._send(first, count, load, end_ns)
        receiver.join()  # ends with its last answer; the supervisor watches for a stall
        self.in_flight_ns = self._received_ns - self._sent_ns

    def control(self, message: int) -> None:
        """Send a control message and wait until the backend has acted on it."""
        self._client.send(message)
        deadline = now() + int(self._timeout_s * 1e9)
        while now() < deadline:
            if answered := self._client.receive(_READ_S):
                if list(answered) != [message]:
                    raise BenchError(f"{list(answered)} arrived while the answer to control message {message} was due")
                return
        raise BenchError(f"the backend did not act on control message {message} within {self._timeout_s:g} s")

    def _exchange(self, first: int, count: int, in_flight: int, end_ns: int | None) -> None:
        """The closed loop in one thread: a hand-over to a sender thread would cost as much as the queue."""
        stamps, send, receive = self._stamps, self._client.send, self._client.receive
        due = iter(range(first, first + count))
        area = waiting = 0
        for index in islice(due, in_flight):
            row = index * WIDTH
            stamps[row + INTENDED] = stamps[row + SENT] = sent = now()
            send(index)
            area -= sent
            waiting += 1
        while waiting:
            indexes = receive(_READ_S)
            moment = now()
            area += moment * len(indexes)
            waiting -= len(indexes)
            if end_ns is not None and moment >= end_ns:
                continue
            for answered, index in zip(indexes, due, strict=False):
                row = index * WIDTH
                stamps[row + INTENDED] = stamps[answered * WIDTH + COMPLETED]
                stamps[row + SENT] = sent = now()
                send(index)
                area -= sent
                waiting += 1
        self.in_flight_ns = area

    def _send(self, first: int, count: int, load: Load, end_ns: int | None) -> None:
        """The sender's loop: everything that costs time is done before the request is stamped."""
        stamps, send, prepare = self._stamps, self._client.send, self._client.prepare
        area = 0
        for index, planned in zip(range(first, first + count), load.times(count), strict=True):
            prepare(index)
            if planned is not None and (early := planned - now()) > 0:
                sleep(early / 1e9)
            row = index * WIDTH
            sent = now()
            if end_ns is not None and sent >= end_ns:
                self._due = index - first
                break
            stamps[row + INTENDED] = sent if planned is None else planned
            stamps[row + SENT] = sent
            send(index)
            area += sent
        self._sent_ns = area

    def _receive(self, load: Load) -> None:
        """The receiver's loop."""
        stamps, receive, answered = self._stamps, self._client.receive, load.answered
        received = area = quick = last = 0
        try:
            while received < self._due:
                indexes = receive(_READ_S)
                moment = now()
                area += moment * len(indexes)
                received += len(indexes)
                quick = quick + 1 if moment - last < _QUICK_NS else 0
                last = moment
                if quick >= _QUICK_IN_A_ROW:
                    sleep(_GATHER_S)
                if answered:
                    for index in indexes:
                        answered(stamps[index * WIDTH + COMPLETED])
            self._received_ns = area
        except BaseException as error:  # noqa: BLE001 - a thread's exception is reported, whatever it is
            self._link.fail(error)
