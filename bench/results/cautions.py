"""Warnings: what a reader of a run's numbers should know. They make no number wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.config import Settings
from bench.results.metrics import Stamps
from bench.results.steadiness import saturated, unsteady
from bench.stamps import COMPLETED, SENT
from bench.telemetry.sampler import Row, seen

_SHORT_NS = 1_000_000_000
_FEW = 30
_OVERHEADS = 20  # of the harness, that a request must take to be more than the harness
_STEADY_LOADS = ("burst", "closed", "constant")  # whose own rate does not change


def cautions(
    settings: Settings,
    measured: Stamps,
    environment: Mapping[str, Any],
    samples: Sequence[Row],
    overhead_us: float | None,
) -> list[str]:
    """All warnings of a run that ended by itself.

    Args:
        measured: the stamps of the measured requests.
        environment: as it was before the run started, and who else was at its `device`.
        overhead_us: what the harness costs for each request, where it was calibrated.
    """
    answered = measured[measured[:, COMPLETED] > 0]
    if not len(answered):
        return []
    start, end = int(answered[:, SENT].min()), int(answered[:, COMPLETED].max())
    return [
        *_short(len(answered), end - start),
        *_harness(_each_us(settings, answered, end - start), overhead_us),
        *_changing(settings, answered),
        *_machine(environment),
        *_gpu(samples, start, end),
    ]


def _short(count: int, span_ns: int) -> list[str]:
    warnings = []
    if span_ns < _SHORT_NS:
        warnings.append(f"short: the measured window took less than {_SHORT_NS / 1e9:g} s")
    if count < _FEW:
        warnings.append(f"short: fewer than {_FEW} measured requests")
    return warnings


def _each_us(settings: Settings, answered: Stamps, span_ns: int) -> float:
    """What a request took: in a burst its share of the window, else from its sending to its answer."""
    if settings.load.name == "burst":
        return span_ns / len(answered) / 1e3
    return float((answered[:, COMPLETED] - answered[:, SENT]).mean()) / 1e3


def _harness(each_us: float, overhead_us: float | None) -> list[str]:
    """A run in which the harness is no small part of what a request costs."""
    if overhead_us is None or each_us >= _OVERHEADS * overhead_us:
        return []
    return [
        f"measures the harness: a request took {each_us:.3g} µs, less than {_OVERHEADS} times the "
        f"{overhead_us:.3g} µs that the harness itself costs"
    ]


def _changing(settings: Settings, answered: Stamps) -> list[str]:
    """A window that was not the same from its start to its end."""
    found: list[object] = []
    if settings.load.name in _STEADY_LOADS:
        found.append(unsteady(answered[:, COMPLETED]))
    if settings.load.is_open:
        found.append(saturated(answered[:, SENT], answered[:, COMPLETED]))
    return [str(one) for one in found if one is not None]


def _machine(environment: Mapping[str, Any]) -> list[str]:
    """What else the machine had to do, and what holds it back."""
    warnings = []
    if (environment.get("device") or {}).get("shared_with"):
        warnings.append("shared device: other runs used it at the same time (allow_shared_device=true)")
    cpu = environment.get("cpu") or {}
    load, cores = environment.get("load_before_start"), cpu.get("cores")
    if load is not None and cores and load > cores:
        warnings.append(f"other load: {load:.3g} processes ran on {cores} cores in the minute before the start")
    if cpu.get("quota"):
        warnings.append(f"CPU quota: this container may use {cpu['quota']:g} cores")
    if cpu.get("governor") not in (None, "performance"):
        warnings.append(f"CPU governor: {cpu['governor']}, not performance, so the clock follows the load")
    battery = environment.get("battery")
    if battery and battery.get("plugged_in") is False:
        warnings.append("battery: the machine was not plugged in")
    return warnings


def _gpu(samples: Sequence[Row], start_ns: int, end_ns: int) -> list[str]:
    """Who else used the GPU, and why it was slowed down."""
    warnings = []
    if others := seen(samples, "other_processes", start_ns, end_ns):
        warnings.append(f"other load: {len(others)} other processes were on the GPU")
    if reasons := seen(samples, "gpu_throttle_reasons", start_ns, end_ns):
        warnings.append(f"throttled: {', '.join(reasons)}")
    return warnings
