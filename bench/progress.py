"""What a sweep is doing, on standard error: redrawn in place on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from bench.gauge import Reading
from bench.remaining import Remaining
from bench.terminal import Line, Terminal, printable, redraws

if TYPE_CHECKING:
    from bench.results.record import Record
    from bench.so_far import SoFar

_REDRAW_S = 1.0  # no more often, since drawing takes time from a machine that is being measured
_ABOVE = 6  # the share of a terminal's lines, one in so many, that is left to what stands above the display


class Progress:
    """Progress of `total_runs` runs.

    No thread, no timer: it draws when it is called, and makes the table between runs only. What it writes to may
    go away (a closed terminal, a `| head`); then it falls silent, since a sweep must not end for that.
    """

    def __init__(
        self,
        total_runs: int,
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        done_before: int = 0,  # runs of an earlier command, in a sweep that is resumed
    ) -> None:
        self._total_runs = total_runs
        self._done_before = done_before
        self._stream = (stream or sys.stderr) if enabled else None
        self._clock = clock
        self._began = self._run_began = clock()
        self._remaining = Remaining(total_runs - done_before)
        self._label = self._last = ""
        self._common: set[str] = set()  # words of all labels
        self._number = self._followed = 0
        self._reading = Reading("start")
        self._terminal = Terminal(self._stream) if self._stream and redraws(self._stream) else None
        self._so_far: SoFar | None = None
        self._table: list[Line] = []
        self._drawn_at = self._began - _REDRAW_S

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def plan(self, labels: Sequence[str]) -> None:
        """The labels of the runs that are to come, in any order. What they all say is not shown again and again."""
        self._remaining.plan(map(_cell, labels))
        if len(labels) > 1:
            self._common = set.intersection(*(set(label.split(" ")) for label in labels))

    def checking(self, cells: int) -> None:
        """Before the first run: so many cells are checked, and the harness's own cost is measured."""
        self._line(f"checking {cells} cell{'s' if cells > 1 else ''} before the first run")

    def expect(self, total_runs: int) -> None:
        """The sweep has grown."""
        self._total_runs = total_runs
        self._remaining.expect(total_runs - self._done_before)

    def run_started(self, number: int, label: str) -> None:
        """Run `number` (from 1) begins; `label` names its cell for people."""
        self._number, self._run_began = number, self._clock()
        self._label = " ".join(word for word in label.split(" ") if word not in self._common) or label
        self._remaining.started(_cell(label))
        self._reading = Reading("start")
        if self._terminal:
            self._drawn_at = -_REDRAW_S  # at once: nothing is measured yet
            self._redraw()
        else:
            self._line(f"run {number} of {self._total_runs}: {self._label}")

    def update(self, reading: Reading) -> None:
        """The current run is so far."""
        self._reading = reading
        if self._terminal:
            self._redraw()

    def run_finished(self, number: int, result_line: str, seconds: float, record: "Record | None" = None) -> None:
        """Run `number` ended after `seconds` of wall time with `result_line`; `record` is what it left."""
        self._remaining.finished(seconds)
        self._last = result_line
        self._run_began = self._clock()
        times = f"{duration(seconds)}; {self._times()}"
        self._line(f"run {number} of {self._total_runs}: {self._label}: {result_line} ({times})")
        if self._terminal and record is not None:
            self._tabulate(record)

    def run_followed(self, number: int, label: str, result_line: str, seconds: float) -> None:
        """Run `number`, which took place in another process, has ended after `seconds`."""
        self._followed += 1
        used, runs = self._clock() - self._began, self._total_runs - self._done_before
        # Several may run at a time, so that their own lengths tell nothing.
        left_s = used / self._followed * (runs - self._followed)
        times = f"{duration(used)} used" + (f", about {duration(left_s)} left" if left_s > 0 else "")
        short = " ".join(word for word in label.split(" ") if word not in self._common) or label
        self._line(f"run {number} of {self._total_runs}: {short}: {result_line} ({duration(seconds)}; {times})")

    def close(self) -> None:
        """Leave the terminal as it was. May be called again."""
        self._guarded(lambda: self._terminal.clear() if self._terminal else None)

    def _tabulate(self, record: "Record") -> None:
        """Make the table anew, as large as the terminal has room for."""
        from bench.so_far import SoFar

        assert self._terminal is not None, "only a terminal has a table"
        self._so_far = self._so_far or SoFar()
        self._so_far.add(record)
        width, height = self._terminal.size
        self._table = self._so_far.lines(width, height - height // _ABOVE - len(self._status()) - 1)

    def _redraw(self) -> None:
        now = self._clock()
        if now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            lines = [*self._status(), *([("", ""), *self._table] if self._table else [])]
            self._guarded(lambda: self._terminal.draw(lines) if self._terminal else None)

    def _line(self, text: str) -> None:
        """Write a line that stays."""

        def write() -> None:
            if self._terminal:
                self._terminal.clear()
            if self._stream:
                self._stream.write(printable(text, self._stream.encoding) + "\n")
                self._stream.flush()

        self._guarded(write)

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, ValueError):  # the latter is a closed file's
            self._stream = self._terminal = None

    def _status(self) -> list[Line]:
        """Lines of the display: where it is, which cell, in which phase, how fast, what came last."""
        lines = [
            (f"run {self._number} of {self._total_runs} | {self._times(left_first=True)}", "bold"),
            (f"cell  {self._label}", ""),
            (f"now   {_now(self._reading)}", ""),
        ]
        return [*lines, (f"last  {self._last}", "dim")] if self._last else lines

    def _times(self, left_first: bool = False) -> str:
        """Time used, and time left once a run's length is known."""
        now = self._clock()
        times = [f"{duration(now - self._began)} used"]
        left = self._remaining.seconds_left(now - self._run_began)
        if left:
            times.append(f"about {duration(left)} left")
        return ", ".join(reversed(times) if left_first else times)


def _now(reading: Reading) -> str:
    """The phase, and what is known of it: the most important first, since a narrow terminal cuts the rest off."""
    text = reading.phase
    if reading.total:
        text += f" {reading.done} of {reading.total}"
    elif reading.done:
        text += f" {reading.done} requests"
    if reading.throughput is not None:
        text += f" | {reading.throughput:.4g} samples/s"
    if reading.latency_s is not None:
        text += f" | latency {reading.latency_s:.3g} s"
    return text


def _cell(label: str) -> str:
    """A run's label without its repeat."""
    return " ".join(word for word in label.split(" ") if not word.startswith("repeat="))


def duration(seconds: float) -> str:
    """Seconds for people: "4.2 s", "1:23", "2:03:04"."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
