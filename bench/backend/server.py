"""The backend process: reads requests, infers, answers, and says at the end what it really ran."""

import sys
import time
from contextlib import AbstractContextManager
from typing import Any

import torch

from bench.backend import device as devices
from bench.backend import out_of_memory
from bench.backend.checkpoints import locate
from bench.backend.engine import DeviceEngine, HostEngine
from bench.backend.layouts import LAYOUTS, Layout
from bench.backend.models import build, check_answer
from bench.backend.references import references
from bench.child import Link
from bench.clock import MARK
from bench.payloads import pool_of
from bench.queues.base import BEGIN, END, Server
from bench.queues.digest import output_plan
from bench.queues.shared_memory import output_slots
from bench.setup import RunSetup
from bench.stamps import RECEIVED, REPLIED, WIDTH

_SMALL_BYTES = 65_536  # an answer that is copied within some ten microseconds
_READ_S = 1.0  # how long one read waits before it is asked again
_MARKS = 5  # the first is late by what it costs to make the first, another may be late by chance


def serve(setup: RunSetup, link: Link) -> None:
    """Body of the backend process."""
    devices.use_compile_cache(setup.compile_cache)
    backend = Backend(setup, link)
    link.send("ready", devices.uuid(backend.device))
    try:
        backend.run()
        link.send("phase", "check")
        link.send("done", backend.attest())
    except Exception as error:
        if (explained := backend.explained(error)) is not error:
            raise explained from error
        raise
    backend.server.close()


