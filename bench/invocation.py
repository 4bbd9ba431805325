"""How this command was started, and the command that finishes its sweep. Nothing here imports Hydra."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RETRIED = ("failed", "invalid")  # verdicts that `retry` may name
_OWN = re.compile(r"\+{0,2}(resume|retry)=.*", re.DOTALL)
_PLAIN = re.compile(r"[\w.\-]*/[\w./\-]*", re.ASCII)  # a text to Hydra without quotes, and not null or a number


@dataclass(frozen=True)
class Invocation:
    """A command line.

    Attributes:
        program: what starts the program: `python -m bench`, `bench`, `scripts/bench`.
        arguments: the user's own flags and overrides.
        working_directory: where it was started.
    """

    program: list[str]
    arguments: list[str]
    working_directory: str

    @classmethod
    def current(cls) -> "Invocation":
        """This process's."""
        count = len(sys.argv) - 1  # as typed, not as Hydra wants them
        return cls(_program(sys.orig_argv, sys.argv), sys.orig_argv[len(sys.orig_argv) - count :], os.getcwd())

    def again(self) -> str:
        """The same command, for a shell."""
        return shlex.join([*self.program, *self._own()])

    def finishing(self, directory: Path, retry: Sequence[str], *, here: str | None = None) -> str:
        """The command that runs what `directory` lacks, and the runs whose verdict is in `retry`, for a shell.

        It changes the directory first where a shell in `here` stands elsewhere than the sweep was started.
        """
        there = self.working_directory
        elsewhere = here is not None and here != there and os.path.isdir(there)
        base = there if elsewhere or here is None else here
        place = os.path.abspath(directory)
        if Path(place).is_relative_to(base):
            place = os.path.relpath(place, base)
        words = [*self.program, *self._own(), f"resume={quoted(place)}"]
        if retry:
            words.append(f"retry={','.join(retry)}")
        return (f"cd {shlex.quote(there)} && " if elsewhere else "") + shlex.join(words)

    def _own(self) -> list[str]:
        return [argument for argument in self.arguments if not _OWN.fullmatch(argument)]


def normalized(argument: str) -> str:
    """`retry=failed,invalid` is one value, a list: Hydra would make an axis of it."""
    key, equals, value = argument.partition("=")
    if key.lstrip("+") == "retry" and equals and re.fullmatch(r"[\w ]+(,[\w ]+)*", value) and value != "null":
        return f"{key}=[{value}]"
    return argument


def quoted(value: str) -> str:
    """`value` as a text in Hydra's override grammar."""
    if _PLAIN.fullmatch(value):
        return value
    # A backslash is itself, but for those before a quote.
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{escaped}'"


def _program(original: Sequence[str], argv: Sequence[str]) -> list[str]:
    """What stands before the arguments, as typed; a console script by the name that a shell finds."""
    named = os.environ.get("BENCH_PROGRAM")
    if named:
        return [named]
    script = argv[0]
    if os.path.basename(script) == "__main__.py" or not os.path.isfile(script):
        return list(original[: len(original) - len(argv) + 1])
    name = os.path.basename(script)
    found = shutil.which(name)
    return [name if found and os.path.samefile(found, script) else script]
