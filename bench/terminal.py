"""A few lines at the end of a terminal that are redrawn in place."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # rich takes 60 ms to import, and only a terminal needs it
    from rich.console import Console, Group
    from rich.live import Live

Line = tuple[str, str]  # text and style


class Terminal:
    """Draws lines when it is told to, and takes them away. No thread, no timer."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console: Console | None = None
        self._live: Live | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        size = self._opened().size
        return size.width, size.height

    def draw(self, lines: Sequence[Line]) -> None:
        """Show `lines`, each cut to the width, where those of the last call stood."""
        from rich.live import Live

        console = self._opened()
        if self._live is None:
            # Redirected only where that is our stream: else standard output would end up on it.
            to_stderr = self._stream is sys.stderr
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=to_stderr,
            )
            self._live.start()
            console.show_cursor(True)  # a killed command must not leave a terminal without one
        self._live.update(_fitted(lines[: self.size[1] - 1], self._stream.encoding), refresh=True)

    def clear(self) -> None:
        """Take the lines away, so that others can be written where they stood."""
        if self._live:
            live, self._live = self._live, None
            live.stop()

    def _opened(self) -> "Console":
        from rich.console import Console

        if self._console is None:
            self._console = Console(file=self._stream, force_terminal=True, legacy_windows=False)
        return self._console


def _fitted(lines: Sequence[Line], encoding: str | None) -> "Group":
    """`lines`, each cut to the terminal's width (by cropping: an ellipsis is not ASCII)."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(printable(text, encoding), style, no_wrap=True, overflow="crop") for text, style in lines))


def redraws(stream: TextIO) -> bool:
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