class Backend:
    """One backend: set up by its first request, then served by a stream layout."""

    def __init__(self, setup: RunSetup, link: Link) -> None:
        self.settings = setup.settings
        self.trace = setup.trace
        self.references = setup.references
        self.link = link
        self.device = devices.find_device(self.settings.device)
        self.threads = devices.intraop_threads(self.settings)
        self.view = setup.board.open()
        self.pool = pool_of(self.view.payloads, self.settings)
        self.server: Server = setup.queue.server(self.view, self.pool, self.settings.stall_timeout_s)
        self.metrics: dict[str, float] = {}
        self.compiled_before_window = 0
        self.profiler: Any = None
        self.model: torch.nn.Module  # once it is loaded
        self.output: torch.Tensor  # one answer, for its shape and type
        self.layout: Layout | None = None

    def thread_state(self) -> AbstractContextManager[None]:
        """See `device.thread_state`."""
        return devices.thread_state(self.device, self.threads)

    def explained(self, error: BaseException) -> BaseException:
        """`error`, or what it says of memory that ran out."""
        return out_of_memory.explained(error, self.settings, self.device, getattr(self, "model", None))

    def _failed(self, error: BaseException) -> None:
        """Tell what a thread of the layout raised."""
        self.link.fail(self.explained(error))

    def run(self) -> None:
        """Read until END. The first request sets everything up; BEGIN opens the measured window."""
        module = torch.get_device_module(self.device)
        with self.thread_state(), module.stream(module.Stream()):
            while True:
                requests = self.server.receive(_READ_S)
                if not requests:
                    continue
                # A control message comes alone: the frontend sends it when nothing is in flight.
                index, host = requests[0]
                if index == END:
                    break
                if index == BEGIN:
                    self._begin()
                elif self.layout is None:
                    self._first(index, host)
                    self.layout = self._start_layout(host)
                    self.layout.serve(requests[1:])
                else:
                    self.layout.serve(requests)
            if self.layout is not None:
                self.layout.stop()
            self._end()

    def _first(self, index: int, host: Any) -> None:
        """The cold first request: load, compile and answer. Its stages are not told apart."""
        stamps, row = self.view.stamps, index * WIDTH
        stamps[row + RECEIVED] = time.perf_counter_ns()
        self.link.send("phase", "load")
        self.model, self.metrics = build(self.settings, self.device, locate(self.settings))
        if self.settings.compile:
            self.link.send("phase", "compile")
            started = time.perf_counter()
            self.model.compile(mode=self.settings.compile_mode)
            self.metrics["m_compile_time"] = time.perf_counter() - started
        output = self.model(host.to(self.device))
        check_answer(self.settings, output)
        self.output = output.contiguous().clone()
        size = output.numel() * output.element_size()
        self.server.allocate(self.output, output_slots(self.settings, size))
        buffer = self.server.reserve()
        buffer.tensor.copy_(output)
        stamps[row + REPLIED] = time.perf_counter_ns()
        self.server.respond(index, buffer)

    def _start_layout(self, host: Any) -> Layout:
        """Pin what is shared, make the layout's buffers, prime its threads; the first answer has left."""
        self.link.send("phase", "warm-up")
        settings, cuda = self.settings, self.device.type == "cuda"
        shared = settings.queue.name == "shared_memory"
        if cuda and shared:
            devices.pin(torch.frombuffer(self.view.payload_pool, dtype=torch.uint8))
            devices.pin(self.server.outputs)  # type: ignore[attr-defined]  # the shared-memory queue has them
        example = host.to(self.device)
        module: Any = torch.get_device_module(self.device)
        parts = (
            self.server,
            module,
            self.view.stamps,
            self.view.workers,
            devices.forwards(settings, self.model, example, module),
            devices.new_frame_for(example, self.output, module),
            self.thread_state,
            self._failed,
            settings.stall_timeout_s,
        )
        is_small = self.output.numel() * self.output.element_size() <= _SMALL_BYTES
        engine = DeviceEngine(*parts, pins=not shared) if cuda else HostEngine(*parts, gathers=is_small)
        layout = LAYOUTS[settings.stream_layout.name](engine, settings.stream_layout.buffers_per_worker)
        if cuda:  # what was made here must be there before other threads' streams touch it
            torch.cuda.current_stream(self.device).synchronize()
        layout.start()
        return layout

    def _begin(self) -> None:
        """Everything is at rest: the measured window starts with the answer to BEGIN."""
        self.compiled_before_window = _compilations()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        if self.trace is not None:
            self.profiler = _profiler()
            self.profiler.start()
            _mark_the_time()
        self.server.respond(BEGIN, None)

    def _end(self) -> None:
        """The window is over."""
        if self.profiler is not None:
            self.profiler.stop()
            self.profiler.export_chrome_trace(str(self.trace))

    def attest(self) -> dict[str, Any]:
        """What really ran, and what the answers must have been."""
        assert self.layout is not None, "END comes after the first request"
        parameter = next(self.model.parameters(), None)
        compiled = _compilations()
        attested: dict[str, Any] = {
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None,
            "device_uuid": devices.uuid(self.device),
            "dtype": _name(self.output.dtype if parameter is None else parameter.dtype),
            "input_shape": list(self.pool[0].shape),
            "output_shape": list(self.output.shape),
            "output_dtype": _name(self.output.dtype),
            "compiled": self.model._compiled_call_impl is not None,
            "compilations": compiled,
            "compilations_in_window": compiled - self.compiled_before_window,
            "stream_layout": type(self.layout).__name__.lower(),
            "compute_threads": self.layout.workers,
            "streams": self.layout.streams,
            "buffers": len(self.layout.frames) if self.device.type == "cuda" else 0,
            "intraop_threads": torch.get_num_threads(),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(self.device)
            if self.device.type == "cuda"
            else None,
        }
        if self.settings.verify:
            if self.references is None:
                with self.thread_state():
                    self.references = references(self.model, self.pool, output_plan(self.view.control), self.device)
            attested["references"] = self.references
        return {"backend": attested, "metrics": self.metrics}


def _compilations() -> int:
    """Graphs that the compiler has made in this process so far."""
    if "torch._dynamo" not in sys.modules:
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _profiler() -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    try:
        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)  # the layout's threads, too
    except TypeError:  # an older torch: this thread's operations only
        config = None
    return profile(activities=activities, experimental_config=config)


def _mark_the_time() -> None:
    """Leave marks in the profile that name the time: its own clock is another one than the stamps'."""
    for _ in range(_MARKS):
        with torch.profiler.record_function(f"{MARK}{time.perf_counter_ns()}"):
            pass


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
