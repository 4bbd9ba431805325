"""queue=torch: PyTorch's way, `torch.multiprocessing.Queue` with a fresh tensor for each request.

Every request is a new block of shared memory and a file descriptor, so what is in flight is
bounded by bytes: on a full /dev/shm the queue's own thread would lose the item and say nothing.
"""

import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from threading import BoundedSemaphore
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.queues.base import Buffer
from bench.queues.digest import DigestBook, announce_outputs, output_plan
from bench.queues.memory import ANSWERED, BoardView
from bench.stamps import COMPLETED, WIDTH

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TorchQueue:
    """What both ends need; made by the supervisor, sent to the two processes."""

    requests: Any
    responses: Any
    in_flight: int  # requests whose tensors may exist at the same time
    timeout_s: float

    @classmethod
    def create(cls, context: BaseContext, in_flight: int, timeout_s: float) -> "TorchQueue":
        """Two queues; for `in_flight` see `bench.limits`."""
        return cls(context.Queue(), context.Queue(), in_flight, timeout_s)

    def client(self, view: BoardView, pool: "list[torch.Tensor]") -> "TorchClient":
        """The frontend's end."""
        return TorchClient(self, view, pool)

    def server(self, view: BoardView, pool: "list[torch.Tensor]", _timeout_s: float) -> "TorchServer":
        """The backend's end."""
        return TorchServer(self, view, pool[0].shape[0])

    def close(self) -> None:
        """Close this process's ends."""
        self.requests.close()
        self.responses.close()


def _free_shm() -> int:
    """Bytes of /dev/shm that are free."""
    shm = os.statvfs("/dev/shm")
    return shm.f_bavail * shm.f_frsize


def _prepare_process(ends: TorchQueue) -> None:
    """Register how tensors travel, which no child inherits, and what becomes of one that cannot."""
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_descriptor")  # type: ignore[no-untyped-call]  # torch
    for end in (ends.requests, ends.responses):
        end._on_queue_feeder_error = _feeder_failed


def _feeder_failed(error: Exception, _item: Any) -> None:
    """The queue's own thread drops an item that it cannot send, and would go on: let it fail as any other thread."""
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


class TorchClient:
    """The frontend's end."""

    prepares = True

    def __init__(self, ends: TorchQueue, view: BoardView, pool: "list[torch.Tensor]") -> None:
        _prepare_process(ends)
        self._ends = ends
        self._view = view
        self._pool = pool
        self._room = BoundedSemaphore(ends.in_flight)
        self._next: tuple[int, torch.Tensor] | None = None
        self._book: DigestBook | None = None

    def prepare(self, index: int) -> None:
        """A fresh clone in shared memory, made before the request is stamped as sent."""
        if not self._room.acquire(timeout=self._ends.timeout_s):
            raise BenchError(f"no answer for {self._ends.timeout_s:g} s while {self._ends.in_flight} requests wait")
        fresh = self._pool[index % len(self._pool)].clone()
        self._next = (index, fresh.share_memory_())  # type: ignore[no-untyped-call]  # torch

    def send(self, index: int) -> None:
        """PyTorch's message is (tensor, request_time); the time is in the board, its row is the index."""
        if index < 0:
            self._ends.requests.put((index, None))
            return
        self._ends.requests.put(self._next)
        self._next = None

    def receive(self, timeout_s: float) -> Sequence[int]:
        """One answer; its tensor is dropped at once, and with it its descriptor."""
        try:
            index, output = self._ends.responses.get(timeout=timeout_s)
        except queue.Empty:
            return ()
        if index >= 0:
            self._view.stamps[index * WIDTH + COMPLETED] = now()
            self._keep(index, output)
            self._room.release()
        self._view.control[ANSWERED] += 1
        return (index,)

    def _keep(self, index: int, output: "torch.Tensor") -> None:
        import torch

        if self._book is None:
            self._book = DigestBook(output_plan(self._view.control), self._view.digests)
        flat: Any = output.contiguous().flatten().view(torch.uint8).numpy()
        self._book.keep(index, self._book.sources(memoryview(flat)))

    def close(self) -> None:
        """Leave the queues without waiting for what nobody will read."""
        for end in (self._ends.requests, self._ends.responses):
            end.cancel_join_thread()
            end.close()


class TorchServer:
    """The backend's end."""

    outputs: "torch.Tensor | None" = None  # nothing here outlives a request, so nothing can be registered

    def __init__(self, ends: TorchQueue, view: BoardView, batch_size: int) -> None:
        _prepare_process(ends)
        self._ends = ends
        self._view = view
        self._batch_size = batch_size
        self._like: torch.Tensor | None = None

    def receive(self, timeout_s: float) -> "Sequence[tuple[int, torch.Tensor | None]]":
        """One request."""
        try:
            return (self._ends.requests.get(timeout=timeout_s),)
        except queue.Empty:
            return ()

    def allocate(self, output: "torch.Tensor", slots: int) -> None:
        """Nothing to make ahead: every answer is a fresh tensor. Tell the frontend its shape."""
        import torch

        needed = self._ends.in_flight * output.numel() * output.element_size()
        if needed > _free_shm():
            raise BenchError(
                f"queue=torch needs {needed / 2**20:.0f} MiB of /dev/shm for {self._ends.in_flight} answers in flight, "
                f"{_free_shm() / 2**20:.0f} MiB are free. Give it more, or set queue=shared_memory"
            )
        self._like = torch.empty(output.shape, dtype=output.dtype, device="cpu")
        announce_outputs(self._view.control, output, slots, self._batch_size)

    def reserve(self) -> Buffer:
        """A fresh tensor."""
        import torch

        assert self._like is not None, "allocate() comes first"
        return Buffer(-1, torch.empty_like(self._like))

    def respond(self, index: int, buffer: Buffer | None, more: bool = False) -> None:  # noqa: ARG002
        """The queue's own thread moves the tensor to shared memory and sends its descriptor."""
        self._ends.responses.put((index, None if buffer is None else buffer.tensor))

    def close(self) -> None:
        """Let the queue's thread send what it still has; the frontend is there to read it."""
        self._ends.responses.close()
        self._ends.responses.join_thread()
