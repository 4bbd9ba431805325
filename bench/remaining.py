"""How long a sweep still takes, by what its runs have taken so far. Pure: times are arguments."""

from collections import Counter
from collections.abc import Iterable


class Remaining:
    """The runs that are left of `total`, of which those with the same `cell` take about as long."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._planned: Counter[str] = Counter()  # runs of each cell that have not begun, where that is known
        self._began = 0
        self._seconds: dict[str, list[float]] = {}
        self._current: str | None = None

    def expect(self, total: int) -> None:
        """The sweep has grown."""
        self._total = total

    def plan(self, cells: Iterable[str]) -> None:
        """The cell of each run that is to come."""
        self._planned = Counter(cells)

    def started(self, cell: str) -> None:
        """A run of `cell` begins."""
        self._began += 1
        self._current = cell
        self._planned[cell] -= 1

    def finished(self, seconds: float) -> None:
        """The run took so long."""
        if self._current is not None:
            self._seconds.setdefault(self._current, []).append(seconds)
            self._current = None

    def seconds_left(self, elapsed: float) -> float | None:
        """Until the end, the current run having taken `elapsed` so far; None before the first has ended.

        A cell's own runs predict it. What was not measured yet is taken for the mean of all.
        """
        every = [seconds for each in self._seconds.values() for seconds in each]
        if not every:
            return None
        mean = sum(every) / len(every)
        means = {cell: sum(each) / len(each) for cell, each in self._seconds.items()}
        planned = +self._planned
        unknown = max(0, self._total - self._began - planned.total())
        left = unknown * mean + sum(count * means.get(cell, mean) for cell, count in planned.items())
        if self._current is not None:
            left += max(0.0, means.get(self._current, mean) - elapsed)
        return left
