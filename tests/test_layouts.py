"""Stream layouts keep every buffer in order on a device, answer each request with its own payload, and end."""

import itertools
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import FakeDevice, FakeServer, FakeTensor, HandOver
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.backend import layouts
from bench.backend.device import CompilerGraphs, CudaGraph, Eager
from bench.backend.engine import DeviceEngine, Forward, Frame, HostEngine
from bench.backend.layouts import LAYOUTS, Layout, Pipelined
from bench.queues.base import Buffer
from bench.stamps import D2H_END, H2D_START, RECEIVED, REPLIED, WIDTH

TIMEOUT_S = 30.0
Mutation = Callable[[Frame], object]


class FakeModel:
    """Answers a payload with `("answer to", payload)`, in memory that its next call on the same stream uses again."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._outputs: dict[str, FakeTensor] = {}

    def __call__(self, payload: FakeTensor) -> FakeTensor:
        stream = self._device.current_stream().name
        output = self._outputs.setdefault(stream, self._device.tensor(f"the model's output on {stream}"))
        self.kernel(payload, output)
        return output

    def kernel(self, payload: FakeTensor, output: FakeTensor) -> None:
        """Read the one, write the other."""
        self._device.launch([payload], [output], lambda: setattr(output, "value", ("answer to", payload.value)))


class FakeEager(Eager):
    """The real one but for its model, which is no module, and for its priming, which asks torch.cuda for the stream."""

    def __init__(self, device: FakeDevice) -> None:
        vars(self).update(model=FakeModel(device), _example=device.tensor("example"), _copies=True)

    def prime(self) -> None:
        self.model(self._example)


class FakeCudaGraph(CudaGraph):
    """The real one but for the making of the graph."""

    def __init__(self, device: FakeDevice) -> None:
        model, source, output = FakeModel(device), device.tensor("graph input"), device.tensor("graph output")
        graph = SimpleNamespace(replay=lambda: model.kernel(source, output))
        vars(self).update(_input=source, _output=output, _graph=graph)

    def prime(self) -> None:
        self._graph.replay()


class SharedGraph(FakeModel):
    """A graph of which there is one for all streams: a replay reads its one input and writes its one output."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device)
        self._input, self._output = device.tensor("the graph's input"), device.tensor("the graph's output")

    def __call__(self, payload: FakeTensor) -> FakeTensor:
        self._input.copy_(payload, True)
        self.kernel(self._input, self._output)
        return self._output


def in_turn(order: bool) -> Callable[[FakeDevice], Forward]:
    """A maker of `CompilerGraphs` over one shared graph; without `order` only the lock keeps them apart."""
    shared: list[Any] = []

    class Turns(CompilerGraphs):
        def __init__(self, model: SharedGraph, example: FakeTensor, turn: Any, last: Any) -> None:
            vars(self).update(model=model, _example=example, _copies=True, _turn=turn, _last=last)

        def prime(self) -> None:
            """Primed by the thread that makes it."""

    def make(device: FakeDevice) -> Forward:
        if not shared:
            event = device.Event()
            if not order:
                vars(event)["wait"] = lambda: None
            shared.extend((SharedGraph(device), device.tensor("example"), threading.Lock(), event))
        return Turns(*shared)

    return make


class Hasty(FakeEager):
    """Hands on the model's own memory instead of a copy."""

    def __call__(self, frame: Frame) -> None:
        frame.output = self.model(frame.input)


