"""SIGINT, SIGTERM and SIGHUP: the first ends the run and writes the tables, a second ends without waiting."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_at_first: list[Callable[[], None]] = []  # what is done before the first signal is raised
_stopping: int | None = None  # the exit code that a signal asked for


class Interrupted(BaseException):
    """A signal arrived. Like KeyboardInterrupt no Exception, so that nothing on the way takes it for a failed run."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def install() -> None:
    """Handle them from now on. SIGHUP only where it is not ignored, as it is under nohup."""
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _arrived)


def at_first(action: Callable[[], None]) -> None:
    """Do this before the first signal is raised."""
    _at_first.append(action)


def check() -> None:
    """Raise Interrupted again: an exception of a signal is lost where it arrives within a finalizer."""
    if _stopping is not None:
        raise Interrupted(_stopping)


def ending(code: int) -> None:
    """Nothing is left to be done: from now on a signal ends the process."""
    global _stopping
    _stopping = _stopping or code


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that arrive within the block are handled after it; processes started in it have them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _arrived(number: int, _frame: FrameType | None) -> None:
    global _stopping
    code = 128 + number
    if _stopping is not None:
        os._exit(code)  # its children see that it is gone, and end
    _stopping = code
    for action in _at_first:
        action()
    raise Interrupted(code)
