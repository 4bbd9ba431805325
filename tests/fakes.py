"""A device that is not there: streams, events and memory that notice every access that nothing orders.

It keeps two independent accounts of the same run.

- *Vector clocks*: each stream and each host thread counts its steps and knows how far the others had come
  when it last waited for them. Two accesses to one buffer, at least one of them a write, of which neither
  knows of the other are a race, whatever the timing of this very run was.
- *Late execution*: an operation runs only when the host waits for something that comes after it, so a
  buffer really holds the wrong value where a wait is missing.

As on CUDA a new stream is ordered with no other one, nor with the default stream, the current stream is a
thread's own, and what a host thread queues after another thread did is not ordered by that.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from random import Random
from time import perf_counter_ns, sleep
from typing import Any

from bench.errors import BenchError
from bench.queues.base import Buffer

Clock = dict[str, int]


class Agent:
    """What does things one after another: a stream, or a thread of the host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock = {}  # the last step of each agent that is known to be over

    def learn(self, clock: Clock) -> None:
        """What `clock` knows to be over is over for this one, too."""
        for name, step in clock.items():
            self.clock[name] = max(step, self.clock.get(name, 0))

    def step(self) -> None:
        """Go on by one."""
        self.clock[self.name] = self.clock.get(self.name, 0) + 1


class FakeStream(Agent):
    """A queue of operations of the device, run as late as possible. Step n is `operations[n - 1]`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.operations: list[Callable[[], object]] = []
        self.done = 0

    def queue(self, operation: Callable[[], object]) -> None:
        """Add one operation."""
        self.step()
        self.operations.append(operation)

    def run(self, step: int) -> None:
        """Run everything up to `step`, and what that waits for."""
        while self.done < step:
            self.done += 1
            self.operations[self.done - 1]()


class FakeEvent:
    """An event of `torch.cuda`: a place in a stream."""

    def __init__(self, device: "FakeDevice", *, enable_timing: bool = False) -> None:
        self._device = device
        self._timing = enable_timing
        self._stream: FakeStream | None = None
        self._clock: Clock = {}
        self._time_ns: list[int] = []  # filled when the device gets there

    def record(self) -> None:
        """Mark the place that the current stream has reached."""
        with self._device.lock:
            stream, time_ns = self._device.current_stream(), list[int]()
            stream.learn(self._device.host.clock)
            stream.queue(lambda: time_ns.append(perf_counter_ns()))
            self._stream, self._clock, self._time_ns = stream, dict(stream.clock), time_ns

    def wait(self) -> None:
        """Let the current stream go on only after this event; an event never recorded holds nobody up."""
        with self._device.lock:
            source, clock = self._stream, self._clock
            if source is None:
                return
            stream = self._device.current_stream()
            stream.learn(self._device.host.clock)
            stream.queue(lambda: source.run(clock[source.name]))
            stream.learn(clock)

    def synchronize(self) -> None:
        """Hold up the calling thread until the device gets there."""
        with self._device.lock:
            if self._stream is not None:
                self._stream.run(self._clock[self._stream.name])
                self._device.host.learn(self._clock)

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Milliseconds from this event to `end`, in steps of the device's resolution."""
        if not (self._timing and end._timing):
            raise ValueError("both events must be made with enable_timing=True")
        if not (self._time_ns and end._time_ns):
            raise RuntimeError("device not ready")
        resolution = self._device.resolution_ns
        return round((end._time_ns[0] - self._time_ns[0]) / resolution) * resolution / 1e6


class FakeTensor:
    """A buffer on the device, or on the host; its contents are one value."""

    def __init__(self, device: "FakeDevice", name: str, value: object = None, *, pageable: bool = False) -> None:
        self._device = device
        self.name = name
        self.value = value
        self.pageable = pageable
        self.reads: Clock = {}  # the last step of each agent that read it
        self.writes: Clock = {}

    def copy_(self, source: "FakeTensor", non_blocking: bool = False) -> "FakeTensor":
        """On the current stream. Host memory that is not pinned cannot be copied asynchronously."""
        assert non_blocking, "a copy in the hot path must not hold up the host"
        if source.pageable:
            self._device.faults.append(f"{source.name} is copied before it was pinned")
        self._device.launch([source], [self], lambda: self._take(source.value))
        return self

    def pin_memory(self) -> "FakeTensor":
        """A pinned copy, made by the host at once."""
        pinned = FakeTensor(self._device, f"pinned {self.name}", self._device.read(self))
        self._device.access([], [pinned])
        return pinned

    def _take(self, value: object) -> None:
        self.value = value


