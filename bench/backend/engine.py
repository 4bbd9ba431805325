"""The stages of a request in the backend, each on the stream that is current in the calling thread.

Both engines have the same stages. On a device a stage queues its work on a stream; on the host it does it.
The device module (`torch.get_device_module(device)`) is an argument, so that a test can pass one that
records what happens. On the host the input is the queue's own memory; on a device it is copied into a
buffer that the layout owns, so no allocator can hand it out while a stream still reads it.

Order on a device is kept by events alone: each stage records one when its work is queued and the
next stage's stream waits for it. The host waits only once, for the answer to be on the host.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from struct import Struct
from time import perf_counter_ns as now
from typing import Any, Protocol

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
    STAMP_BYTES,
    WIDTH,
)

_MARKS = (H2D_START, H2D_END, COMPUTE_START, COMPUTE_END, D2H_START, D2H_END)
_put_four = Struct("4q").pack_into  # stamps that stand side by side

Requests = Sequence[tuple[int, Any]]  # index, and the input as the queue gave it


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
        marks: an event for each device stamp, in the order of the stages; none on the host, where nothing is queued.
    """

    __slots__ = ("buffer", "host", "index", "input", "marks", "output")

    def __init__(self, device_module: DeviceModule, *, own_input: Any, own_output: Any) -> None:
        self.index = -1
        self.host: Any = None
        self.input = own_input
        self.output = own_output
        self.buffer: Buffer | None = None
        self.marks = [] if own_input is None else [device_module.Event(enable_timing=True) for _ in _MARKS]


class Forward(Protocol):
    """The forward pass as one compute thread runs it.

    Attributes:
        model: what it calls: input to output.
    """

    @property
    def model(self) -> Callable[[Any], Any]: ...

    def __call__(self, frame: Frame) -> None:
        """Read `frame.input`, leave `frame.output`, on the current stream."""

    def prime(self) -> None:
        """Run once before anything is measured: libraries, and graphs where there are any, become ready."""


@dataclass
class Engine:
    """The stages of a request, each on the stream that is current in the calling thread.

    Attributes:
        stamps, workers: see `BoardView`.
        forwards: the forward pass of each compute thread.
        new_frame: makes a `Frame`.
        thread_state: what each of the layout's threads enters: inference mode, threads, device.
        failed: told what a thread raised.
        copies: whether frames have buffers of their own.
        gathers: whether copying an answer out takes microseconds, so that one may wait for the next.
    """

    server: Server
    device_module: DeviceModule
    stamps: memoryview
    workers: memoryview
    forwards: Sequence[Forward]
    new_frame: Callable[[], Frame]
    thread_state: Callable[[], AbstractContextManager[None]]
    failed: Callable[[BaseException], None]
    timeout_s: float
    gathers: bool = False
    copies = False

    def copy_in(self, frame: Frame) -> None:
        """Host to device."""
        raise NotImplementedError

    def compute(self, frame: Frame, forward: Forward) -> None:
        """The forward pass, after the input has arrived."""
        raise NotImplementedError

    def copy_out(self, frame: Frame) -> None:
        """Device to host, after the forward pass; returns when the answer is on the host."""
        raise NotImplementedError

    def respond(self, frame: Frame, more: bool = False) -> None:
        """Announce the answer. See `Server.respond` for `more`."""
        self.stamps[frame.index * WIDTH + REPLIED] = now()
        self.server.respond(frame.index, frame.buffer, more)

    def answer(self, frame: Frame, forward: Forward) -> None:
        """All stages, one after the other in the calling thread."""
        self.copy_in(frame)
        self.compute(frame, forward)
        self.copy_out(frame)
        self.respond(frame)

    def answer_in_turn(self, requests: Requests, frame: Frame, forward: Forward) -> None:
        """Take each of them in, and answer it before the next."""
        stamps, answer = self.stamps, self.answer
        for index, host in requests:
            stamps[index * WIDTH + RECEIVED] = now()
            frame.index, frame.host = index, host
            answer(frame, forward)


