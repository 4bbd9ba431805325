"""How well the client kept to its schedule, from the stamps. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.results.metrics import PERCENTILES, percentile, requests_needed

Times = npt.NDArray[np.int64]  # nanoseconds

LATE_SHARE = 0.01  # of the requests; with more of them late the client fell behind
LATE_NS = 1_000_000  # no request is late by less


@dataclass(frozen=True)
class Pace:
    """How well the client kept to its schedule. Rates in requests/s, None where a single time spans nothing.

    Attributes:
        late_share: share of the requests sent later than both one mean interval and 1 ms after they were due.
        delay: percentiles of the schedule delay in seconds (p50 and so on, those supported) and `max`.
    """

    asked_rate: float | None
    delivered_rate: float | None
    late_share: float
    delay: dict[str, float]

    @property
    def fell_behind(self) -> bool:
        """More than 1 % of the requests were late: the backend did not get the load that was asked."""
        return self.late_share > LATE_SHARE


def behind(intended_ns: Times, sent_ns: Times) -> Pace:
    """Compare when requests were sent with when they were meant to be; at least one request, any order."""
    delay = np.sort(sent_ns - intended_ns)
    gaps = max(1, len(delay) - 1)
    interval = int(np.ptp(intended_ns)) / gaps
    percentiles = {
        name: percentile(delay, quantile) / 1e9
        for name, quantile in PERCENTILES.items()
        if len(delay) >= requests_needed(quantile)
    }
    return Pace(
        asked_rate=1e9 / interval if interval else None,
        delivered_rate=gaps * 1e9 / int(np.ptp(sent_ns)) if np.ptp(sent_ns) else None,
        late_share=float((delay > max(interval, LATE_NS)).mean()),
        delay={**percentiles, "max": int(delay[-1]) / 1e9},
    )
