"""Small models for `model=custom model._target_=toys.X`: one that works, and one for each way to go wrong.

A fault happens in the backend process only, so that the preflight, which tries a model once, lets it pass.
"""

import itertools
import multiprocessing
import os
import signal
import struct
import subprocess
import threading
import time
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bench.backend import layouts
from bench.backend.engine import Engine, Forward, Frame, HostEngine
from bench.child import Link
from bench.frontend.client import drive
from bench.setup import RunSetup
from bench.stamps import COMPUTE_START, D2H_START, INTENDED, SENT, WIDTH


class Net(nn.Module):
    """A small convolutional network whose answers differ from payload to payload."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8 * 14 * 14, 10)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.conv(x).relu().flatten(1))
        return self.scale * answer


def in_backend() -> bool:
    """Whether this is the backend of a run."""
    return multiprocessing.current_process().name == "backend"


class Faulty(Net):
    """Does `fault` in forward pass number `at` of the backend.

    The first is the cold request's and one primes each compute thread, so that with two of them the 4th is
    that of the first request of the window (with warmup_iters=0). The last ones are for the references.
    """

    at = 6

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        if in_backend():
            with self.lock:
                self.passes += 1
                is_due = self.passes == self.at
            if is_due:
                return self.fault(x)
        return super().forward(x)

    def fault(self, _x: Tensor) -> Tensor:
        raise RuntimeError("a fault of the toy")


class RaisesAtOnce(Faulty):
    """Raises for the cold first request."""

    at = 1


class RaisesInThread(Faulty):
    """Raises in a compute thread in the middle of the window."""


class RaisesInCheck(Faulty):
    """Raises when the references are computed: after 1 cold, 2 priming and 8 measured passes."""

    at = 12


class RaisesForTwo(Net):
    """Takes one sample at a time."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 2:
            raise RuntimeError("no room for 2 samples")
        return super().forward(x)


