"""queue=shared_memory: everything lies in shared memory from the start, a message is one count.

The requests are a ring of indexes in the board, the answers a ring of (index, output slot). A
process writes its entry and adds one to an eventfd; the other reads the count and knows how many
new entries there are. So a message costs one system call to send, any number of waiting messages
cost one to receive, and no request waits for room.
"""

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from time import perf_counter_ns as now
from typing import TYPE_CHECKING

from bench.config import Settings
from bench.errors import BenchError
from bench.queues.base import Buffer
from bench.queues.digest import DigestBook, announce_outputs, output_plan
from bench.queues.memory import ANSWERED, OUTPUT_BYTES, OUTPUT_SLOTS, Board, BoardView, Event, Memory
from bench.stamps import COMPLETED, WIDTH

if TYPE_CHECKING:
    import torch

_TOGETHER = 16  # answers that one system call announces at most
_SLOT_BYTES = 64 * 2**20  # output slots beyond what is needed take no more than this
_MOST_SLOTS = 1024
_CHUNK = 256  # messages taken at once, so that a backlog needs no memory of the process that reads it


def output_slots(settings: Settings, output_bytes: int) -> int:
    """Output slots: two a buffer in flight, and more where they are small, since the client frees in chunks."""
    needed = 2 * settings.compute_threads * settings.stream_layout.buffers_per_worker
    return max(needed, min(_MOST_SLOTS, _SLOT_BYTES // max(1, output_bytes)))


@dataclass(frozen=True)
class SharedMemoryQueue:
    """What both ends need; made by the supervisor, sent to the two processes."""

    board: Board
    outputs: Memory  # sized by the backend, which alone knows how large an answer is
    request_ready: Event
    response_ready: Event
    slots_freed: Event

    @classmethod
    def create(cls, board: Board) -> "SharedMemoryQueue":
        """A queue over `board`."""
        return cls(board, Memory(), Event(), Event(), Event())

    def client(self, view: BoardView, _pool: "list[torch.Tensor]") -> "SharedMemoryClient":
        """The frontend's end."""
        return SharedMemoryClient(self, view)

    def server(self, view: BoardView, pool: "list[torch.Tensor]", timeout_s: float) -> "SharedMemoryServer":
        """The backend's end."""
        return SharedMemoryServer(self, view, pool, timeout_s)

    def close(self) -> None:
        """Close this process's descriptors."""
        for part in (self.outputs, self.request_ready, self.response_ready, self.slots_freed):
            part.close()


class SharedMemoryClient:
    """The frontend's end."""

    prepares = False

    def __init__(self, queue: SharedMemoryQueue, view: BoardView) -> None:
        self._queue = queue
        self._view = view
        self._sent = 0
        self._received = 0
        self._pending = 0  # announced, and not yet received
        self._unfreed = 0  # received, and the backend has not been told
        self._poll = queue.response_ready.poller()
        self._book: DigestBook | None = None
        self._sources: list[list[tuple[int, int, memoryview]]] = []

    def prepare(self, _index: int) -> None:
        """Nothing: the payloads lie in shared memory."""

    def send(self, index: int) -> None:
        """Two steps: the entry, then the count that announces it."""
        self._view.requests[self._sent] = index
        self._sent += 1
        os.eventfd_write(self._queue.request_ready.fd, 1)

    def receive(self, timeout_s: float) -> Sequence[int]:
        """Answers that have arrived. Their slots are freed by the half, which costs one system call for many.

        A backend that waits for a slot has handed over all but those its threads hold, and there are
        at least twice as many slots as threads: so half of them are always reached.
        """
        if not self._pending:
            if not self._poll(timeout_s * 1000):
                return ()
            self._pending = os.eventfd_read(self._queue.response_ready.fd)
        arrived = min(self._pending, _CHUNK)
        self._pending -= arrived
        start, self._received = self._received, self._received + arrived
        indexes = self._view.response_indexes[start : self._received].tolist()
        completed = now()  # they have left the queue together
        slots = self._view.response_slots[start : self._received].tolist()
        stamps, sources = self._view.stamps, self._sources
        keep = (self._book or self._open_outputs()).keep
        for index, slot in zip(indexes, slots, strict=True):
            if index >= 0:
                stamps[index * WIDTH + COMPLETED] = completed
                keep(index, sources[slot])
        self._unfreed += arrived
        if self._unfreed * 2 >= len(sources):
            os.eventfd_write(self._queue.slots_freed.fd, self._unfreed)
            self._unfreed = 0
        self._view.control[ANSWERED] += arrived
        return indexes

    def _open_outputs(self) -> DigestBook:
        """Map the output slots: the backend has made them before its first answer."""
        self._book = DigestBook(output_plan(self._view.control), self._view.digests)
        count, size = self._view.control[OUTPUT_SLOTS], self._view.control[OUTPUT_BYTES]
        whole = memoryview(self._queue.outputs.map(present=True))
        self._sources.extend(self._book.sources(whole[k * size : (k + 1) * size]) for k in range(count))
        return self._book

    def close(self) -> None:
        """Nothing is held that the end of the process does not free."""


class SharedMemoryServer:
    """The backend's end. `respond` and `reserve` may be called from several threads."""

    def __init__(self, queue: SharedMemoryQueue, view: BoardView, pool: "list[torch.Tensor]", timeout_s: float) -> None:
        self._queue = queue
        self._view = view
        self._pool = pool
        self._timeout_ms = timeout_s * 1000
        self._received = 0
        self._pending = 0  # announced, and not yet received
        self._answered = 0
        self._told = 0  # answers that the frontend has been told of
        self._indexes, self._slots = view.response_indexes, view.response_slots
        self._response_fd = queue.response_ready.fd
        self._poll = queue.request_ready.poller()
        self._poll_freed = queue.slots_freed.poller()
        self._free: deque[Buffer] = deque()
        self._announced: deque[Buffer | None] = deque()  # in the order in which the frontend will free them
        # Two locks: a thread that waits for a free slot must not keep another from answering.
        self._reserving, self._responding = Lock(), Lock()
        self.outputs: torch.Tensor | None = None  # all slots, for registration as pinned memory

    def receive(self, timeout_s: float) -> "Sequence[tuple[int, torch.Tensor | None]]":
        """Requests that have arrived, each with a view of its payload."""
        if not self._pending:
            if not self._poll(timeout_s * 1000):
                return ()
            self._pending = os.eventfd_read(self._queue.request_ready.fd)
        arrived = min(self._pending, _CHUNK)
        self._pending -= arrived
        start, self._received = self._received, self._received + arrived
        pool, size = self._pool, len(self._pool)
        return [
            (index, pool[index % size] if index >= 0 else None)
            for index in self._view.requests[start : self._received].tolist()
        ]

    def allocate(self, output: "torch.Tensor", slots: int) -> None:
        """Size the output memory, map it, and tell the frontend its shape."""
        import torch

        size = output.numel() * output.element_size()
        self._queue.outputs.resize(size * slots)
        whole = torch.frombuffer(self._queue.outputs.map(present=True), dtype=torch.uint8)
        self.outputs = whole
        for slot, part in enumerate(whole.view(slots, size)):
            self._free.append(Buffer(slot, part.view(output.dtype).view(output.shape)))
        announce_outputs(self._view.control, output, slots, self._pool[0].shape[0])

    def reserve(self) -> Buffer:
        """The next free slot; only when there is none is the frontend asked, in one system call for many."""
        try:
            return self._free.popleft()
        except IndexError:  # not suppress(): this is the hot path, and a context manager costs as much as the rest
            return self._wait_for_slot()

    def _wait_for_slot(self) -> Buffer:
        with self._reserving:
            while True:  # another thread may be quicker, before this one has the lock and after
                with suppress(IndexError):
                    return self._free.popleft()
                if not self._poll_freed(self._timeout_ms):
                    raise BenchError(f"the frontend freed no output slot for {self._timeout_ms / 1000:g} s")
                for _ in range(os.eventfd_read(self._queue.slots_freed.fd)):
                    buffer = self._announced.popleft()
                    if buffer is not None:
                        self._free.append(buffer)

    def respond(self, index: int, buffer: Buffer | None, more: bool = False) -> None:
        """The entry, then the count; under a lock, since the order of entries is the order of freeing.

        Up to `_TOGETHER` answers share a count where `more` are to come at once: to wake the frontend costs more
        than all else that is done for an answer.
        """
        with self._responding:
            position = self._answered
            self._answered = position + 1
            self._indexes[position] = index
            if buffer is not None:
                self._slots[position] = buffer.slot
            self._announced.append(buffer)
            if not more or position - self._told >= _TOGETHER:
                os.eventfd_write(self._response_fd, position + 1 - self._told)
                self._told = position + 1

    def close(self) -> None:
        """Nothing is held that the end of the process does not free."""
