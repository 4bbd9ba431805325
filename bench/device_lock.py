"""The line of runs before a device: machine-wide, so that two of them never share one by accident.

A run leaves an entry in a directory that all users of the machine can write, and holds a kernel lock
(flock) on it as long as it lives, so that even SIGKILL frees the device. Entries are numbered: who comes
first is served first. Containers have a directory of their own and do not see each other.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.errors import BenchError

# Not tempfile.gettempdir(): a TMPDIR of its own must not hide one command from another.
_DIRECTORY = "/tmp/inference-bench-locks"
_FREE = "Set BENCH_LOCK_DIR to a directory that all users of this machine can write, the same for all of them"
_TURN_S = 10.0  # for which somebody may hold the directory itself; it takes microseconds
_LONGEST = 4096  # bytes read of an entry, which anybody may have written


@dataclass(frozen=True)
class Holder:
    """A run at a device or in line for it, as its entry describes it.

    Attributes:
        sweep: identity of its command.
        since: when it came to the line or, once `running`, to the device.
    """

    pid: int
    user: str
    command: str
    directory: str
    sweep: str
    since: str
    running: bool

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} since {self.since}: {self.command} (in {self.directory})"

    @classmethod
    def parse(cls, text: str) -> "Holder":
        """What `text` says; anybody may have written it, so it is no error when it says something else."""
        try:
            values: Any = json.loads(text)
            words = {key: _plain(values[key]) for key in ("user", "command", "directory", "sweep", "since")}
            return cls(pid=int(values["pid"]), running=bool(values["running"]), **words)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return cls(0, "an unknown user", "an unknown command", "an unknown place", "", "an unknown time", True)


class Entry:
    """One run's place in the line for `device`. Leaving the context leaves the line."""

    def __init__(self, device: str, holder: Holder) -> None:
        self._prefix = re.sub(r"[^\w-]", "_", device) + "."
        self._holder = holder
        self._directory = _open_directory()
        self._changed_ns = 0
        with ExitStack() as stack:
            stack.callback(os.close, self._directory)
            with self._alone():
                self._number = 1 + max(self._numbers(), default=0)
                self._fd = self._create(stack)
            self._leave = stack.pop_all()

    def __enter__(self) -> "Entry":
        return self

    def __exit__(self, *exception: object) -> None:
        self._leave.close()

    def _create(self, stack: ExitStack) -> int:
        """The entry's file, locked and written; leaving `stack` removes it. Raises BenchError."""
        name = f"{self._prefix}{self._number}"
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=self._directory)
            stack.callback(os.close, fd)
            stack.callback(_remove, name, self._directory)
            os.fchmod(fd, 0o644)  # whatever the umask: others must read who it is
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(fd)
        except OSError as error:
            raise BenchError(f"{directory()}: no lock can be taken there: {error.strerror}. {_FREE}") from error
        return fd

    def start(self) -> None:
        """Say that this run uses the device now, whoever else does."""
        with self._alone():
            self._run()

    def try_start(self) -> Holder | None:
        """Take the device if it is free and nobody came before; else who is next to leave it."""
        with self._alone():
            others = self._others()
            ahead = [other for number, other in others if other.running or number < self._number]
            if not ahead:
                self._run()
                return None
            return next((other for other in ahead if other.running), ahead[0])

    def at_the_device(self) -> list[Holder]:
        """The other runs that use the device now; nothing is read when none came or went since the last call."""
        changed_ns = os.stat(self._directory).st_mtime_ns
        if changed_ns == self._changed_ns:
            return []
        self._changed_ns = changed_ns
        with self._alone():
            return [other for _, other in self._others() if other.running]

    def _run(self) -> None:
        self._holder = replace(self._holder, running=True, since=now())
        self._write(self._fd)
        os.utime(self._directory)  # so that the others look

    def _write(self, fd: int) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(self._holder)).encode(), 0)

    def _numbers(self) -> list[int]:
        names = [name.removeprefix(self._prefix) for name in os.listdir(self._directory) if self._prefix in name]
        return sorted(int(name) for name in names if name.isdecimal())

    def _others(self) -> list[tuple[int, Holder]]:
        """The living entries but for this one, in order; what the dead left is removed."""
        found = [
            (number, self._read(f"{self._prefix}{number}")) for number in self._numbers() if number != self._number
        ]
        return [(number, other) for number, other in found if other is not None]

    def _read(self, name: str) -> Holder | None:
        """Whose entry it is, or None when the process behind it is gone."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._directory)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder.parse(os.pread(fd, _LONGEST, 0).decode(errors="replace"))
        except OSError:
            return None
        else:
            _remove(name, self._directory)
            return None
        finally:
            os.close(fd)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else reads or changes the entries meanwhile."""
        deadline = time.monotonic() + _TURN_S
        while True:
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BenchError(f"{directory()}: locked by another process for {_TURN_S:g} s. {_FREE}") from None
                time.sleep(0.005)
        try:
            yield
        finally:
            fcntl.flock(self._directory, fcntl.LOCK_UN)


def directory() -> Path:
    """Where the entries lie."""
    return Path(os.environ.get("BENCH_LOCK_DIR") or _DIRECTORY)


def now() -> str:
    """The time for people."""
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def _open_directory() -> int:
    """Open the directory and make it where it is missing; no symbolic link is followed. Raises BenchError."""
    place = directory()
    try:
        with suppress(FileExistsError):
            place.mkdir(parents=True)
            place.chmod(0o1777)  # all may add, and each removes only his own
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise BenchError(f"{place}: cannot be used for locks: {error.strerror}. {_FREE}") from error


def _remove(name: str, directory: int) -> None:
    with suppress(OSError):  # gone, or another user's: in this directory each removes only his own
        os.unlink(name, dir_fd=directory)


def _plain(text: object) -> str:
    """Somebody's text without what would move a terminal's cursor, and not endless."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:300])
