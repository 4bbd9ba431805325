"""Stream layouts: how one backend turns requests into responses. The hot loops of the backend.

The same code runs on the CPU and on CUDA: `torch.get_device_module(device)` has Event and stream()
on both, and on the CPU they do nothing. It is an argument, so that a test can pass one that
records what happens. On the CPU the input is the queue's own memory; on CUDA it is copied into a
buffer that the layout owns, so no allocator can hand it out while a stream still reads it.

Order on a device is kept by events alone: each stage records one when its work is queued and the
next stage's stream waits for it. The host waits only once, for the answer to be on the host.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from time import perf_counter_ns as now
from typing import Any, Protocol

from bench.errors import BenchError
from bench.queues.base import Buffer, Server
from bench.stamps import (
    COMPUTE_END,
    COMPUTE_START,
    D2H_END,
    D2H_START,
    H2D_END,
    H2D_START,
    RECEIVED,
    REPLIED,
    WIDTH,
)

_MARKS = (H2D_START, H2D_END, COMPUTE_START, COMPUTE_END, D2H_START, D2H_END)


# On the CPU a frame has no buffers, so many cost nothing, and threads that hand over many in a row are woken less.
_FRAMES_WITHOUT_BUFFERS = 256


class DeviceModule(Protocol):
    """The part of `torch.cuda` (or `torch.cpu`) that a layout uses."""

    def Stream(self) -> Any: ...

    def Event(self, **options: bool) -> Any: ...

    def stream(self, stream: Any) -> AbstractContextManager[None]: ...


class Frame:
    """The buffers and events of one request in flight, owned by the layout and used again and again.

    Attributes:
        host: the request as the queue gave it, `(batch_size, *input_shape)`.
        input: the same on the device.
        output: the model's answer on the device.
        buffer: host memory for the answer.
        marks: an event for each device stamp, in the order of the stages.
    """

    __slots__ = ("buffer", "host", "index", "input", "marks", "output")

    def __init__(self, device_module: DeviceModule, *, own_input: Any, own_output: Any) -> None:
        self.index = -1
        self.host: Any = None
        self.input = own_input
        self.output = own_output
        self.buffer: Buffer | None = None
        options = {} if own_input is None else {"enable_timing": True}
        self.marks = [device_module.Event(**options) for _ in _MARKS]


class Forward(Protocol):
    """The forward pass as one compute thread runs it."""

    def __call__(self, frame: Frame) -> None:
        """Read `frame.input`, leave `frame.output`, on the current stream."""

    def prime(self) -> None:
        """Run once before anything is measured: libraries, and graphs where there are any, become ready."""


class Engine:
    """The stages of a request, each on the stream that is current in the calling thread.

    Args:
        forwards: the forward pass of each compute thread.
        new_frame: makes a `Frame`.
        copies: whether frames have buffers of their own on a device.
        pins: whether the queue's tensors are pageable, and pinned before an asynchronous copy.
        gathers: whether copying an answer out takes microseconds, so that one may wait for the next.
        thread_state: what each of the layout's threads enters: inference mode, threads, device.
        failed: told what a thread raised.
    """

    def __init__(
        self,
        server: Server,
        device_module: DeviceModule,
        stamps: memoryview,
        forwards: Sequence[Forward],
        new_frame: Callable[[], Frame],
        *,
        copies: bool,
        pins: bool,
        gathers: bool = False,
        thread_state: Callable[[], AbstractContextManager[None]],
        failed: Callable[[BaseException], None],
        timeout_s: float,
    ) -> None:
        self.server = server
        self.device_module = device_module
        self.stamps = stamps
        self.forwards = forwards
        self.new_frame = new_frame
        self.copies = copies
        self.pins = pins
        self.gathers = gathers
        self.thread_state = thread_state
        self.failed = failed
        self.timeout_s = timeout_s

    def copy_in(self, frame: Frame) -> None:
        """Host to device."""
        row, marks = frame.index * WIDTH, frame.marks
        if self.pins:
            frame.host = frame.host.pin_memory()
        self.stamps[row + H2D_START] = now()
        marks[0].record()
        if self.copies:
            frame.input.copy_(frame.host, True)  # non_blocking
        else:
            frame.input = frame.host
        marks[1].record()
        self.stamps[row + H2D_END] = now()

    def compute(self, frame: Frame, forward: Forward) -> None:
        """The forward pass, after the input has arrived."""
        row, marks = frame.index * WIDTH, frame.marks
        marks[1].wait()
        self.stamps[row + COMPUTE_START] = now()
        marks[2].record()
        forward(frame)
        marks[3].record()
        self.stamps[row + COMPUTE_END] = now()

    def copy_out(self, frame: Frame) -> None:
        """Device to host, after the forward pass; returns when the answer is on the host."""
        row, marks = frame.index * WIDTH, frame.marks
        frame.buffer = buffer = self.server.reserve()
        marks[3].wait()
        self.stamps[row + D2H_START] = now()
        marks[4].record()
        buffer.tensor.copy_(frame.output, True)  # non_blocking
        marks[5].record()
        marks[5].synchronize()
        self.stamps[row + D2H_END] = now()

    def respond(self, frame: Frame, more: bool = False) -> None:
        """Announce the answer; then put the device's own times over the host's."""
        row = frame.index * WIDTH
        self.stamps[row + REPLIED] = now()
        self.server.respond(frame.index, frame.buffer, more)
        if self.copies:
            self._device_times(frame, row)

    def _device_times(self, frame: Frame, row: int) -> None:
        """Stamps of the device's stages from timed events, anchored to the host's stamp of the last one.

        All events of the frame are complete, so nothing is waited for. `elapsed_time` is in ms.
        """
        anchor, last = self.stamps[row + D2H_END], frame.marks[5]
        later = anchor  # two events' resolution may turn their order; time does not
        for column, mark in zip(_MARKS[4::-1], frame.marks[4::-1], strict=True):
            later = min(later, anchor - round(mark.elapsed_time(last) * 1e6))
            self.stamps[row + column] = later


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
        engine, frame, stamps = self.engine, self.frames[0], self.engine.stamps
        copy_in, compute, copy_out, respond = engine.copy_in, engine.compute, engine.copy_out, engine.respond
        forward = engine.forwards[0]
        for index, host in requests:
            stamps[index * WIDTH + RECEIVED] = now()
            frame.index, frame.host = index, host
            copy_in(frame)
            compute(frame, forward)
            copy_out(frame)
            respond(frame)


class Async(Layout):
    """Reading goes on while a pool of workers computes and answers, each on a stream of its own."""

    def start(self) -> None:
        """One thread a worker."""
        self._requests: SimpleQueue[Any] = SimpleQueue()
        for k, forward in enumerate(self.engine.forwards):
            self._spawn(f"worker-{k}", self._work, self.frames[k], forward, prime=forward.prime)

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

    def _work(self, frame: Frame, forward: Forward) -> None:
        engine, get = self.engine, self._requests.get
        while (request := get()) is not None:
            frame.index, frame.host = request
            engine.copy_in(frame)
            engine.compute(frame, forward)
            engine.copy_out(frame)
            engine.respond(frame)


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
            self._spawn(f"worker-{k}", self._compute, forward, prime=forward.prime)
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

    def _compute(self, forward: Forward) -> None:
        compute, get, put = self.engine.compute, self._copied.get, self._computed.put
        while (frame := get()) is not None:
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
