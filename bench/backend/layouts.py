"""Stream layouts: how one backend turns requests into responses. The stages themselves are in `engine`."""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import perf_counter_ns as now
from typing import Any

from bench.backend.engine import Engine, Forward, Frame
from bench.errors import BenchError
from bench.stamps import RECEIVED, WIDTH

# On the CPU a frame has no buffers, so many cost nothing, and threads that hand over many in a row are woken less.
_FRAMES_WITHOUT_BUFFERS = 256


class Layout:
    """One way to run the stages. `serve` is called with the requests that have just arrived."""

    pipelines = False  # whether a worker may have more than one request in flight
    streams = 1  # the reader's, and one for each thread

    def __init__(self, engine: Engine, buffers_per_worker: int) -> None:
        self.engine = engine
        self.threads: list[threading.Thread] = []
        self.workers = len(engine.forwards)
        count = self.workers * (buffers_per_worker if self.pipelines else 1)
        if self.pipelines and not engine.copies:
            count = max(count, _FRAMES_WITHOUT_BUFFERS)
        self.frames = [engine.new_frame() for _ in range(count)]

    def start(self) -> None:
        """Start the layout's threads; returns when each has run its forward pass once."""

    def serve(self, requests: Sequence[tuple[int, Any]]) -> None:
        """Take requests in the order of their arrival."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the threads, all requests having been answered."""
        for thread in self.threads:
            thread.join(self.engine.timeout_s)
            if thread.is_alive():
                raise BenchError(f"thread {thread.name} of the backend did not end in {self.engine.timeout_s:g} s")

    def _spawn(
        self, name: str, loop: Callable[..., None], *arguments: Any, prime: Callable[[], None] | None = None
    ) -> None:
        """Run `loop` in a thread with a stream of its own; what it raises goes to `engine.failed`.

        With `prime` the thread first makes its forward pass known to the device, one thread after another.
        """
        engine, ready = self.engine, threading.Event()

        def body() -> None:
            try:
                with engine.thread_state(), engine.device_module.stream(engine.device_module.Stream()):
                    if prime:
                        prime()
                    ready.set()
                    loop(*arguments)
            except BaseException as error:  # noqa: BLE001 - a thread's exception is reported, whatever it is
                engine.failed(error)

        thread = threading.Thread(target=body, name=name, daemon=True)
        self.threads.append(thread)
        self.streams += 1
        thread.start()
        if not ready.wait(engine.timeout_s):
            raise BenchError(f"thread {name} of the backend was not ready within {engine.timeout_s:g} s")


class Serial(Layout):
    """One thread reads, copies, computes, copies back, answers; on one stream."""

    def start(self) -> None:
        """The caller's thread is the one thread."""
        self.engine.forwards[0].prime()

    def serve(self, requests: Sequence[tuple[int, Any]]) -> None:
        """The whole of each request before the next."""
        self.engine.answer_in_turn(requests, self.frames[0], self.engine.forwards[0])


class Async(Layout):
    """Reading goes on while a pool of workers computes and answers, each on a stream of its own."""

    def start(self) -> None:
        """One thread a worker."""
        self._requests: SimpleQueue[Any] = SimpleQueue()
        for k, forward in enumerate(self.engine.forwards):
            self._spawn(f"worker-{k}", self._work, k, self.frames[k], forward, prime=forward.prime)

    def serve(self, requests: Sequence[tuple[int, Any]]) -> None:
        """Hand over; the pool takes them in order."""
        put, stamps = self._requests.put, self.engine.stamps
        for request in requests:
            stamps[request[0] * WIDTH + RECEIVED] = now()
            put(request)

    def stop(self) -> None:
        """One end mark a worker."""
        for _ in self.threads:
            self._requests.put(None)
        super().stop()

    def _work(self, number: int, frame: Frame, forward: Forward) -> None:
        answer, get, workers = self.engine.answer, self._requests.get, self.engine.workers
        while (request := get()) is not None:
            frame.index, frame.host = request
            workers[frame.index] = 1 + number
            answer(frame, forward)


class Pipelined(Layout):
    """Copy in, compute and copy out on threads and streams of their own; frames go round between them."""

    pipelines = True

    def start(self) -> None:
        """A thread for each worker and one for copies out; copies in are made by the reader."""
        self._free: SimpleQueue[Frame] = SimpleQueue()
        self._copied: SimpleQueue[Frame | None] = SimpleQueue()
        self._computed: SimpleQueue[Frame | None] = SimpleQueue()
        for frame in self.frames:
            self._free.put(frame)
        for k, forward in enumerate(self.engine.forwards):
            self._spawn(f"worker-{k}", self._compute, k, forward, prime=forward.prime)
        self._spawn("d2h", self._copy_out)

    def serve(self, requests: Sequence[tuple[int, Any]]) -> None:
        """Copy in as frames become free: a free frame's last answer has left, so nothing reads its buffers."""
        engine, stamps, timeout_s = self.engine, self.engine.stamps, self.engine.timeout_s
        free, put = self._free.get, self._copied.put
        for index, host in requests:
            stamps[index * WIDTH + RECEIVED] = now()
            try:
                frame = free(timeout=timeout_s)
            except Empty:
                raise BenchError(f"no request in flight was answered for {timeout_s:g} s") from None
            frame.index, frame.host = index, host
            engine.copy_in(frame)
            put(frame)

    def stop(self) -> None:
        """End marks go the way that requests go."""
        for _ in self.engine.forwards:
            self._copied.put(None)
        self._computed.put(None)
        super().stop()

    def _compute(self, number: int, forward: Forward) -> None:
        compute, workers = self.engine.compute, self.engine.workers
        get, put = self._copied.get, self._computed.put
        while (frame := get()) is not None:
            workers[frame.index] = 1 + number
            compute(frame, forward)
            put(frame)

    def _copy_out(self) -> None:
        engine, get, put, last = self.engine, self._computed.get, self._free.put, self._computed.empty
        gathers = engine.gathers
        while (frame := get()) is not None:
            engine.copy_out(frame)
            engine.respond(frame, gathers and not last())
            put(frame)


LAYOUTS: dict[str, type[Layout]] = {"serial": Serial, "async": Async, "pipelined": Pipelined}
