"""Which metrics a sweep is judged by, and what they are called: it depends on its load. Pure."""

from collections.abc import Sequence

from bench.results.metrics import PERCENTILES
from bench.results.summary import Cell, Summary

HEADLINE = {  # the figures of PyTorch's benchmark
    "warmup_latency": "Warm-up latency (s)",
    "average_latency": "Average latency (s)",
    "throughput": "Throughput (samples/s)",
    "gpu_util": "GPU utilization (%)",
}
HIGHER_IS_BETTER = ("throughput", "window_throughput", "goodput", "slo_share", "delivered_rate")
_UNRATED = ("gpu_util", "slo_share")  # neither high nor low is good by itself, or no ratio can be made of it
_OPEN = ("constant", "poisson", "replay", "ramp")


def columns(summary: Summary) -> dict[str, str]:
    """The metrics of the first table and their headings."""
    found = {"warmup_latency": HEADLINE["warmup_latency"], "average_latency": HEADLINE["average_latency"]}
    if percentile := tail_metric(summary.cells):
        found[percentile] = f"{words(percentile)} latency (s)"
    found["throughput"] = HEADLINE["throughput"]
    if "goodput" in summary.metrics:
        found |= {"goodput": "Goodput (samples/s)", "slo_share": "Within SLO (%)"}
    return found | {"gpu_util": HEADLINE["gpu_util"]}


def rated(metric: str) -> bool:
    """Whether one cell can be better than another by it."""
    return metric not in _UNRATED


def tail_metric(cells: Sequence[Cell]) -> str | None:
    """The highest percentile, up to p99, that all cells with a latency of their own support."""
    waiting = [cell for cell in own_latency(cells) if cell.n]
    for name, quantile in sorted(PERCENTILES.items(), key=lambda item: -item[1]):
        if quantile <= 0.99 and waiting and all(f"latency_{name}" in cell.metrics for cell in waiting):
            return f"latency_{name}"
    return None


def latency_metric(cells: Sequence[Cell]) -> str:
    """What stands for the latency of `cells`: a percentile, or the average where they have none in common."""
    return tail_metric(cells) or "average_latency"


def own_latency(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose latency is what a request takes: under load=burst it is the backlog."""
    return [cell for cell in cells if cell.settings.get("load.name") != "burst"]


def own_pace(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose throughput is what the backend can: an open load's is what was asked, while it keeps up."""
    return [cell for cell in cells if cell.settings.get("load.name") not in _OPEN]


def goal(cells: Sequence[Cell]) -> tuple[str, list[Cell]]:
    """The metric by which settings are compared, and the cells that can be compared by it."""
    paced = own_pace(cells)
    return ("throughput", paced) if paced else (latency_metric(cells), list(cells))


def words(metric: str) -> str:
    """A metric's name in a sentence."""
    if metric.startswith("latency_p"):
        return metric.removeprefix("latency_").replace("_", ".")
    return metric.replace("_", " ")