@dataclass
class Run:
    """What is left of a run of a layout."""

    faults: list[str]
    answers: dict[int, object]
    failures: list[BaseException]
    layout: Layout
    stamps: memoryview
    workers: list[int]

    @property
    def right(self) -> bool:
        """Whether every request was answered as its payload demands."""
        return self.answers == {k: ("answer to", k) for k in range(len(self.stamps) // WIDTH)}


def drive(
    layout: type[Layout],
    *,
    workers: int = 2,
    buffers: int = 1,
    slots: int = 2,
    pins: bool = False,
    pageable: bool = False,
    requests: int = 50,
    forward: Callable[[FakeDevice], Forward] = FakeEager,
    mutate: Mutation | None = None,
    resolution_ns: int = 1,
) -> Run:
    """Serve `requests` on a fake device as the backend does, until all are answered or a thread has failed."""
    device = FakeDevice(resolution_ns)
    server = FakeServer(device, requests, slots, pageable=pageable, timeout_s=TIMEOUT_S)
    stamps = memoryview(bytearray(requests * WIDTH * 8)).cast("q")
    made_by = memoryview(bytearray(requests * 2)).cast("h")
    failures: list[BaseException] = []
    numbers = itertools.count()

    def new_frame() -> Frame:
        k = next(numbers)
        frame = Frame(device, own_input=device.tensor(f"input {k}"), own_output=device.tensor(f"output {k}"))
        if mutate:
            mutate(frame)
        return frame

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.finished.set()

    with pytest.MonkeyPatch.context() as patch, device.stream(device.Stream()):
        patch.setattr(layouts, "SimpleQueue", lambda: HandOver(device))
        engine = DeviceEngine(
            server,
            device,
            stamps,
            made_by,
            [forward(device) for _ in range(workers)],
            new_frame,
            nullcontext,
            failed,
            TIMEOUT_S,
            pins=pins,
        )
        made = layout(engine, buffers)
        made.start()
        try:
            while burst := server.receive(0):
                made.serve(burst)
        except RuntimeError as error:  # the serial layout raises here
            failed(error)
        server.finished.wait(TIMEOUT_S)
        made.stop()
    return Run(device.faults, server.answers, failures, made, stamps, made_by.tolist())


def deaf(mark: int, verb: str) -> Mutation:
    """Leave out one wait: event `mark` of each frame does nothing when it is told to `verb`."""
    return lambda frame: setattr(frame.marks[mark], verb, lambda: None)


# The detector itself.


def two_streams(order: str) -> list[str]:
    """The faults when one stream writes what another one reads, ordered in one of several ways."""
    device = FakeDevice()
    source, target = device.tensor("source", 1), device.tensor("target")
    event, first = device.Event(), device.current_stream() if order == "default stream" else device.Stream()
    with device.stream(first):
        target.copy_(source, non_blocking=True)
        event.record()
    if order == "host":
        event.synchronize()
    with device.stream(first if order == "one stream" else device.Stream()):
        if order == "event":
            event.wait()
        device.tensor("copy").copy_(target, non_blocking=True)
    return device.faults


@pytest.mark.parametrize("order", ["event", "host", "one stream"])
def test_detector_accepts_what_is_ordered(order: str) -> None:
    """An event waited for, a host that waited, and a single stream each order two accesses."""
    assert two_streams(order) == []


@pytest.mark.parametrize("order", ["none", "default stream"])
def test_detector_finds_what_is_not_ordered(order: str) -> None:
    """Queued one after the other is no order between two streams, the default stream included."""
    assert len(two_streams(order)) == 1


def test_detector_finds_a_write_after_a_read() -> None:
    """A buffer written while another stream may still read it is a race, though nobody reads the new value."""
    device = FakeDevice()
    shared, other = device.tensor("shared"), device.tensor("other")
    with device.stream(device.Stream()):
        other.copy_(shared, non_blocking=True)
    with device.stream(device.Stream()):
        shared.copy_(device.tensor("new"), non_blocking=True)
    assert len(device.faults) == 1
    assert "waiting for the read" in device.faults[0]


def test_host_sees_a_copy_only_after_it_waited() -> None:
    """Without synchronize() the host's read is a race, and what it finds is the old value."""
    device = FakeDevice()
    target, event = device.tensor("target", "old"), device.Event()
    target.copy_(device.tensor("source", "new"), non_blocking=True)
    event.record()
    assert device.read(target) == "old"
    assert len(device.faults) == 1
    event.synchronize()
    assert device.read(target) == "new"
    assert len(device.faults) == 1


@pytest.mark.parametrize("waits", [True, False])
def test_hand_over_between_threads_orders_only_what_its_sender_waited_for(waits: bool) -> None:
    """A thread that hands over after synchronize() orders the receiver's work; one that only queued does not."""
    device = FakeDevice()
    shared, hand_over = device.tensor("shared"), HandOver(device)

    def sender() -> None:
        with device.stream(device.Stream()):
            shared.copy_(device.tensor("source"), non_blocking=True)
            event = device.Event()
            event.record()
            if waits:
                event.synchronize()
            hand_over.put(None)

    thread = threading.Thread(target=sender)
    thread.start()
    hand_over.get(timeout=TIMEOUT_S)
    thread.join(TIMEOUT_S)
    with device.stream(device.Stream()):
        shared.copy_(device.tensor("other"), non_blocking=True)
    assert bool(device.faults) is not waits


def test_elapsed_time_needs_both_events_over() -> None:
    """As on CUDA, the time between events is known only when the device has passed them."""
    device = FakeDevice()
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    end.record()
    with pytest.raises(RuntimeError, match="not ready"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


# The layouts.


@pytest.mark.parametrize("forward", [FakeEager, FakeCudaGraph])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_races_and_answers_are_right(
    name: str, workers: int, buffers: int, forward: Callable[[FakeDevice], Forward]
) -> None:
    """Each layout keeps every buffer in order, answers each request with its own payload, and ends its threads."""
    run = drive(LAYOUTS[name], workers=1 if name == "serial" else workers, buffers=buffers, forward=forward)
    assert run.failures == []
    assert run.faults == []
    assert run.right
    assert set(run.workers) <= ({0} if name == "serial" else set(range(1, 1 + workers)))
    assert not any(thread.is_alive() for thread in run.layout.threads)


@pytest.mark.parametrize("name", LAYOUTS)
def test_pageable_requests_are_pinned_first(name: str) -> None:
    """With pins=True the copy in reads pinned memory, and the answers are still right."""
    run = drive(LAYOUTS[name], workers=1 if name == "serial" else 2, pins=True, pageable=True)
    assert run.failures == []
    assert run.faults == []
    assert run.right


def test_pageable_requests_that_are_not_pinned_are_caught() -> None:
    """With pins=False a pageable request would be copied synchronously, and the fake says so."""
    run = drive(Pipelined, pageable=True, requests=1)
    assert run.faults == ["request 0 is copied before it was pinned"]


@pytest.mark.parametrize(
    ("name", "mark", "verb", "buffer"),
    [
        ("pipelined", 1, "wait", "reads input"),  # compute waits for the copy in
        ("pipelined", 3, "wait", "reads output"),  # the copy out waits for compute
        ("pipelined", 5, "synchronize", "reads slot"),  # the answer waits for the copy out
        ("async", 5, "synchronize", "reads slot"),
        ("serial", 5, "synchronize", "reads slot"),
    ],
)
def test_each_wait_is_needed(name: str, mark: int, verb: str, buffer: str) -> None:
    """A layout with one wait left out races, at that very buffer, and its first answer is wrong."""
    workers = 1 if name == "serial" else 2
    run = drive(LAYOUTS[name], workers=workers, requests=2, mutate=deaf(mark, verb))
    assert any(buffer in fault for fault in run.faults)
    assert run.answers[0] == ("answer to", None) if mark == 1 else run.answers[0] is None


class RecycledBeforeCopyOut(Pipelined):
    """Broken on purpose: a frame is free again before its answer has left."""

    def _copy_out(self) -> None:
        while (frame := self._computed.get()) is not None:
            self._free.put(frame)
            self.engine.copy_out(frame)
            self.engine.respond(frame)


class RecycledAfterCompute(Pipelined):
    """Broken on purpose: a frame is free again as soon as its forward pass is queued."""

    def _compute(self, _number: int, forward: Forward) -> None:
        while (frame := self._copied.get()) is not None:
            self.engine.compute(frame, forward)
            self._free.put(frame)
            self._computed.put(frame)

    def _copy_out(self) -> None:
        while (frame := self._computed.get()) is not None:
            self.engine.copy_out(frame)
            self.engine.respond(frame)


@pytest.mark.parametrize("layout", [RecycledBeforeCopyOut, RecycledAfterCompute])
@pytest.mark.parametrize("buffers", [1, 2])
def test_frames_recycled_too_early_race(layout: type[Layout], buffers: int) -> None:
    """A frame used again before its answer has left is overwritten while it is read."""
    run = drive(layout, buffers=buffers, requests=2 * buffers + 1)
    assert any("writes input" in fault and "waiting for the read" in fault for fault in run.faults)


def test_output_left_in_the_models_memory_races() -> None:
    """Without a copy into the frame, the next pass on that stream overwrites an answer on its way out."""
    run = drive(Pipelined, workers=1, buffers=2, forward=Hasty, requests=20)
    assert any("writes the model's output" in fault for fault in run.faults)


@pytest.mark.parametrize("name", ["async", "pipelined"])
def test_passes_over_one_shared_graph_take_turns(name: str) -> None:
    """The compiler's own CUDA graphs have one input and one output: threads wait for each other's use of them."""
    run = drive(LAYOUTS[name], workers=3, buffers=2, forward=in_turn(order=True))
    assert run.failures == []
    assert run.faults == []
    assert run.right
    run = drive(LAYOUTS[name], workers=3, buffers=2, forward=in_turn(order=False))
    assert any("the graph's input" in fault for fault in run.faults), "the event is what keeps them in order"


# Stamps.


@pytest.mark.parametrize("resolution_ns", [1, 500, 1_000_000])
@pytest.mark.parametrize("name", LAYOUTS)
def test_stamps_of_a_request_never_go_back(name: str, resolution_ns: int) -> None:
    """From the copy in to the answer the stamps are in order, however coarse the device's clock is."""
    run = drive(LAYOUTS[name], workers=1 if name == "serial" else 2, buffers=2, resolution_ns=resolution_ns)
    assert run.failures == []
    for row in range(0, len(run.stamps), WIDTH):
        stages = run.stamps[row + H2D_START : row + REPLIED + 1].tolist()
        assert stages == sorted(stages)
        assert stages[0] > 0


class Timed:
    """An event that lies so many milliseconds before the last one."""

    def __init__(self, elapsed_ms: float) -> None:
        self._elapsed_ms = elapsed_ms

    def elapsed_time(self, _end: object) -> float:
        return self._elapsed_ms


def device_times(elapsed_ms: list[float], anchor_ns: int) -> list[int]:
    """The six device stamps of a request whose events lie `elapsed_ms` before the last one."""
    stamps = memoryview(bytearray(WIDTH * 8)).cast("q")
    stamps[D2H_END] = anchor_ns
    engine: Any = SimpleNamespace(stamps=stamps)
    frame: Any = SimpleNamespace(marks=[Timed(ms) for ms in (*elapsed_ms, 0.0)])
    DeviceEngine._device_times(engine, frame, 0)
    return list(stamps[H2D_START : D2H_END + 1])


def test_device_times_are_the_events_distances_from_the_last() -> None:
    """Each stamp lies as far before the end of the copy out as the device says."""
    assert device_times([5.0, 4.0, 3.5, 1.25, 1.0], 10**9) == [
        10**9 - 5_000_000,
        10**9 - 4_000_000,
        10**9 - 3_500_000,
        10**9 - 1_250_000,
        10**9 - 1_000_000,
        10**9,
    ]


@given(st.lists(st.floats(-1, 1e4), min_size=5, max_size=5), st.integers(10**11, 2**62))
@settings(deadline=None)
def test_device_times_are_in_order_whatever_the_device_says(elapsed_ms: list[float], anchor_ns: int) -> None:
    """Coarse, equal or even turned distances give stamps in order, the last of them the host's own."""
    times = device_times(elapsed_ms, anchor_ns)
    assert times == sorted(times)
    assert times[-1] == anchor_ns


# The CPU, and what goes wrong.


class HostServer:
    """A backend end for real tensors on the CPU: it keeps what is answered."""

    def __init__(self) -> None:
        self.answers: dict[int, list[float]] = {}
        self.finished = threading.Semaphore(0)

    def receive(self, _timeout_s: float) -> list[tuple[int, torch.Tensor | None]]:
        return []

    def allocate(self, _output: torch.Tensor, _slots: int) -> None:
        """Every answer is a fresh tensor."""

    def reserve(self) -> Buffer:
        return Buffer(0, torch.empty(2))

    def respond(self, index: int, buffer: Buffer | None, more: bool = False) -> None:  # noqa: ARG002 - as Server has it
        assert buffer is not None
        self.answers[index] = buffer.tensor.tolist()
        self.finished.release()

    def close(self) -> None:
        """Nothing is held."""


class Plain:
    """A forward pass on the CPU: the sum and the mean of a payload, or an error where the payload is negative."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def model(self, payload: torch.Tensor) -> torch.Tensor:
        self.seen.append(payload.data_ptr())
        if payload[0] < 0:
            raise ArithmeticError("a negative payload")
        return torch.stack((payload.sum(), payload.mean()))

    def __call__(self, frame: Frame) -> None:
        frame.output = self.model(frame.input)

    def prime(self) -> None:
        """Nothing."""


def cpu_layout(name: str, requests: int) -> tuple[Layout, HostServer, "queue.SimpleQueue[BaseException]"]:
    """A layout over torch's own CPU module, started."""
    module: Any = torch.get_device_module("cpu")
    server, failures = HostServer(), queue.SimpleQueue[BaseException]()
    engine = HostEngine(
        server,
        module,
        memoryview(bytearray(requests * WIDTH * 8)).cast("q"),
        memoryview(bytearray(requests * 2)).cast("h"),
        [Plain() for _ in range(1 if name == "serial" else 2)],
        lambda: Frame(module, own_input=None, own_output=None),
        torch.inference_mode,
        failures.put,
        TIMEOUT_S,
    )
    layout = LAYOUTS[name](engine, 1)
    layout.start()
    return layout, server, failures


@pytest.mark.parametrize("name", LAYOUTS)
def test_cpu_reads_the_queues_own_memory(name: str) -> None:
    """On the CPU the model sees the very memory of the request, and the answers are right."""
    payloads = [torch.tensor([float(k), 1.0, 2.0]) for k in range(20)]
    layout, server, failures = cpu_layout(name, len(payloads))
    layout.serve(list(enumerate(payloads)))
    for _ in payloads:
        assert server.finished.acquire(timeout=TIMEOUT_S)
    layout.stop()
    forwards: Any = layout.engine.forwards
    assert sorted(p for forward in forwards for p in forward.seen) == sorted(p.data_ptr() for p in payloads)
    computed_by = [max(0, worker - 1) for worker in layout.engine.workers]
    assert [payload.data_ptr() in forwards[k].seen for payload, k in zip(payloads, computed_by, strict=True)] == [
        True
    ] * len(payloads)
    assert server.answers == {k: [k + 3.0, pytest.approx(k / 3 + 1.0)] for k in range(20)}
    assert failures.empty()
    for row in range(0, len(layout.engine.stamps), WIDTH):
        stages = layout.engine.stamps[row + RECEIVED : row + REPLIED + 1].tolist()
        assert stages[0] > 0
        assert stages == sorted(stages)


@pytest.mark.parametrize("name", ["async", "pipelined"])
def test_an_exception_in_a_thread_is_told_with_its_traceback(name: str) -> None:
    """What a worker raises reaches `failed` whole, and the layout's threads still end."""
    layout, _, failures = cpu_layout(name, 1)
    layout.serve([(0, torch.tensor([-1.0]))])
    error = failures.get(timeout=TIMEOUT_S)
    layout.stop()
    assert "in __call__" in "".join(traceback.format_exception(error))
    assert str(error) == "a negative payload"
    assert not any(thread.is_alive() for thread in layout.threads)


def test_an_exception_in_the_serial_layout_reaches_its_caller() -> None:
    """The serial layout has no thread of its own, so the reader raises."""
    layout, _, _ = cpu_layout("serial", 1)
    with pytest.raises(ArithmeticError, match="a negative payload"):
        layout.serve([(0, torch.tensor([-1.0]))])
