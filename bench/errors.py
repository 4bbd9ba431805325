"""The one base of every error that this program raises on purpose."""

from typing import Any


class BenchError(Exception):
    """Something a user can act on; its message says what, where and the next step."""


class ConfigError(BenchError):
    """Settings that cannot be run. `problems` holds one line for each of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NotRecorded(BenchError):
    """What a run gave cannot be written, as on a full disk. The next run would be measured in vain, too."""


class OutOfMemory(BenchError):
    """Memory ran out, of the host or of the device; `memory` holds the figures that are known, see the record."""

    def __init__(self, reason: str, memory: dict[str, Any]) -> None:
        super().__init__(reason)
        self.memory = memory


class RunFailed(BenchError):
    """A run ended without an answer to every request. `memory` holds figures where memory had run out."""

    def __init__(
        self, reason: str, *, process: str, phase: str, traceback: str = "", memory: dict[str, Any] | None = None
    ) -> None:
        super().__init__(reason)
        self.process = process
        self.phase = phase
        self.traceback = traceback
        self.memory = memory
