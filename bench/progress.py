"""What a sweep is doing, on standard error: redrawn in place on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # rich takes 60 ms to import, and only a terminal needs it
    from rich.console import Console, Group
    from rich.live import Live

_REDRAW_S = 1.0  # no more often, since drawing takes time from a machine that is being measured


class Progress:
    """Progress of `total_runs` runs.

    No thread, no timer: it draws when it is called. What it writes to may go away (a closed terminal,
    a `| head`); then it falls silent, since a sweep must not end for that.
    """

    def __init__(
        self,
        total_runs: int,
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_runs = total_runs
        self._stream = (stream or sys.stderr) if enabled else None
        self._clock = clock
        self._began = self._run_began = clock()
        self._seconds: list[float] = []  # wall time of each finished run
        self._label = self._last = self._phase = ""
        self._number = self._done = self._total = 0
        self._terminal = _Terminal(self._stream) if self._stream and _redraws(self._stream) else None
        self._drawn_at = self._began - _REDRAW_S

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def expect(self, total_runs: int) -> None:
        """The sweep has grown."""
        self._total_runs = total_runs

    def run_started(self, number: int, label: str) -> None:
        """Run `number` (from 1) begins; `label` names its cell for people."""
        self._number, self._label, self._run_began = number, label, self._clock()
        self._phase, self._done, self._total = "start", 0, 0
        if self._terminal:
            self._redraw()
        else:
            self._line(f"run {number} of {self._total_runs}: {label}")

    def update(self, phase: str, done: int = 0, total: int = 0) -> None:
        """The run is in `phase`, with `done` of `total` requests answered (0 of 0: not counted)."""
        self._phase, self._done, self._total = phase, done, total
        if self._terminal:
            self._redraw()

    def run_finished(self, number: int, result_line: str, seconds: float) -> None:
        """Run `number` ended after `seconds` of wall time with `result_line`."""
        self._seconds.append(seconds)
        self._last = result_line
        self._run_began = self._clock()
        times = f"{duration(seconds)}; {self._times(number)}"
        self._line(f"run {number} of {self._total_runs}: {self._label}: {result_line} ({times})")

    def close(self) -> None:
        """Leave the terminal as it was. May be called again."""
        self._guarded(lambda: self._terminal.clear() if self._terminal else None)

    def _redraw(self) -> None:
        now = self._clock()
        if now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            self._guarded(lambda: self._terminal.draw(self._status()) if self._terminal else None)

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

    def _status(self) -> list[str]:
        """Lines of the display: where it is, which cell, what came last."""
        counted = f" {self._done} of {self._total}" if self._total else ""
        place = f"run {self._number} of {self._total_runs}"
        lines = [
            f"{place} | {self._phase}{counted} | {self._times(self._number - 1)}",
            f"cell  {self._label}",
        ]
        return [*lines, f"last  {self._last}"] if self._last else lines

    def _times(self, finished: int) -> str:
        """Time used, and time left once a run's length is known."""
        now = self._clock()
        text = f"{duration(now - self._began)} used"
        runs = self._total_runs - finished
        if not self._seconds or runs <= 0:
            return text
        mean = sum(self._seconds) / len(self._seconds)
        left = mean * (runs - 1) + max(0.0, mean - (now - self._run_began))
        return f"{text}, about {duration(left)} left"


class _Terminal:
    """A few lines at the end of a terminal that are redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console: Console | None = None
        self._live: Live | None = None

    def draw(self, lines: list[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._console is None:
            self._console = Console(file=self._stream, force_terminal=True, legacy_windows=False)
        if self._live is None:
            # Redirected only where that is our stream: else standard output would end up on it.
            to_stderr = self._stream is sys.stderr
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=to_stderr,
            )
            self._live.start()
            self._console.show_cursor(True)  # a killed command must not leave a terminal without one
        self._live.update(_fitted(lines, self._stream.encoding), refresh=True)

    def clear(self) -> None:
        """Take the lines away, so that others can be written where they stood."""
        if self._live:
            live, self._live = self._live, None
            live.stop()


def _fitted(lines: list[str], encoding: str | None) -> "Group":
    """`lines`, each cut to the terminal's width (by cropping: an ellipsis is not ASCII)."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(printable(line, encoding), no_wrap=True, overflow="crop") for line in lines))


def _redraws(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    except ValueError:  # closed
        return False


def printable(text: str, encoding: str | None) -> str:
    """`text` as one line of characters that `encoding` has, without control characters."""
    encoding = encoding or "utf-8"
    text = "".join(c if c.isprintable() else " " for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("±", "+/-").encode(encoding, "replace").decode(encoding)
    return text


def duration(seconds: float) -> str:
    """Seconds for people: "4.2 s", "1:23", "2:03:04"."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