class FakeDevice:
    """Stands for `torch.cuda` as a layout sees it, and keeps what went wrong.

    Attributes:
        faults: races and other misuse, a line each.
        resolution_ns: of an event's time.
    """

    def __init__(self, resolution_ns: int = 1) -> None:
        self.lock = threading.RLock()
        self.faults: list[str] = []
        self.resolution_ns = resolution_ns
        self._local = threading.local()
        self._numbers = itertools.count()
        self._default = FakeStream("default stream")

    def Stream(self) -> FakeStream:
        """A stream that is ordered with no other."""
        return FakeStream(f"stream {next(self._numbers)}")

    def Event(self, **options: bool) -> FakeEvent:
        """An event, not yet recorded."""
        return FakeEvent(self, **options)

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        """Make it the calling thread's current stream."""
        before = self.current_stream()
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def current_stream(self) -> FakeStream:
        """The calling thread's."""
        stream: FakeStream = getattr(self._local, "stream", self._default)
        return stream

    @property
    def host(self) -> Agent:
        """The calling thread."""
        if not hasattr(self._local, "host"):
            self._local.host = Agent(f"thread {threading.current_thread().name} {next(self._numbers)}")
        host: Agent = self._local.host
        return host

    def tensor(self, name: str, value: object = None, *, pageable: bool = False) -> FakeTensor:
        """A new buffer."""
        return FakeTensor(self, name, value, pageable=pageable)

    def launch(self, reads: Sequence[FakeTensor], writes: Sequence[FakeTensor], run: Callable[[], object]) -> None:
        """Queue a copy or a kernel on the current stream: it comes after all that this thread knows to be over."""
        with self.lock:
            stream = self.current_stream()
            stream.learn(self.host.clock)
            stream.queue(run)
            self._note(stream, reads, writes)

    def access(self, reads: Sequence[FakeTensor], writes: Sequence[FakeTensor]) -> None:
        """The calling thread reads and writes memory itself."""
        with self.lock:
            self.host.step()
            self._note(self.host, reads, writes)

    def read(self, tensor: FakeTensor) -> object:
        """What the calling thread finds in a buffer."""
        with self.lock:
            self.access([tensor], [])
            return tensor.value

    def _note(self, agent: Agent, reads: Sequence[FakeTensor], writes: Sequence[FakeTensor]) -> None:
        """Compare an access with all earlier ones: the last of each agent stands for its others."""
        now = agent.clock[agent.name]
        for tensor in reads:
            self._compare(agent, "reads", tensor, "write", tensor.writes)
            tensor.reads[agent.name] = now
        for tensor in writes:
            self._compare(agent, "writes", tensor, "write", tensor.writes)
            self._compare(agent, "writes", tensor, "read", tensor.reads)
            tensor.writes[agent.name] = now

    def _compare(self, agent: Agent, verb: str, tensor: FakeTensor, noun: str, earlier: Clock) -> None:
        for name, step in earlier.items():
            if agent.clock.get(name, 0) < step:
                self.faults.append(f"{agent.name} {verb} {tensor.name} without waiting for the {noun} by {name}")


class HandOver:
    """A `queue.SimpleQueue` that hands over, with each item, what the putting thread knows to be over."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._items: SimpleQueue[tuple[Any, Clock]] = SimpleQueue()

    def put(self, item: Any) -> None:
        """Put an item, and what this thread knows."""
        self._items.put((item, dict(self._device.host.clock)))

    def get(self, timeout: float | None = None) -> Any:
        """The next item; its sender's knowledge is the receiver's from here on."""
        item, clock = self._items.get(timeout=timeout)
        self._device.host.learn(clock)
        return item

    def empty(self) -> bool:
        """Whether nothing is waiting; who asks learns nothing."""
        return self._items.empty()


class FakeServer:
    """A queue's backend end: requests come in bursts, answers go through a bounded ring of slots.

    The client is played by the thread that responds: it reads the slot at once and frees it. Request k
    holds the value k, no other one does.

    Attributes:
        answers: what the client has read, by request.
    """

    def __init__(self, device: FakeDevice, requests: int, slots: int, *, pageable: bool, timeout_s: float) -> None:
        self._device = device
        self._requests = self._left = requests
        self._timeout_s = timeout_s
        self._next = 0
        self._random = Random(0)
        self._hosts = [device.tensor(f"request {k}", k, pageable=pageable) for k in range(requests)]
        self._free = HandOver(device)
        for slot in range(slots):
            self._free.put(Buffer(slot, device.tensor(f"slot {slot}")))  # type: ignore[arg-type]  # a fake tensor
        self.answers: dict[int, object] = {}
        self.finished = threading.Event()

    def receive(self, _timeout_s: float) -> list[tuple[int, Any]]:
        """The next burst; empty after the last request."""
        first, size = self._next, self._random.choice((1, 1, 2, 5, 13))
        self._next = min(first + size, self._requests)
        return [(k, self._hosts[k]) for k in range(first, self._next)]

    def allocate(self, _output: Any, _slots: int) -> None:
        """The slots are there from the start."""

    def reserve(self) -> Buffer:
        """The slot that has been free for the longest time."""
        buffer: Buffer = self._free.get(timeout=self._timeout_s)
        return buffer

    def respond(self, index: int, buffer: Buffer | None, more: bool = False) -> None:  # noqa: ARG002 - as Server has it
        """The client reads the answer, and the slot is free again."""
        if buffer is None:
            raise BenchError("no control message is sent here")
        value = self._device.read(buffer.tensor)  # type: ignore[arg-type]  # a fake tensor
        sleep(self._random.choice((0, 0, 1e-4)))  # let the threads meet in different orders
        self._free.put(buffer)
        with self._device.lock:
            self.answers[index] = value
            self._left -= 1
            if self._left == 0:
                self.finished.set()

    def close(self) -> None:
        """Nothing is held."""
