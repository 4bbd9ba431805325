"""Typed settings: what the YAML may say, the checks of it, and the identity of a run.

The YAML files under `conf/` hold the values and their comments; the dataclasses here hold types and
ranges. `Settings.from_mapping` turns the one into the other and names every problem at once.
"""

import functools
import hashlib
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from bench.conversion import Choice, Range, build
from bench.errors import ConfigError
from bench.invocation import RETRIED

OPEN_LOADS = ("constant", "poisson", "replay", "ramp")  # requests go at planned times, whatever became of others
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}  # itemsize in bytes


@dataclass(frozen=True)
class Model:
    """What is served. `target` is the user's class; without it `name` is torchvision's."""

    name: str
    target: str | None  # `_target_` in YAML
    args: dict[str, Any]
    weights: str
    input_shape: Annotated[list[int], Range(1, 2**20)]
    dtype: Annotated[str, Choice(*DTYPES)]
    channels_last: bool


@dataclass(frozen=True)
class StreamLayout:
    """How one backend turns requests into responses."""

    name: Annotated[str, Choice("serial", "async", "pipelined")]
    buffers_per_worker: Annotated[int, Range(1, 1024)]
    intraop_threads: Annotated[int | None, Range(1, 4096)]
    cuda_graph: bool


@dataclass(frozen=True)
class Queue:
    """What joins the two processes."""

    name: Annotated[str, Choice("shared_memory", "torch")]


@dataclass(frozen=True)
class Load:
    """When requests are sent. Each pattern has its own keys; `bench.frontend.plan` makes the times of it."""

    name: Annotated[str, Choice("burst", "closed", *OPEN_LOADS)]
    clients: Annotated[int | None, Range(1, 100_000)] = None
    think_ms: Annotated[float, Range(0, 10**7)] = 0.0
    rate: Annotated[float | None, Range(1e-3, 1e7)] = None
    file: str | None = None
    steps: list[dict[str, Any]] | None = None
    random: bool = False

    @property
    def is_open(self) -> bool:
        """Whether requests are sent at planned times, whatever became of those before."""
        return self.name in OPEN_LOADS


@dataclass(frozen=True)
class Device:
    """Where the model runs."""

    name: Annotated[str, Choice("auto", "cpu", "cuda")]
    index: Annotated[int, Range(0, 1023)]


@dataclass(frozen=True)
class Slo:
    """What the user promises."""

    latency_ms: Annotated[float | None, Range(1e-3, 10**7)]


@dataclass(frozen=True)
class Precision:
    """How certain a cell's mean must be; a sweep goes on until it is."""

    relative_ci: Annotated[float | None, Range(1e-4, 1)]
    metric: str
    max_repeats: Annotated[int, Range(2, 10_000)]
    max_minutes: Annotated[float | None, Range(0.01, 10**6)]


@dataclass(frozen=True)
class Timeline:
    """The picture of a run's requests."""

    max_requests: Annotated[int | None, Range(0, 10**6)]


