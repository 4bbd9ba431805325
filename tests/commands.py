"""The real command for tests: started in a directory of its own, bounded in time, its processes told apart."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.results.record import Record
from bench.results.records import read_records

TESTS = Path(__file__).parent
TIMEOUT_S = 240.0
_MARK = "BENCH_TEST_COMMAND"  # in the environment of a command and so of all that it starts


def environment(*path: Path, **variables: str) -> dict[str, str]:
    """This process's environment, with the test's own modules importable and no settings of the user's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BENCH_", "HYDRA_"))}
    kept["BENCH_LOCK_DIR"] = os.environ["BENCH_LOCK_DIR"]
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, path or (TESTS, TESTS.parent)))} | variables


@dataclass
class Done:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    outputs: Path

    @property
    def directory(self) -> Path:
        """The one directory of its sweep or run."""
        found = [path for path in self.outputs.glob("*/*") if path.is_dir()]
        assert len(found) == 1, f"{found}\n{self.stderr}"
        return found[0]

    @property
    def records(self) -> list[Record]:
        """The records in it, each of them readable."""
        records, problems = read_records(self.directory)
        assert problems == []
        return records

    def by(self, setting: str) -> dict[Any, Record]:
        """The records by the value of a setting (`group.key`), of which no two have the same."""
        found: dict[Any, Record] = {}
        for record in self.records:
            value: Any = record.settings
            for key in setting.split("."):
                value = value[key]
            assert value not in found
            found[value] = record
        return found


@dataclass
class Command:
    """`python -m bench` in directory `cwd`, or what `program` is instead; `variables` are of its environment."""

    cwd: Path
    arguments: tuple[str, ...]
    locks: Path | None = None  # else a place of its own, so that it waits for no other
    program: tuple[str, ...] = (sys.executable, "-m", "bench")
    prefix: tuple[str, ...] = ()  # a command that starts it, such as one that sets limits
    variables: Mapping[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.cwd.mkdir(parents=True, exist_ok=True)
        self._out, self._err = self.cwd / "stdout", self.cwd / "stderr"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*self.prefix, *self.program, *self.arguments],
                cwd=self.cwd,
                env=environment(
                    **{_MARK: self.mark, "BENCH_LOCK_DIR": str(self.locks or self.cwd / "locks")}, **self.variables
                ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def wait(self, timeout_s: float = TIMEOUT_S) -> Done:
        """Its end. A command that does not end in time is killed and fails the test."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after {timeout_s} s:\n{self._err.read_text()}") from None
        return Done(code, self._out.read_text("utf-8"), self._err.read_text("utf-8"), self.cwd / "outputs")

    def processes(self) -> dict[int, str]:
        """Every living process that it started, itself included, by process id with its standard output."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if f"{_MARK}={self.mark}".encode() in (directory / "environ").read_bytes().split(b"\0"):
                    found[int(directory.name)] = os.readlink(directory / "fd/1")
            except OSError:  # another user's, or gone by now, or a zombie
                continue
        return found

    def named(self, name: str) -> int:
        """The process id of the child that writes the log `name`."""
        (pid,) = [pid for pid, output in self.processes().items() if output.endswith(f"/{name}.log")]
        return pid

    def assert_all_gone(self, within_s: float = 5.0) -> None:
        """Nothing that it started lives on."""
        wait_until(lambda: not self.processes(), within_s, lambda: f"still there: {self.processes()}")


def call(
    cwd: Path, *arguments: str, module: str = "bench", flags: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A command of which only code and words matter, to its end."""
    return subprocess.run(
        [sys.executable, *flags, "-m", module, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(command: Command) -> Done:
    """The end of a command that starts no run: exit code 2, in words, and nothing lives on."""
    done = command.wait()
    assert done.code == 2, done.stderr
    assert "Traceback" not in done.stderr
    command.assert_all_gone()
    return done


def wait_until(is_so: Callable[[], bool], within_s: float, message: Callable[[], str] = lambda: "") -> None:
    """Wait until `is_so()`, and fail where it is not within `within_s`."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {within_s} s. {message()}"
        time.sleep(0.05)


def rows(file: Path) -> list[Mapping[str, str]]:
    """The rows of a CSV file."""
    import csv

    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def stamps(directory: Path) -> dict[str, list[Any]]:
    """The columns of a run's `requests.parquet`."""
    import pyarrow.parquet

    columns: dict[str, list[Any]] = pyarrow.parquet.read_table(directory / "requests.parquet").to_pydict()
    return columns


def read_json(file: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(file.read_text("utf-8"))