class HostEngine(Engine):
    """The stages on the CPU: the model reads the queue's own memory, and one copy leads to the answer's."""

    def copy_in(self, frame: Frame) -> None:
        """Nothing is copied."""
        stamps, row = self.stamps, frame.index * WIDTH
        frame.input = frame.host
        stamps[row + H2D_START] = stamps[row + H2D_END] = now()

    def compute(self, frame: Frame, forward: Forward) -> None:
        """The forward pass."""
        stamps, row = self.stamps, frame.index * WIDTH
        stamps[row + COMPUTE_START] = now()
        forward(frame)
        stamps[row + COMPUTE_END] = now()

    def copy_out(self, frame: Frame) -> None:
        """From the model's memory to the queue's."""
        stamps, row = self.stamps, frame.index * WIDTH
        frame.buffer = buffer = self.server.reserve()
        stamps[row + D2H_START] = now()
        buffer.tensor.copy_(frame.output)
        stamps[row + D2H_END] = now()

    def answer_in_turn(self, requests: Requests, _frame: Frame, forward: Forward) -> None:
        """The same, in one go: at two microseconds a request, calls and stamps one by one are a third of it."""
        stamps, model, reserve, respond = self.stamps, forward.model, self.server.reserve, self.server.respond
        for index, host in requests:
            row = index * WIDTH
            begun = now()
            _put_four(stamps, (row + RECEIVED) * STAMP_BYTES, begun, begun, begun, begun)  # to COMPUTE_START
            output = model(host)
            computed = now()
            buffer = reserve()
            reserved = now()
            buffer.tensor.copy_(output)
            copied = now()
            _put_four(stamps, (row + COMPUTE_END) * STAMP_BYTES, computed, reserved, copied, copied)  # to REPLIED
            respond(index, buffer)


@dataclass
class DeviceEngine(Engine):
    """The stages on a device.

    Attributes:
        pins: whether the queue's tensors are pageable, and pinned before an asynchronous copy.
    """

    pins: bool = False
    copies = True

    def copy_in(self, frame: Frame) -> None:
        """Into the frame's own memory."""
        stamps, row = self.stamps, frame.index * WIDTH
        if self.pins:
            frame.host = frame.host.pin_memory()
        stamps[row + H2D_START] = now()
        frame.marks[0].record()
        frame.input.copy_(frame.host, True)  # non_blocking
        frame.marks[1].record()
        stamps[row + H2D_END] = now()

    def compute(self, frame: Frame, forward: Forward) -> None:
        """The forward pass, after the input has arrived."""
        stamps, row = self.stamps, frame.index * WIDTH
        frame.marks[1].wait()
        stamps[row + COMPUTE_START] = now()
        frame.marks[2].record()
        forward(frame)
        frame.marks[3].record()
        stamps[row + COMPUTE_END] = now()

    def copy_out(self, frame: Frame) -> None:
        """The one place where the host waits."""
        stamps, row = self.stamps, frame.index * WIDTH
        frame.buffer = buffer = self.server.reserve()
        frame.marks[3].wait()
        stamps[row + D2H_START] = now()
        frame.marks[4].record()
        buffer.tensor.copy_(frame.output, True)  # non_blocking
        frame.marks[5].record()
        frame.marks[5].synchronize()
        stamps[row + D2H_END] = now()

    def respond(self, frame: Frame, more: bool = False) -> None:
        """Announce the answer; then put the device's own times over the host's."""
        super().respond(frame, more)
        self._device_times(frame, frame.index * WIDTH)

    def _device_times(self, frame: Frame, row: int) -> None:
        """Stamps of the device's stages from timed events, anchored to the host's stamp of the last one.

        All events of the frame are complete, so nothing is waited for. `elapsed_time` is in ms.
        """
        anchor, last = self.stamps[row + D2H_END], frame.marks[5]
        later = anchor  # two events' resolution may turn their order; time does not
        for column, mark in zip(_MARKS[4::-1], frame.marks[4::-1], strict=True):
            later = min(later, anchor - round(mark.elapsed_time(last) * 1e6))
            self.stamps[row + column] = later