class Killed(Faulty):
    """Is killed in the window, as by the kernel when memory runs out."""

    def fault(self, _x: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still there")


class KilledInLoad(Net):
    """Is killed while it is built."""

    def __init__(self) -> None:
        super().__init__()
        if in_backend():
            os.kill(os.getpid(), signal.SIGKILL)


class KilledInWarmUp(Killed):
    """Is killed while its threads are primed."""

    at = 2


class Exits(Faulty):
    """Exits without a word, as a library may."""

    def fault(self, _x: Tensor) -> Tensor:
        os._exit(3)


class Stalls(Faulty):
    """Never answers one request, and has started a process of its own that would outlive it."""

    def fault(self, _x: Tensor) -> Tensor:
        subprocess.run(["sleep", "600"], check=True)
        raise AssertionError("ten minutes later")


class WrongOnce(Faulty):
    """Answers one request with another answer than is due."""

    def fault(self, _x: Tensor) -> Tensor:
        return Net.forward(self, _x) + 1


class NotANumberOnce(Faulty):
    """Answers one request with NaN."""

    def fault(self, _x: Tensor) -> Tensor:
        return torch.full_like(Net.forward(self, _x), torch.nan)


class Previous(layouts.Pipelined):
    """A broken layout: its copy out takes the output of the frame before, like a wait left out."""

    def start(self) -> None:
        copy_out, before = self.engine.copy_out, []

        def swapped(frame: Any) -> None:
            before.append(frame.output)
            frame.output = before[-2:][0]
            copy_out(frame)

        self.engine.copy_out = swapped  # type: ignore[method-assign]  # broken on purpose
        super().start()


class BreaksLayout(Net):
    """A good model that puts a broken layout in the place of the pipelined one."""

    def __init__(self) -> None:
        super().__init__()
        if in_backend():
            layouts.LAYOUTS["pipelined"] = type("Pipelined", (Previous,), {})


class Slow(Net):
    """Takes 50 ms in the backend, and leaves a file named after the backend's process id."""

    def forward(self, x: Tensor) -> Tensor:
        if in_backend():
            Path(f"backend-{os.getpid()}").touch()
            time.sleep(0.05)
        return super().forward(x)


class Waits(Net):
    """Writes a file `reached`, and waits for ever: where it is made, or in a forward pass of the backend.

    `at` is the process that makes it (preflight, backend), or the number of the pass.
    """

    def __init__(self, at: str | int) -> None:
        super().__init__()
        self.at = at
        self.passes = 0
        if multiprocessing.current_process().name == at:
            self.wait()

    def forward(self, x: Tensor) -> Tensor:
        if in_backend() and isinstance(self.at, int):
            self.passes += 1
            if self.passes == self.at:
                self.wait()
        return super().forward(x)

    def wait(self) -> None:
        """Leave the mark, and stay."""
        Path("reached").touch()
        time.sleep(600)


class NeedsFile(Net):
    """Takes two samples only where a file `mended` is."""

    def forward(self, x: Tensor) -> Tensor:
        if in_backend() and len(x) == 2 and not Path("mended").exists():
            raise RuntimeError("no room for 2 samples")
        return super().forward(x)


class CannotBeMade(Net):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise ValueError("cannot be made")


class TellsThreads(RaisesForTwo):
    """Leaves a file for each backend that holds what OpenMP is told."""

    def forward(self, x: Tensor) -> Tensor:
        if in_backend():
            Path(f"threads-{os.getpid()}").write_text(str(os.environ.get("OMP_NUM_THREADS")))
        return super().forward(x)


def answer(number: int, link: Link) -> None:
    """A child's body that answers."""
    link.send("download", "half")
    link.send("done", number + 1)


def raise_key_error(_: object, _link: Link) -> None:
    """A child's body that raises."""
    raise KeyError("colour")


def be_killed(_: object, _link: Link) -> None:
    """A child's body that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_: object, _link: Link) -> None:
    """A child's body that ends without a word."""
    os._exit(3)


def sleep_with_a_child(_: object, link: Link) -> None:
    """A child's body that tells its own and its child's process id, and sleeps."""
    child = subprocess.Popen(["sleep", "600"])
    link.send("pids", [os.getpid(), child.pid])
    child.wait()


# What would make a number wrong, done for real to the backend's own code.


class TurnsDouble(Faulty):
    """Has another type of parameter in the end than was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(1))  # the module's own comes before those of its parts

    def fault(self, x: Tensor) -> Tensor:
        self.extra.data = self.extra.data.double()
        return Net.forward(self, x)


class PatchesResponses(Net):
    """Wraps what the backend does with an answer."""

    def __init__(self) -> None:
        super().__init__()
        if in_backend():
            respond = Engine.respond

            def patched(engine: Engine, frame: Frame, more: bool = False) -> None:
                self.spoil(engine, frame)
                respond(engine, frame, more)

            Engine.respond = patched  # type: ignore[assignment,method-assign]

    def spoil(self, engine: Engine, frame: Frame) -> None:
        """Do harm before the answer leaves."""


class StampsBackwards(PatchesResponses):
    """Says of one request that its answer was copied before it was computed."""

    def spoil(self, engine: Engine, frame: Frame) -> None:
        if frame.index == 5:
            engine.stamps[frame.index * WIDTH + D2H_START] = engine.stamps[frame.index * WIDTH + COMPUTE_START] - 1


class SentEarlier(PatchesResponses):
    """Moves every request's sending back by a second, so that latencies in the stamps are not those that were."""

    def spoil(self, engine: Engine, frame: Frame) -> None:
        for column in (INTENDED, SENT):
            engine.stamps[frame.index * WIDTH + column] -= 1_000_000_000


class AnswersTwice(PatchesResponses):
    """Answers request 4 in the place of request 5."""

    def spoil(self, engine: Engine, frame: Frame) -> None:  # noqa: ARG002 - as the others have it
        if frame.index == 5:
            frame.index = 4


class CompilesAgain(Net):
    """Changes what its graph depends on in the middle of the window."""

    def __init__(self) -> None:
        super().__init__()
        self.sign = 1
        self.answers = 0
        if in_backend():
            compute = HostEngine.compute

            def patched(engine: HostEngine, frame: Frame, forward: Forward) -> None:
                self.answers += 1
                if self.answers == 5:
                    self.sign = -1
                compute(engine, frame, forward)

            HostEngine.compute = patched  # type: ignore[assignment,method-assign]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.sign == 1 else super().forward(x) * 1.0


class SlowsDown(Net):
    """Takes longer with every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if in_backend():
            time.sleep(0.005 + self.passes * 0.0002)
        return super().forward(x)


# For faults that come from outside, or from any phase of a run.


class Acts(Net):
    """Does something in the given phase of the backend: with 2 workers and 8 requests of one sample each.

    Args:
        phase: load, compile, warm-up, measuring or check.
        action: `sleep` (for `seconds`), `exit`, or `wait` for a process of its own that is stopped.
    """

    PASSES: ClassVar[dict[str, int]] = {"warm-up": 2, "measuring": 6, "check": 12}

    def __init__(self, phase: str, action: str = "sleep", seconds: float = 30.0) -> None:
        super().__init__()
        self.phase, self.action, self.seconds = phase, action, seconds
        self.passes = 0
        self.act("load")

    def compile(self, *_arguments: Any, **_keywords: Any) -> None:
        """Compile nothing, but take the time."""
        self.act("compile")

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes == self.PASSES.get(self.phase):
            self.act(self.phase)
        return super().forward(x)

    def act(self, phase: str) -> None:
        """Act if it is time to."""
        if phase != self.phase or not in_backend():
            return
        print("\n".join(f"line {k}" for k in range(60)), flush=True)
        if self.action == "sleep":
            time.sleep(self.seconds)
        elif self.action == "wait":
            with subprocess.Popen(["sleep", "30"]) as helper:
                helper.send_signal(signal.SIGSTOP)
        else:
            os._exit(7)


class RaisesInThreadOfItsOwn(Faulty):
    """Starts a thread that raises, and waits for an answer that it would have given."""

    def fault(self, _x: Tensor) -> Tensor:
        answer: SimpleQueue[Tensor] = SimpleQueue()
        threading.Thread(target=super().fault, args=(_x,), daemon=True).start()
        return answer.get()


class CannotBeSent(Net):
    """Breaks what torch's queue serializes answers with, in the window."""

    def __init__(self) -> None:
        super().__init__()
        if in_backend():
            dumps, count = ForkingPickler.dumps, itertools.count()

            def patched(item: Any, *protocol: Any) -> Any:
                if next(count) == 4:
                    raise RuntimeError("a fault of the toy")
                return dumps(item, *protocol)

            ForkingPickler.dumps = patched  # type: ignore[method-assign,assignment]  # broken on purpose


def leaving_frontend(setup: RunSetup, link: Link) -> None:
    """The frontend, but it exits as soon as it has said that the phase `model.args.phase` begins."""
    send = link.send

    def exiting(kind: str, content: Any = None) -> None:
        send(kind, content)
        said = {"ready": "start", "measured": "check"}.get(kind, content)
        if said == setup.settings.model.args["phase"]:
            os._exit(7)

    link.send = exiting  # type: ignore[method-assign]  # broken on purpose
    drive(setup, link)


def raising_sampler(_pids: object, _link: Link) -> None:
    """A sampler that fails at once."""
    raise RuntimeError("no such counter")


def waits_long(_setup: None, link: Link) -> None:
    """A child that says that it is there, and goes on for long."""
    link.send("started")
    time.sleep(60)


def half_a_message(_: object, link: Link) -> None:
    """A child's body that is stopped in the middle of what it says."""
    os.write(link.connection.fileno(), struct.pack("!i", 1000) + b"half")
    os.kill(os.getpid(), signal.SIGSTOP)


class OutOfMemory(Net):
    """Finds no memory on its device for more than so many samples, as torch says it."""

    def __init__(self, most: int = 4) -> None:
        super().__init__()
        self.most = most

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.most and in_backend():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total …")
        return super().forward(x)


class OutOfMemoryInThread(Faulty):
    """Finds no memory in a compute thread in the middle of the window."""

    def fault(self, _x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total …")


class TakesDeviceMemory(Net):
    """Takes 1 GiB a sample of the device's memory for the time of a forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            torch.empty(len(x), 2**30, dtype=torch.uint8, device=x.device)
        return super().forward(x)


class Greedy(Net):
    """Asks the host for 64 MiB a sample, and uses them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if in_backend():
            self.kept.append(torch.ones(len(x), 2**24))
        return super().forward(x)


class AsksForTooMuch(Net):
    """Asks the host for 1 PiB a sample, which no machine has."""

    def forward(self, x: Tensor) -> Tensor:
        if in_backend():
            torch.empty(len(x), 2**50, dtype=torch.uint8)
        return super().forward(x)


class FillsDisk(Net):
    """Takes what is left of the disk that `directory` is on, in the first run of 4 samples."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = Path(directory)

    def forward(self, x: Tensor) -> Tensor:
        once = Path("filled")
        if in_backend() and len(x) == 4 and not once.exists():
            once.touch()
            with suppress(OSError), (self.directory / "filler").open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        return super().forward(x)


class TakesTwo(Net):
    """Takes whole payloads of two samples only."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(2, 3, 16, 16))


class DiesWhenTried(Net):
    """Ends the process that tries it, as a library with a bug may."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002 - as the others have it
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still there")
