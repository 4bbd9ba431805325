"""Follows runs that take place in a launcher's workers: their records tell that they ended."""

import threading
from collections.abc import Callable
from pathlib import Path

from bench.results.record import RECORD_FILE

_LOOK_S = 1.0  # between two looks, each of which costs microseconds a run
_JOIN_S = 5.0


class Follower:
    """A thread that calls `tell` with the directory of every run that ends in `directory` from now on."""

    def __init__(self, directory: Path, tell: Callable[[Path], None]) -> None:
        self._directory = directory
        self._tell = tell
        self._known = self._found()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tell of the last ones. May be called again."""
        self._ended.set()
        self._thread.join(_JOIN_S)

    def _follow(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ended.wait(_LOOK_S)
            for run in sorted(self._found() - self._known):
                self._known.add(run)
                self._tell(run)

    def _found(self) -> set[Path]:
        return {record.parent for record in self._directory.glob(f"*/{RECORD_FILE}")}
