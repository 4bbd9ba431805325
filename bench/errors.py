"""The one base of every error that this program raises on purpose."""


class BenchError(Exception):
    """Something a user can act on; its message says what, where and the next step."""


class ConfigError(BenchError):
    """Settings that cannot be run. `problems` holds one line for each of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RunFailed(BenchError):
    """A run ended without an answer to every request."""

    def __init__(self, reason: str, *, process: str, phase: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.process = process
        self.phase = phase
        self.traceback = traceback
