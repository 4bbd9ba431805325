"""Every metric of a record: what people call it, its unit, and which way is better. Pure.

How each is computed is in `metrics`, `stages`, `load`, `overlap` and `bench.telemetry`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from bench.results.metrics import PERCENTILES

Group = Literal["speed", "latency", "stages", "machine", "other"]
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """A metric in words.

    Attributes:
        unit: empty for a share or a plain count.
        better: None where neither high nor low is good by itself.
        plain: of a stage, what goes on in it, where the title does not say it.
    """

    name: str
    title: str
    unit: str
    group: Group
    better: Better | None = None
    plain: str = ""

    @property
    def heading(self) -> str:
        """`Throughput (samples/s)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def explained(self) -> str:
        """A stage for somebody who sees its picture only: `Compute (forward pass)`."""
        return f"{self.title} ({self.plain})" if self.plain else self.title

    @property
    def words(self) -> str:
        """In a sentence: `average latency`, `p99`."""
        short = self.title.removeprefix("Latency ")
        return short if short[:2].isupper() else short[:1].lower() + short[1:]


METRICS = {
    metric.name: metric
    for metric in (
        Metric("throughput", "Throughput", "samples/s", "speed", "higher"),
        Metric("window_throughput", "Throughput while sending", "samples/s", "speed", "higher"),
        Metric("goodput", "Goodput within SLO", "samples/s", "speed", "higher"),
        Metric("slo_share", "Within SLO", "", "speed", "higher"),
        Metric("asked_rate", "Asked rate", "requests/s", "speed"),
        Metric("delivered_rate", "Delivered rate", "requests/s", "speed", "higher"),
        Metric("late_share", "Share sent late", "", "speed", "lower"),
        Metric("latency", "Latency", "s", "latency", "lower"),
        Metric("average_latency", "Average latency", "s", "latency", "lower"),
        Metric("min_latency", "Lowest latency", "s", "latency", "lower"),
        Metric("max_latency", "Highest latency", "s", "latency", "lower"),
        Metric("warmup_latency", "Warm-up latency", "s", "latency", "lower"),
        Metric("warmup_iters_average_latency", "Average latency of warm-up requests", "s", "latency", "lower"),
        Metric("service_latency", "Service latency", "s", "latency", "lower"),
        Metric("schedule_delay", "Schedule delay", "s", "stages", "lower", "client late"),
        Metric("schedule_delay_max", "Longest schedule delay", "s", "stages", "lower"),
        Metric("queue_wait", "Queue wait", "s", "stages", "lower", "for the backend"),
        Metric("h2d", "Copy to the device", "s", "stages", "lower"),
        Metric("compute_wait", "Compute wait", "s", "stages", "lower", "for a worker"),
        Metric("compute", "Compute", "s", "stages", "lower", "forward pass"),
        Metric("d2h_wait", "Copy-back wait", "s", "stages", "lower"),
        Metric("d2h", "Copy back", "s", "stages", "lower"),
        Metric("respond", "Respond", "s", "stages", "lower", "answer on its way"),
        Metric("gpu_util", "GPU utilization", "%", "machine"),
        Metric("gpu_memory_util", "GPU memory utilization", "%", "machine"),
        Metric("gpu_memory_used_bytes", "GPU memory used", "bytes", "machine", "lower"),
        Metric("gpu_power_w", "GPU power", "W", "machine", "lower"),
        Metric("gpu_energy_j", "GPU energy", "J", "machine", "lower"),
        Metric("energy_j_per_1000_samples", "Energy of 1000 samples", "J", "machine", "lower"),
        Metric("gpu_sm_clock_mhz", "GPU SM clock", "MHz", "machine"),
        Metric("gpu_temperature_c", "GPU temperature", "°C", "machine", "lower"),
        Metric("peak_allocated_bytes", "Peak allocated by torch", "bytes", "machine", "lower"),
        Metric("cpu_util", "CPU utilization", "%", "machine"),
        Metric("frontend_cpu_util", "Frontend, CPU utilization", "%", "machine"),
        Metric("backend_cpu_util", "Backend, CPU utilization", "%", "machine"),
        Metric("frontend_rss_bytes", "Frontend, resident memory", "bytes", "machine", "lower"),
        Metric("backend_rss_bytes", "Backend, resident memory", "bytes", "machine", "lower"),
        Metric("load1", "Load average, 1 min", "", "machine"),
        Metric("torch_load_time", "torch.load", "s", "other", "lower"),
        Metric("m_compile_time", "model.compile()", "s", "other", "lower"),
        Metric("window", "Measured window", "s", "other"),
        Metric("drain", "Last send to last answer", "s", "other", "lower"),
        Metric("copy_overlap", "Copies under a forward pass, share", "", "other", "higher"),
        Metric("compute_concurrency", "Forward passes at a time", "", "other"),
        Metric("harness_overhead_us", "What the harness costs a request", "µs", "other", "lower"),
    )
}


def metric(name: str) -> Metric:
    """Any metric, percentiles of latencies and stages included; one that is not known goes by its own name."""
    if name in METRICS:
        return METRICS[name]
    for label in PERCENTILES:
        whole = METRICS.get(name.removesuffix(f"_{label}"))
        if whole is not None and whole.group in ("latency", "stages"):
            return replace(whole, name=name, title=f"{whole.title} {label.replace('_', '.')}")
    return Metric(name, name.replace("_", " ").capitalize(), "", "other")
