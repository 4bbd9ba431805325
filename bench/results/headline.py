"""Which metrics a sweep is judged by: it depends on its load. Pure."""

from collections.abc import Sequence

from bench.config import OPEN_LOADS
from bench.results.metric_names import metric
from bench.results.metrics import PERCENTILES
from bench.results.summary import Cell, Summary

HEADLINE = ("warmup_latency", "average_latency", "throughput", "gpu_util")  # the figures of PyTorch's benchmark
_NO_RATIO = ("slo_share",)  # shares, of which a ratio says nothing


def columns(summary: Summary) -> list[str]:
    """The metrics of the first table."""
    tail = tail_metric(summary.cells)
    promised = ("goodput", "slo_share") if "goodput" in summary.metrics else ()
    return ["warmup_latency", "average_latency", *([tail] if tail else []), "throughput", *promised, "gpu_util"]


def rated(name: str) -> bool:
    """Whether one cell can be better than another by it."""
    return metric(name).better is not None and name not in _NO_RATIO


def tail_metric(cells: Sequence[Cell]) -> str | None:
    """The highest percentile, up to p99, that all cells with a latency of their own support."""
    return highest_percentile([cell for cell in own_latency(cells) if cell.n])


def highest_percentile(cells: Sequence[Cell]) -> str | None:
    """Of the latency, up to p99, that all `cells` support."""
    names = [f"latency_{name}" for name, quantile in PERCENTILES.items() if quantile <= 0.99]
    shared = [name for name in names if all(name in cell.metrics for cell in cells)]
    return shared[-1] if cells and shared else None


def latency_metric(cells: Sequence[Cell]) -> str:
    """What stands for the latency of `cells`: a percentile, or the average where they have none in common."""
    return tail_metric(cells) or "average_latency"


def own_latency(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose latency is what a request takes: under load=burst it is the backlog."""
    return [cell for cell in cells if cell.settings.get("load.name") != "burst"]


def own_pace(cells: Sequence[Cell]) -> list[Cell]:
    """Those whose throughput is what the backend can: an open load's is what was asked, while it keeps up."""
    return [cell for cell in cells if cell.settings.get("load.name") not in OPEN_LOADS]


def goal(cells: Sequence[Cell]) -> tuple[str, list[Cell]]:
    """The metric by which settings are compared, and the cells that can be compared by it."""
    paced = own_pace(cells)
    return ("throughput", paced) if paced else (latency_metric(cells), list(cells))
