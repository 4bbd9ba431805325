"""What the load asked and what it got, from the stamps. Pure."""

import numpy as np
import numpy.typing as npt

from bench.config import Settings
from bench.results.metrics import Stamps, answered, window_metrics
from bench.results.pace import behind
from bench.stamps import COMPLETED, INTENDED, SENT


def load_metrics(settings: Settings, stamps: Stamps) -> dict[str, float]:
    """What the load asked and got, from the measured requests. Absent where it means nothing.

    `window_throughput` counts the answers that came while requests were still sent, `drain` is the
    time from the last send to the last answer, `goodput` (samples/s) and `slo_share` are of the
    requests within `slo.latency_ms`.
    """
    measured = answered(stamps)
    if not len(measured):
        return {}
    first, last = int(measured[:, SENT].min()), int(measured[:, SENT].max())
    end = int(measured[:, COMPLETED].max())
    metrics = {"drain": (end - last) / 1e9}
    if settings.load.name != "burst" and last > first:
        within = int((measured[:, COMPLETED] <= last).sum())
        metrics["window_throughput"] = within * settings.batch_size / ((last - first) / 1e9)
    if settings.load.is_open:
        pace = behind(measured[:, INTENDED], measured[:, SENT])
        rates = {"asked_rate": pace.asked_rate, "delivered_rate": pace.delivered_rate}
        metrics.update({name: rate for name, rate in rates.items() if rate is not None})
        metrics["late_share"] = pace.late_share
        metrics["schedule_delay_max"] = pace.delay["max"]
    if settings.slo.latency_ms is not None:
        good = int((measured[:, COMPLETED] - measured[:, INTENDED] <= settings.slo.latency_ms * 1e6).sum())
        metrics["slo_share"] = good / len(measured)
        metrics["goodput"] = good * settings.batch_size / ((end - first) / 1e9)
    return metrics


def step_metrics(stamps: Stamps, steps: npt.NDArray[np.int64], batch_size: int) -> list[dict[str, float]]:
    """Of a ramp: the window metrics of each step's requests, `steps` naming the step of each measured one."""
    rows = []
    for step in range(int(steps.max()) + 1):
        mine = answered(stamps[steps == step])
        if not len(mine):
            continue
        span = int(mine[:, INTENDED].max() - mine[:, INTENDED].min())
        rate = {"asked_rate": (len(mine) - 1) * 1e9 / span} if span else {}
        rows.append({"step": float(step), **rate, **window_metrics(mine, batch_size)})
    return rows
