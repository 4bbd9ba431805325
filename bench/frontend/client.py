"""The frontend process: sends the load, receives the answers, and stamps both."""

import gc
import threading
from itertools import islice
from time import perf_counter_ns as now
from time import sleep

import torch

from bench.child import Link
from bench.errors import BenchError
from bench.frontend.load import Load, make_load
from bench.payloads import fill, pool_of
from bench.queues.base import BEGIN, END, Client
from bench.setup import RunSetup
from bench.stamps import COMPLETED, INTENDED, SENT, WIDTH

_READ_S = 1.0  # how long one read waits before it is asked again


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
    link.send("ready")
    link.expect("go", timeout_s)

    frontend = Frontend(client, view.stamps, link, timeout_s)
    frontend.phase(0, 1, make_load(settings.load, timeout_s))
    link.send("phase", "warm-up")
    frontend.phase(1, settings.warmup_iters, make_load(settings.load, timeout_s))
    frontend.control(BEGIN)
    link.send("phase", "measuring")
    frontend.phase(1 + settings.warmup_iters, settings.num_iters, make_load(settings.load, timeout_s))
    link.send("measured")
    client.send(END)
    link.send("done")
    link.expect("exit", timeout_s)  # a producer outlives its tensors: stay until the backend has ended
    client.close()


class Frontend:
    """A sender, which is the calling thread, and a receiver, which is a thread of its own."""

    def __init__(self, client: Client, stamps: memoryview, link: Link, timeout_s: float) -> None:
        self._client = client
        self._stamps = stamps
        self._link = link
        self._timeout_s = timeout_s

    def phase(self, first: int, count: int, load: Load) -> None:
        """Send requests `first` to `first + count - 1` as `load` plans, and receive all their answers."""
        if not count:
            return
        if load.in_flight is not None and not self._client.prepares:
            self._exchange(first, count, load.in_flight)
            return
        receiver = threading.Thread(target=self._receive, args=(count, load), name="receiver", daemon=True)
        receiver.start()
        self._send(first, count, load)
        receiver.join()  # ends with its last answer; the supervisor watches for a stall

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

    def _exchange(self, first: int, count: int, in_flight: int) -> None:
        """The closed loop in one thread: a hand-over to a sender thread would cost as much as the queue."""
        stamps, send, receive = self._stamps, self._client.send, self._client.receive
        due = iter(range(first, first + count))
        for index in islice(due, in_flight):
            row = index * WIDTH
            stamps[row + INTENDED] = stamps[row + SENT] = now()
            send(index)
        while count > 0:
            indexes = receive(_READ_S)
            count -= len(indexes)
            for answered, index in zip(indexes, due, strict=False):
                row = index * WIDTH
                stamps[row + INTENDED] = stamps[answered * WIDTH + COMPLETED]
                stamps[row + SENT] = now()
                send(index)

    def _send(self, first: int, count: int, load: Load) -> None:
        """The sender's loop: everything that costs time is done before the request is stamped."""
        stamps, send, prepare = self._stamps, self._client.send, self._client.prepare
        for index, planned in zip(range(first, first + count), load.times(count), strict=True):
            prepare(index)
            if planned is not None and (early := planned - now()) > 0:
                sleep(early / 1e9)
            row = index * WIDTH
            sent = now()
            stamps[row + INTENDED] = sent if planned is None else planned
            stamps[row + SENT] = sent
            send(index)

    def _receive(self, count: int, load: Load) -> None:
        """The receiver's loop."""
        stamps, receive, answered = self._stamps, self._client.receive, load.answered
        try:
            while count > 0:
                indexes = receive(_READ_S)
                count -= len(indexes)
                if answered:
                    for index in indexes:
                        answered(stamps[index * WIDTH + COMPLETED])
        except BaseException as error:  # noqa: BLE001 - a thread's exception is reported, whatever it is
            self._link.fail(error)
