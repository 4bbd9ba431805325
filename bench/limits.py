"""What a run takes, as far as it is known before, and what to say where there is less. Pure.

All figures are lower bounds: what activations, the compiler and libraries take is not known. So a run
that is refused here cannot work, and one that is let pass may still run out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.config import Settings
from bench.queues.memory import board_size
from bench.queues.shared_memory import output_slots
from bench.room import Room
from bench.sizes import Sizes

_MIB = 2**20
_PROCESSES_BYTES = 32 * _MIB  # what the processes of a run have for themselves; 33 MiB were seen
_COLLECTED_BYTES = 256  # of the supervisor for each request when a run has ended
_DESCRIPTORS = 64  # of one process; 16 were seen
_CUDA_DESCRIPTORS = 64  # more of one that uses a GPU
_TENSOR_DESCRIPTORS = 2  # of the backend for each request in flight on a torch queue
_TASKS = 16  # processes and threads beside those that compute
_REQUEST_BYTES = 128  # of requests.parquet: thirteen columns, most of 8 bytes, and names
_RUN_BYTES = _MIB // 2  # of the other files of a run; 0.3 MiB were seen
_COMPILE_BYTES = 16 * _MIB  # what the compiler makes of a small model

_MOST_IN_FLIGHT_BYTES = 2 * 2**30
_MOST_IN_FLIGHT = 256


@dataclass(frozen=True)
class Needs:
    """What one run takes at least, in bytes and counts; the names are those of `Room`."""

    memory: int
    shared: int  # the part of `memory` that the processes share
    shm: int  # the part of `shared` that lies in /dev/shm
    descriptors: int
    tasks: int
    output: int
    compile: int
    device: int


def needs(settings: Settings, requests: int, sizes: Sizes | None) -> Needs:
    """What a run of so many requests takes, of whose model `sizes` tells; None where nobody has tried it."""
    sizes = sizes or Sizes("cpu", 0, None, None)
    is_cuda, is_torch = sizes.device != "cpu", settings.queue.name == "torch"
    payload, output = settings.payload_bytes, sizes.output_bytes or 0
    if is_torch:
        answers = 0
        queue = 2 * (payload + output)  # two requests in flight; more where there is room
    else:
        answers = output_slots(settings, output) * output if output else 0
        queue = 0
    shared = board_size(requests, settings.payloads, payload) + answers + queue
    frames = settings.buffers * (payload + output)
    descriptors = _DESCRIPTORS + _CUDA_DESCRIPTORS * is_cuda + 2 * _TENSOR_DESCRIPTORS * is_torch
    return Needs(
        memory=_PROCESSES_BYTES + shared + _COLLECTED_BYTES * requests + (0 if is_cuda else sizes.parameter_bytes),
        shared=shared,
        shm=4 * max(payload, output) if is_torch else 0,  # half of it is left free, see `in_flight`
        descriptors=descriptors,
        tasks=_TASKS + 2 * settings.compute_threads,
        output=_RUN_BYTES + _REQUEST_BYTES * requests,
        compile=_COMPILE_BYTES if settings.compile else 0,
        device=sizes.parameter_bytes + frames if is_cuda else 0,
    )


def in_flight(settings: Settings, sizes: Sizes | None, room: Room) -> int:
    """Requests of queue=torch whose tensors may exist at the same time.

    A request or an answer is a block of shared memory and a descriptor. Half of /dev/shm is left free, since a
    queue's thread that finds none loses the item and says nothing.
    """
    largest = max(settings.payload_bytes, (sizes and sizes.output_bytes) or 0)
    free = min(_MOST_IN_FLIGHT_BYTES, room.shm // 2, room.memory // 4)
    descriptors = (room.descriptors - _DESCRIPTORS - _CUDA_DESCRIPTORS) // _TENSOR_DESCRIPTORS
    return max(2, min(_MOST_IN_FLIGHT, free // largest, descriptors))


@dataclass(frozen=True)
class Shortage:
    """Too little of one thing. `what`, `where` and `advice` are words, `need` and `have` bytes or counts."""

    what: str
    need: int
    have: int
    where: str
    advice: str

    def __str__(self) -> str:
        return self.words([self.need])

    def words(self, needs: Sequence[int]) -> str:
        """The same for several runs, which need so much each."""
        most = "" if len(set(needs)) == 1 else "up to "
        need, have = str(max(needs)), str(self.have)
        if self.what.startswith("of "):  # bytes
            need, have = f"{-(-max(needs) // _MIB)} MiB", f"{self.have // _MIB} MiB"
        return f"needs {most}{need} {self.what}, {have} {self.where}: {self.advice}"


def shortages(need: Needs, room: Room, sizes: Sizes | None = None, *, runs: int = 1) -> list[Shortage]:
    """What there is too little of for `runs` runs, one after the other."""
    gib = -(-need.shm // 2**30)
    limit = "available" if room.memory_limit is None else f"left of the limit of {room.memory_limit // _MIB} MiB"
    lower = "lower batch_size, payloads or num_iters"
    memory = f"{lower}, or give it more" + (" (docker run --memory=…)" if room.memory_limit else "")
    free_of_device = sizes.device_bytes if sizes else None
    device = sizes.device if sizes else ""
    found = [
        Shortage(
            "of shared memory",
            need.shm,
            room.shm,
            "are free in /dev/shm",
            f"lower batch_size, mount a larger /dev/shm (docker run --shm-size={gib}g), or set queue=shared_memory",
        ),
        Shortage(
            f"of memory ({need.shared // _MIB} MiB of it shared)", need.memory, room.memory, f"are {limit}", memory
        ),
        Shortage(
            f"of memory on {device} without activations",
            need.device,
            need.device if free_of_device is None else free_of_device,
            "are free there",
            "lower batch_size, num_workers or stream_layout.buffers_per_worker, or end what else runs there",
        ),
        Shortage(
            "open files a process",
            need.descriptors,
            room.descriptors,
            "are allowed",
            "raise the hard limit (ulimit -Hn; docker run --ulimit nofile=65536)",
        ),
        Shortage(
            "processes and threads",
            need.tasks,
            need.tasks if room.tasks is None else room.tasks,
            "are left of the control group's limit",
            "lower num_workers, or raise it (docker run --pids-limit=…)",
        ),
        Shortage(
            f"of disk for {runs} run{'s' * (runs != 1)}",
            runs * need.output,
            room.output,
            f"are free in {room.output_place}",
            "free some, or set output_dir to another disk",
        ),
        Shortage(
            "of disk for the compiler",
            need.compile,
            room.compile,
            f"are free in {room.compile_place}",
            "free some, set TMPDIR (compile_cache=cold) or cache_dir (warm) to another disk, or set compile=false",
        ),
    ]
    return [shortage for shortage in found if shortage.need > shortage.have]


def grouped(found: Mapping[str, Sequence[Shortage]]) -> list[tuple[str, list[str]]]:
    """Shortages of several cells by kind: what to say, and the cells that it is said of."""
    kinds: dict[tuple[str, str], list[tuple[str, Shortage]]] = {}
    for cell, shortages_of_cell in found.items():
        for shortage in shortages_of_cell:
            kinds.setdefault((shortage.what.partition(" (")[0], shortage.where), []).append((cell, shortage))
    texts = []
    for members in kinds.values():
        worst = max((shortage for _, shortage in members), key=lambda shortage: shortage.need)
        text = worst.words([shortage.need for _, shortage in members])
        texts.append((text, [cell for cell, _ in members]))
    return texts
