"""What a metric is called on a page, and in which unit. Pure."""

from dataclasses import dataclass
from typing import Literal

from bench.results.metrics import PERCENTILES, STAGES

Group = Literal["speed", "latency", "stages", "machine", "other"]

_KNOWN = {
    "throughput": ("Throughput", "samples/s"),
    "window_throughput": ("Throughput while sending", "samples/s"),
    "goodput": ("Goodput, within the SLO", "samples/s"),
    "slo_share": ("Share within the SLO", ""),
    "asked_rate": ("Asked rate", "requests/s"),
    "delivered_rate": ("Delivered rate", "requests/s"),
    "late_share": ("Share sent late", ""),
    "average_latency": ("Average latency", "s"),
    "min_latency": ("Lowest latency", "s"),
    "max_latency": ("Highest latency", "s"),
    "warmup_latency": ("Warm-up latency", "s"),
    "warmup_iters_average_latency": ("Average latency of warm-up requests", "s"),
    "torch_load_time": ("torch.load", "s"),
    "m_compile_time": ("model.compile()", "s"),
    "window": ("Measured window", "s"),
    "drain": ("Last send to last answer", "s"),
    "schedule_delay_max": ("Longest schedule delay", "s"),
    "copy_overlap": ("Copies under a forward pass, share", ""),
    "harness_overhead_us": ("What the harness costs a request", "µs"),
    "energy_j_per_1000_samples": ("Energy of 1000 samples", "J"),
    "peak_allocated_bytes": ("Peak allocated by torch", "bytes"),
    "gpu_util": ("GPU utilization", "%"),
    "gpu_memory_util": ("GPU memory utilization", "%"),
    "gpu_memory_used_bytes": ("GPU memory used", "bytes"),
    "gpu_power_w": ("GPU power", "W"),
    "gpu_energy_j": ("GPU energy", "J"),
    "gpu_sm_clock_mhz": ("GPU SM clock", "MHz"),
    "gpu_temperature_c": ("GPU temperature", "°C"),
    "cpu_util": ("CPU utilization", "%"),
    "frontend_cpu_util": ("Frontend, CPU utilization", "%"),
    "backend_cpu_util": ("Backend, CPU utilization", "%"),
    "frontend_rss_bytes": ("Frontend, resident memory", "bytes"),
    "backend_rss_bytes": ("Backend, resident memory", "bytes"),
    "load1": ("Load average, 1 min", ""),
}
_STAGES = {
    "schedule_delay": "Schedule delay",
    "queue_wait": "Queue wait",
    "h2d": "Copy to device",
    "compute_wait": "Compute wait",
    "compute": "Compute",
    "d2h_wait": "Copy-back wait",
    "d2h": "Copy back",
    "respond": "Respond",
}
_SPEED = ("throughput", "goodput", "slo_share", "rate", "late_share")
_MACHINE = ("gpu_", "cpu_", "frontend_", "backend_", "load1", "energy_", "peak_allocated")
_UNITS = {"_bytes": "bytes", "_util": "%", "_us": "µs", "_w": "W", "_j": "J", "_mhz": "MHz", "_c": "°C"}


@dataclass(frozen=True)
class Label:
    """A metric in words."""

    text: str
    unit: str
    group: Group

    @property
    def heading(self) -> str:
        """`Throughput (samples/s)`."""
        return f"{self.text} ({self.unit})" if self.unit else self.text


def label(metric: str) -> Label:
    """The label of any metric; one that this version does not know goes by its own name."""
    if metric in _KNOWN:
        text, unit = _KNOWN[metric]
        return Label(text, unit, _group(metric))
    base, _, tail = metric.partition("_p") if metric.rpartition("_p")[2][:1].isdigit() else (metric, "", "")
    quantile = f" p{tail.replace('_', '.')}" if f"p{tail}" in PERCENTILES else ""
    if quantile and base == "latency":
        return Label(f"Latency{quantile}", "s", "latency")
    if base == "service_latency":
        return Label(f"Service latency{quantile}", "s", "latency")
    if base in STAGES:
        return Label(f"{_STAGES[base]}{quantile}", "s", "stages")
    suffix = next((suffix for suffix in _UNITS if metric.endswith(suffix)), "")
    words = metric.removesuffix(suffix).replace("_", " ")
    return Label(words[:1].upper() + words[1:], _UNITS.get(suffix, ""), _group(metric))


def stage_label(stage: str) -> str:
    """A stage of a request in words."""
    return _STAGES[stage]


def _group(metric: str) -> Group:
    if metric.startswith(_MACHINE):
        return "machine"
    if any(word in metric for word in _SPEED):
        return "speed"
    return "latency" if "latency" in metric else "other"
