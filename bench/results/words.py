"""Settings as people say them: `batch 128`, `compiled`, `4 workers`. Pure."""

from collections.abc import Mapping
from typing import Any

from bench.results.text import shown

_MOST = 60  # characters of a user's text in a sentence
_FLAGS = {
    "compile": ("eager", "compiled"),
    "model.channels_last": ("channels first", "channels last"),
    "stream_layout.cuda_graph": ("no CUDA graph", "CUDA graph"),
}
_NUMBERS = {
    "batch_size": "batch {}",
    "load.rate": "{} requests/s",
    "load.think_ms": "{} ms of thinking",
    "slo.latency_ms": "SLO {} ms",
    "duration_s": "{} s",
}
_COUNTS = {
    "num_workers": "worker",
    "load.clients": "client",
    "num_iters": "request",
    "warmup_iters": "warm-up request",
    "payloads": "payload",
    "stream_layout.intraop_threads": "intra-op thread",
}
_TEXTS = {
    "experiment": "experiment {}",
    "model": "model {}",
    "stream_layout": "layout {}",
    "queue": "queue {}",
    "load": "load {}",
    "device": "device {}",
    "model.dtype": "{}",
    "compile_mode": "compile mode {}",
    "compile_cache": "{} compile cache",
}


def setting(axis: str, value: Any) -> str:
    """One setting; `axis=value` where there are no words for it."""
    if axis in _FLAGS and isinstance(value, bool):
        return _FLAGS[axis][value]
    text = f"{value:g}" if isinstance(value, float) else short(shown(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if axis in _COUNTS:
            return f"{text} {_COUNTS[axis]}{'s' * (value != 1)}"
        if axis in _NUMBERS:
            return _NUMBERS[axis].format(text)
    if axis in _TEXTS and isinstance(value, str):
        return _TEXTS[axis].format(text)
    return f"{short(axis)}={text}"


def settings(place: Mapping[str, Any]) -> str:
    """All axes of a cell. A key of another cell's load (`load.rate` under load=closed) says nothing of this one."""
    said = {axis: value for axis, value in place.items() if value is not None or not axis.startswith("load.")}
    return ", ".join(setting(axis, value) for axis, value in said.items())


def short(text: str) -> str:
    """`text` on one line, cut where it is long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MOST else line[: _MOST - 1] + "…"
