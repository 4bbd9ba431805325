"""What the two processes share: anonymous memory and counting events, handed over as file descriptors.

A memfd has no name, so nothing is left behind when a process dies, and no /dev/shm limit. Every
hand-over between the processes passes through the kernel (an eventfd), which orders the memory
accesses before it against those after it on every architecture.
"""

import mmap
import os
import select
from multiprocessing import reduction
from typing import Any

from bench.stamps import WIDTH

CONTROL_WORDS = 16
(  # words of the control block
    ANSWERED,  # responses that the frontend has received so far
    OUTPUT_SLOTS,  # how many output slots there are; the backend knows it after its first forward pass
    OUTPUT_BYTES,  # size of one slot
    OUTPUT_ITEMSIZE,
    OUTPUT_ROWS,  # first dimension of the output, 0 where it is not the batch
    IN_FLIGHT_NS,  # requests in flight, integrated over the measured window by the frontend
) = range(6)

DIGEST_BYTES = 32  # kept of every answer: eight float32
_WORD = 8
_WORKER_BYTES = 2  # of the number of a worker
_PAGE = mmap.PAGESIZE
CONTROL_MESSAGES = 4  # queue entries beside the requests: begin and end, and room


class Descriptor:
    """A file descriptor that travels to a child process and is closed with its owner."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.fd)

    def __setstate__(self, state: Any) -> None:
        self.fd = state.detach()

    def close(self) -> None:
        """Close it, once."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class Event(Descriptor):
    """A counter that one process adds to and another waits for (an eventfd)."""

    def __init__(self) -> None:
        super().__init__(os.eventfd(0, os.EFD_CLOEXEC))

    def poller(self) -> Any:
        """`poll(timeout_ms)` of this event: an empty list when the time ran out."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return poll.poll


class Memory(Descriptor):
    """Anonymous shared memory (a memfd). The size may be set later, by either process."""

    def __init__(self, size: int = 0) -> None:
        super().__init__(os.memfd_create("bench", os.MFD_CLOEXEC))
        if size:
            self.resize(size)

    def resize(self, size: int) -> None:
        """Set the size in bytes; pages are taken when they are first touched."""
        os.ftruncate(self.fd, size)

    def map(self, *, present: bool) -> mmap.mmap:
        """All of it, mapped; `present` takes its pages now, so that none is missed while a run is measured."""
        size = os.fstat(self.fd).st_size
        return mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED | (mmap.MAP_POPULATE if present else 0))


def board_size(rows: int, payloads: int, payload_bytes: int) -> int:
    """Bytes of a `Board`."""
    return _layout(rows, payloads, payload_bytes)["end"]


def _layout(rows: int, payloads: int, payload_bytes: int) -> dict[str, int]:
    """Offset in bytes of each part."""
    entries = (rows + CONTROL_MESSAGES) * _WORD
    sizes = {
        "control": CONTROL_WORDS * _WORD,
        "requests": entries,  # index of the request, or a control message
        "response_indexes": entries,
        "response_slots": entries,
        "stamps": rows * WIDTH * _WORD,
        "digests": rows * DIGEST_BYTES,
        "workers": rows * _WORKER_BYTES,
    }
    offsets, position = {}, 0
    for name, size in sizes.items():
        offsets[name] = position
        position += size
    offsets["payloads"] = -(-position // _PAGE) * _PAGE
    stride = -(-payload_bytes // _PAGE) * _PAGE
    offsets["end"] = offsets["payloads"] + stride * payloads
    return offsets


class Board:
    """The shared block of one run: control words, the two message rings, stamps, digests, workers, payloads.

    Sizes follow from `rows` (requests of the run), `payloads` and `payload_bytes` alone, so the
    supervisor makes it without torch, and each process maps it once.
    """

    def __init__(self, rows: int, payloads: int, payload_bytes: int) -> None:
        self.rows = rows
        self.payloads = payloads
        self.payload_bytes = payload_bytes
        self.size = board_size(rows, payloads, payload_bytes)
        self.memory = Memory(self.size)

    def open(self, *, present: bool = True) -> "BoardView":
        """Map it into this process; see `Memory.map` for `present`."""
        return BoardView(self, present)


class BoardView:
    """A `Board` as this process sees it: memoryviews of int64 ('q'), of bytes ('B'), and of int16 ('h') for workers.

    `workers` has 1 + k for a request that worker k computed, 0 where the thread that reads requests did.
    """

    def __init__(self, board: Board, present: bool) -> None:
        offsets = _layout(board.rows, board.payloads, board.payload_bytes)
        self._map = board.memory.map(present=present)
        whole = memoryview(self._map)
        entries = (board.rows + CONTROL_MESSAGES) * _WORD

        def words(name: str, size: int) -> memoryview:
            return whole[offsets[name] : offsets[name] + size].cast("q")

        self.control = words("control", CONTROL_WORDS * _WORD)
        self.requests = words("requests", entries)
        self.response_indexes = words("response_indexes", entries)
        self.response_slots = words("response_slots", entries)
        self.stamps = words("stamps", board.rows * WIDTH * _WORD)
        self.digests = whole[offsets["digests"] : offsets["digests"] + board.rows * DIGEST_BYTES]
        workers = offsets["workers"]
        self.workers = whole[workers : workers + board.rows * _WORKER_BYTES].cast("h")
        stride = (offsets["end"] - offsets["payloads"]) // board.payloads
        starts = range(offsets["payloads"], offsets["end"], stride)
        self.payloads = [whole[start : start + board.payload_bytes] for start in starts]
        self.payload_pool = whole[offsets["payloads"] :]
