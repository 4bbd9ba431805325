"""The device: which one, how its memory is used, and how a forward pass runs on it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

from bench.backend.engine import Forward, Frame
from bench.child import Link
from bench.config import Device, Settings
from bench.errors import BenchError
from bench.telemetry.control_groups import usable_cores

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
_PRIMING_PASSES = 3  # CUDA graphs warm up, record and replay


def find_device(wanted: Device) -> torch.device:
    """The device that the settings mean. Raises BenchError where it is not there."""
    count = torch.cuda.device_count()
    if wanted.name == "cpu" or (wanted.name == "auto" and count == 0):
        return torch.device("cpu")
    if count == 0:
        raise BenchError("device=cuda: torch sees no CUDA device here. Set device=cpu or device=auto")
    if wanted.index >= count:
        raise BenchError(
            f"device.index={wanted.index}: there are {count} CUDA devices. Set a number from 0 to {count - 1}"
        )
    return torch.device("cuda", wanted.index)


def uuid(device: torch.device) -> str | None:
    """The device's UUID, by which NVML knows it; None on the CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def identify(wanted: Device, link: Link) -> None:
    """Body of a process that tells which device is meant: its UUID, or `cpu`. It allocates nothing there."""
    link.send("done", uuid(find_device(wanted)) or "cpu")


def intraop_threads(settings: Settings) -> int:
    """Threads of one forward pass on the CPU: all cores, divided among the passes that run at once."""
    return settings.stream_layout.intraop_threads or max(1, usable_cores() // settings.compute_threads)


@contextmanager
def thread_state(device: torch.device, threads: int) -> Iterator[None]:
    """What each thread that touches the model must set for itself: torch keeps these a thread each."""
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with torch.inference_mode():
        yield


def pin(memory: torch.Tensor) -> None:
    """Register shared memory as pinned, in place, so that copies from and to it are asynchronous."""
    size = memory.numel() * memory.element_size()
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch does not say
    status = runtime.cudaHostRegister(memory.data_ptr(), size, 0)
    if int(status) != 0:
        raise BenchError(
            # Not of RLIMIT_MEMLOCK: the driver pins pages itself and does not ask for it.
            f"cudaHostRegister of {size / 2**20:.0f} MiB of host memory failed with {status}. "
            "Lower payloads or batch_size, or set queue=torch"
        )


def direct(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """What calling the module comes to, without the microsecond in which torch looks for hooks that are not there."""
    owners = ((model, _HOOKS), (torch.nn.modules.module, _GLOBAL_HOOKS))
    hooked = any(getattr(owner, name) for owner, names in owners for name in names)
    if hooked or type(model).__call__ is not torch.nn.Module.__call__:
        return model
    return model._compiled_call_impl or model.forward


class Eager:
    """The module called as it is, compiled or not."""

    def __init__(self, model: torch.nn.Module, example: torch.Tensor, *, copies: bool) -> None:
        self.model = direct(model)
        self._example = example
        self._copies = copies

    def __call__(self, frame: Frame) -> None:
        """On a device the answer goes to memory that the layout owns: the next pass may reuse the model's own."""
        if self._copies:
            frame.output.copy_(self.model(frame.input), non_blocking=True)
        else:
            frame.output = self.model(frame.input)

    def prime(self) -> None:
        """Run it on an input that nobody else writes."""
        for _ in range(_PRIMING_PASSES if self._copies else 1):
            self.model(self._example)
        if self._copies:
            torch.cuda.current_stream().synchronize()


class CompilerGraphs(Eager):
    """A module compiled with the compiler's own CUDA graphs, of which there is one set for all threads.

    A replay overwrites the graphs' one input and output, so the passes take turns: on the host by a lock, on the
    device by an event that each leaves behind. Source: torch/_inductor/cudagraph_trees.py, whose manager belongs to
    the first caller.
    """

    def __init__(self, model: torch.nn.Module, example: torch.Tensor, turn: Lock, last: Any) -> None:
        super().__init__(model, example, copies=True)
        self._turn = turn
        self._last = last

    def __call__(self, frame: Frame) -> None:
        """After the pass before it, whichever thread and stream that was on."""
        with self._turn:
            self._last.wait()
            super().__call__(frame)
            self._last.record()


class CudaGraph:
    """The module's forward pass captured once as a CUDA graph, with an input and an output of its own."""

    def __init__(self, model: torch.nn.Module, example: torch.Tensor) -> None:
        self.model = model
        self._input = example.clone()
        self._graph = torch.cuda.CUDAGraph()
        self._output: Any = None

    def __call__(self, frame: Frame) -> None:
        """Copy in, replay, copy out, all on this thread's stream."""
        self._input.copy_(frame.input, non_blocking=True)
        self._graph.replay()
        frame.output.copy_(self._output, non_blocking=True)

    def prime(self) -> None:
        """Warm up and capture, on this thread's stream."""
        for _ in range(_PRIMING_PASSES):
            self.model(self._input)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self._output = self.model(self._input)


def forwards(settings: Settings, model: torch.nn.Module, example: torch.Tensor, device_module: Any) -> list[Forward]:
    """The forward pass of each compute thread, on the device of `example`."""
    count = settings.compute_threads
    if example.device.type == "cpu":
        return [Eager(model, example, copies=False) for _ in range(count)]
    if settings.stream_layout.cuda_graph:
        return [CudaGraph(model, example) for _ in range(count)]
    if settings.compile and settings.compile_mode in ("reduce-overhead", "max-autotune"):
        # Captured here: another thread's first pass would make cuDNN's handle of that thread, which no capture allows.
        Eager(model, example, copies=True).prime()
        turn, last = Lock(), device_module.Event()
        return [CompilerGraphs(model, example, turn, last) for _ in range(count)]
    return [Eager(model, example, copies=True) for _ in range(count)]


def new_frame_for(example: torch.Tensor, output: torch.Tensor, device_module: Any) -> Callable[[], Frame]:
    """A maker of frames for inputs and outputs like these, which lie on the device."""
    if example.device.type == "cpu":
        return lambda: Frame(device_module, own_input=None, own_output=None)
    return lambda: Frame(device_module, own_input=torch.empty_like(example), own_output=torch.empty_like(output))


def use_compile_cache(directory: str) -> None:
    """Let the compilers of this process keep what they make in `directory`. Call before anything compiles."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
    os.environ["TRITON_CACHE_DIR"] = os.path.join(directory, "triton")
