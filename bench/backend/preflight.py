"""Preflight: what needs torch to check, for all cells of a sweep at once, in a process of its own."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from bench.backend import device as devices
from bench.backend import out_of_memory, toolchain
from bench.backend.checkpoints import Prepared, cache_directory, prepare
from bench.backend.models import build, check_answer
from bench.child import Link
from bench.config import Settings
from bench.errors import BenchError, OutOfMemory
from bench.room import unwritable
from bench.setup import Checked
from bench.sizes import Sizes
from bench.telemetry.control_groups import memory

_FORWARD_S = 30.0  # how long a model is tried; one that takes longer is let pass untried
_PAYLOAD_S = 5.0  # how long the whole payload may take, as one sample of it tells
_PAYLOAD_SHARE = 64  # of the free memory a payload may have, as activations are tens of times as large


class _TooSlow(BaseException):
    """The time for trying a model is over. No Exception, since a model may catch those."""


def preflight(cells: list[Settings], link: Link) -> None:
    """Body of the preflight process.

    Sends `done` with `(problems, checked)`: each problem's text with the cells that have it, and what was found
    out about each cell without one, by its identity.
    """
    problems: dict[str, list[str]] = {}
    checked: dict[str, Checked] = {}
    models: dict[str, _Model] = {}
    for settings in sorted(cells, key=lambda cell: cell.batch_size):  # the smallest batch is the one that is tried
        found, faults = _check(settings, models, link)
        for fault in faults:
            problems.setdefault(fault, []).append(settings.cell)
        if found is not None:
            checked[settings.cell] = found
    link.send("done", (problems, checked))


def _check(settings: Settings, models: "dict[str, _Model]", link: Link) -> tuple[Checked | None, list[str]]:
    """What was found out about one cell, and every problem of it."""
    try:
        device = devices.find_device(settings.device)
    except BenchError as error:
        return None, [str(error)]
    faults = []
    if settings.stream_layout.cuda_graph and device.type != "cuda":
        faults.append("stream_layout.cuda_graph=true: needs a CUDA device, and torch sees none here. Set it to false")
    if settings.compile and (lacks := toolchain.missing(device)):
        faults.append(f"compile=true: needs {' and '.join(lacks)}. Install that, or set compile=false")
    key = repr((settings.model, settings.seed, settings.model_dir, settings.cache_dir, device))
    if key not in models:
        models[key] = _Model.tried(settings, device, link)
    model = models[key]
    if model.faults or model.prepared is None:
        return None, [*faults, *model.faults]
    free = None
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what trying the models has left there is no run's
        free = torch.cuda.mem_get_info(device)[0]
    sizes = Sizes(str(device), model.parameter_bytes, model.output_bytes(settings.batch_size), free)
    return Checked(sizes, model.prepared), faults


class _Model:
    """One model as far as it could be tried: all cells that serve it share this."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.prepared: Prepared | None = None
        self.parameter_bytes = 0
        self.output: torch.Tensor | None = None  # of `rows` samples; None where it was not tried to the end
        self.rows = 0

    @classmethod
    def tried(cls, settings: Settings, device: torch.device, link: Link) -> "_Model":
        """Fetch or make the checkpoint, build the model and try it on the payload of `settings`."""
        made = cls()
        cache = cache_directory(settings)
        if (fault := unwritable(cache)) is not None:
            made.faults.append(f"cache_dir={cache}: cannot be written ({fault}). Set cache_dir to another directory")
            return made

        def report(name: str, done: int, total: int | None) -> None:
            link.send("download", (name, done, total))

        link.send("trying", settings.model.target or settings.model.name)
        try:
            made.prepared = prepare(settings, progress=report)
            made._try(settings, device)
        except OutOfMemory:
            pass  # a failed cell of the sweep, not a sweep that cannot be run
        except BenchError as error:
            made.faults.extend(str(error).splitlines())
        return made

    def output_bytes(self, batch_size: int) -> int | None:
        """Size of an answer to `batch_size` samples: in proportion, where the first dimension is the batch."""
        if self.output is None:
            return None
        size = self.output.numel() * self.output.element_size()
        by_row = self.output.dim() > 0 and self.output.shape[0] == self.rows
        return size // self.rows * batch_size if by_row else size

    def _try(self, settings: Settings, device: torch.device) -> None:
        model: torch.nn.Module | None = None
        try:
            model, _ = build(settings, device, self.prepared.path if self.prepared else None)
            self.parameter_bytes = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
            with _time_limit(_FORWARD_S), torch.inference_mode():
                output = self._forward(model, settings, device)
        except _TooSlow:
            return
        except BenchError:
            raise
        except Exception as error:
            if isinstance(explained := out_of_memory.explained(error, settings, device, model), OutOfMemory):
                raise explained from error
            raise BenchError(self._fault(settings, model, error)) from error
        check_answer(settings, output)
        self.output = output.detach().to("meta")

    def _fault(self, settings: Settings, model: torch.nn.Module | None, error: Exception) -> str:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        if model is None:
            return f"model.name={settings.model.name}: cannot be built: {said}"
        shape = (self.rows, *settings.model.input_shape)
        return (
            f"model.name={settings.model.name}: its forward pass fails on an input of shape {shape}, "
            f"{settings.model.dtype}: {said}. Set model.input_shape and model.dtype to what it takes"
        )

    def _forward(self, model: torch.nn.Module, settings: Settings, device: torch.device) -> Any:
        """The answer to one sample, and to the whole payload where that takes seconds or one sample did not work."""
        started = time.monotonic()
        self.rows = 1
        try:
            output = model(_zeros(settings, 1, device))
        except Exception:  # a model may be made for whole payloads only: its answer to one decides
            if settings.batch_size == 1:
                raise
        else:
            is_long = (time.monotonic() - started) * settings.batch_size > _PAYLOAD_S
            is_large = settings.payload_bytes > memory()["available_bytes"] // _PAYLOAD_SHARE
            if settings.batch_size == 1 or is_long or is_large:
                return output
        self.rows = settings.batch_size
        return model(_zeros(settings, self.rows, device))


def _zeros(settings: Settings, rows: int, device: torch.device) -> torch.Tensor:
    shape = (rows, *settings.model.input_shape)
    zeros = torch.zeros(shape, dtype=getattr(torch, settings.model.dtype), device=device)
    return zeros.contiguous(memory_format=torch.channels_last) if settings.model.channels_last else zeros


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_TooSlow` in the main thread after so long, as soon as Python code runs there."""

    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
