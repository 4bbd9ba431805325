"""How much worse a metric may get: the gates of `python -m bench.compare`. Pure."""

import re
from dataclasses import dataclass
from typing import Literal

from bench.errors import BenchError
from bench.results.compare import Comparison, more_repeats, repeats_in_words
from bench.results.metric_names import metric as named

State = Literal["kept", "undecided", "broken"]

_GATE = re.compile(r"(?P<metric>\w+):(?P<sign>[+-])(?P<percent>\d+(\.\d+)?)%")


@dataclass(frozen=True)
class Gate:
    """How much worse a metric may get: `throughput:-3%`, `latency_p99:+5%`.

    Of a metric that is not better for either direction, the sign says which is worse.
    """

    text: str
    metric: str
    limit: float  # of the ratio B over A
    falls: bool  # whether it is worse below the limit

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Raises BenchError for a text that is no gate, or one that could never be broken for the worse."""
        found = _GATE.fullmatch(text.strip())
        if found is None:
            raise BenchError(f"--gate {text!r}: must be METRIC:-N% or METRIC:+N%, such as throughput:-3%")
        metric, sign = found["metric"], found["sign"]
        worse = {"higher": "-", "lower": "+", None: sign}[named(metric).better]
        if sign != worse:
            raise BenchError(f"--gate {text!r}: {metric} gets worse in the other direction. Write {metric}:{worse}N%")
        if sign == "-" and float(found["percent"]) >= 100:
            raise BenchError(f"--gate {text!r}: nothing falls by so much. Write a number below 100%")
        return cls(text.strip(), metric, 1 + float(f"{sign}{found['percent']}") / 100, falls=sign == "-")

    def state(self, comparison: Comparison | None) -> State:
        """Broken where the ratio is beyond the limit and the whole interval, if there is one, beyond 1.

        Undecided where the ratio is and the interval is not. Broken, too, where there is nothing to compare.
        """
        if comparison is None:
            return "broken"
        if not (comparison.ratio < self.limit if self.falls else comparison.ratio > self.limit):
            return "kept"
        if comparison.low is None or comparison.high is None:
            return "broken"
        return "broken" if (comparison.high < 1 if self.falls else comparison.low > 1) else "undecided"

    def words(self, place: str, comparison: Comparison | None, lost: str) -> str:
        """`gate broken: throughput:-3%: batch_size=8: B / A is 0.900`; empty where it is kept."""
        state = self.state(comparison)
        if state == "kept":
            return ""
        found = lost if comparison is None else f"B / A is {comparison.ratio:.3f}"
        if comparison is not None and state == "undecided":
            more = repeats_in_words(more_repeats(comparison, margin=0))
            found += f", its interval {comparison.low:.3f} to {comparison.high:.3f}: {more}"
        return f"gate {state}: {self.text}: {place}: {found}"