@dataclass(frozen=True)
class Settings:
    """All that is asked of one run. Field for field the keys of `conf/config.yaml`."""

    model: Model
    stream_layout: StreamLayout
    queue: Queue
    load: Load
    device: Device
    slo: Slo
    precision: Precision
    timeline: Timeline
    experiment: str
    batch_size: Annotated[int, Range(1, 2**20)]
    compile: bool
    compile_mode: Annotated[str, Choice("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")]
    compile_cache: Annotated[str, Choice("cold", "warm")]
    num_workers: Annotated[int, Range(1, 1024)]
    num_iters: Annotated[int | None, Range(1, 10**8)]
    duration_s: Annotated[float | None, Range(1e-3, 10**7)]
    warmup_iters: Annotated[int, Range(0, 10**8)]
    payloads: Annotated[int, Range(1, 65536)]
    repeat: Annotated[int, Range(0, 10**6)]
    seed: Annotated[int, Range(0, 2**63 - 1)]
    verify: bool
    telemetry: bool
    profile: bool
    stall_timeout_s: Annotated[float, Range(0.1, 10**7)]
    device_wait_s: Annotated[float, Range(0, 10**7)]
    allow_shared_device: bool
    skip_larger: bool
    model_dir: str | None
    cache_dir: str | None
    keep_checkpoint: bool
    output_dir: str
    resume: str | None
    retry: Annotated[list[str] | None, Choice(*RETRIED)]
    plots: bool
    dry_run: bool
    progress: bool

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Settings":
        """Check `values`, resolved and as plain containers, and return them typed.

        Raises:
            ConfigError: with a line for each key that is wrong.
        """
        problems: list[str] = []
        settings = build(cls, values, "", problems)
        if not problems:
            problems = _contradictions(settings)
        if problems:
            raise ConfigError(problems)
        return typing.cast("Settings", settings)

    def as_mapping(self) -> dict[str, Any]:
        """The same values as plain containers, keyed as in YAML."""
        values = asdict(self)
        values["model"]["_target_"] = values["model"].pop("target")
        return values

    @functools.cached_property
    def cell(self) -> str:
        """Identity of all runs that measure the same thing: a hash of every setting that can change a number."""
        values = self.as_mapping()
        for key in (*NO_NUMBER, "repeat"):
            del values[key]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """Identity of one run: its cell and its repeat."""
        return f"{self.cell}-{self.repeat}"

    @property
    def compute_threads(self) -> int:
        """Threads that run the forward pass at the same time."""
        return 1 if self.stream_layout.name == "serial" else self.num_workers

    @property
    def streams(self) -> int:
        """The reader's stream, one for each worker, and the pipelined layout's for copies out."""
        extra = {"serial": 0, "async": self.num_workers, "pipelined": self.num_workers + 1}
        return 1 + extra[self.stream_layout.name]

    @property
    def buffers(self) -> int:
        """Requests that may be in flight within the backend."""
        return self.compute_threads * (
            self.stream_layout.buffers_per_worker if self.stream_layout.name == "pipelined" else 1
        )

    @property
    def payload_shape(self) -> tuple[int, ...]:
        """Shape of one request: `(batch_size, *input_shape)`."""
        return (self.batch_size, *self.model.input_shape)

    @property
    def payload_bytes(self) -> int:
        """Size of one request's tensor."""
        return math.prod(self.payload_shape) * DTYPES[self.model.dtype]


# Keys that change no number: they are no part of a cell's identity.
NO_NUMBER = (
    "precision",
    "timeline",
    "experiment",
    "stall_timeout_s",
    "device_wait_s",
    "skip_larger",
    "model_dir",
    "cache_dir",
    "keep_checkpoint",
    "output_dir",
    "resume",
    "retry",
    "plots",
    "dry_run",
    "progress",
)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one flat mapping with dotted keys; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = None if isinstance(value, Mapping) else value
    return flat


def _contradictions(s: Settings) -> list[str]:
    """Keys that are right one by one and wrong together."""
    problems = []
    if s.retry is not None and s.resume is None:
        problems.append(f"retry={','.join(s.retry)}: of which sweep? Set resume=DIR or resume=last, or leave it out")
    needed = {"closed": "clients", "constant": "rate", "poisson": "rate", "replay": "file", "ramp": "steps"}
    key = needed.get(s.load.name)
    if key is not None and getattr(s.load, key) is None:
        problems.append(f"load.{key}=null: load={s.load.name} needs it. Set load.{key}=VALUE")
    if s.num_iters is None and s.duration_s is None and s.load.name not in ("replay", "ramp"):
        problems.append("num_iters=null, duration_s=null: nothing ends the load. Set num_iters=100 or duration_s=10")
    if s.num_iters is None and s.load.name == "burst":
        problems.append("num_iters=null: load=burst sends all requests at once. Set num_iters=100, or another load")
    if s.stream_layout.cuda_graph and s.compile:
        problems.append(
            "stream_layout.cuda_graph=true: only where compile=false. "
            "Set compile=false, or compile_mode=reduce-overhead for the compiler's own CUDA graphs"
        )
    if s.stream_layout.cuda_graph and s.device.name == "cpu":
        problems.append("stream_layout.cuda_graph=true: needs a CUDA device. Set device=cuda or device=auto")
    if s.model.channels_last and len(s.model.input_shape) != 3:
        problems.append(
            f"model.channels_last=true: needs an input_shape of 3 numbers (channels, height, width), "
            f"not {s.model.input_shape}. Set model.channels_last=false"
        )
    if s.model.target is not None and s.model.weights == "pretrained":
        problems.append("model.weights=pretrained: only for torchvision's models. Set model.weights=random or a path")
    return problems
