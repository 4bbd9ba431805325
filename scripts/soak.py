"""A long sweep in which every third run meets a random fault; at the end nothing may have leaked or be wrong.

    scripts/soak [--runs 500] [--minutes 20] [--seed 0] [--output outputs/soak]

One command runs most of the sweep; it is killed (SIGKILL), resumed, interrupted (SIGINT) and resumed again. The faults
come from outside: signals to frontend, backend, sampler and fork server, an exception in the model. In the resumed
commands the disk fills, too, which may end one, so that it is resumed once more.
The checks are in soak_checks.py. Where the packages are installed already, any interpreter will do.
"""

import argparse
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import soak_checks

ROOT = Path(__file__).resolve().parent.parent
EVERY = 3  # a fault in each so-many-th run
STALL_S = 2.0
LATEST_S = 0.3  # after its processes have appeared, a run meets its fault
FULL_S = 3.0  # a disk stays full for no longer
KILLED_AT, INTERRUPTED_AT = 0.8, 0.9  # of the runs, or of the time
DISK_BYTES = 2**30
AXES = ("stream_layout=serial,async,pipelined", "queue=shared_memory,torch")
CELLS = 6
FIXED = (
    "model=custom",
    "model._target_=soak_model.Soaked",
    "model.input_shape=[8]",
    "model.name=soaked",
    "batch_size=2",
    "compile=false",
    "num_workers=2",
    "num_iters=40",
    "experiment=soak",
    f"stall_timeout_s={STALL_S:g}",
    "device_wait_s=60",
)
_LOG = re.compile(r"/(\d{4})/(frontend|backend|sampler)\.log$")


@dataclass
class Soak:
    """One soak: what it does and what it has seen.

    Attributes:
        work: the commands' working directory, which holds the model's flag and the outputs.
        mark: an environment variable by which all processes of the commands are known.
        limits_files: whether a full disk is a limit of the size of files, for want of a disk to fill.
    """

    work: Path
    runs: int
    deadline: float
    rng: random.Random
    mark: str
    limits_files: bool
    events: list[soak_checks.Event] = field(default_factory=list)
    usage: list[list[soak_checks.Usage]] = field(default_factory=list)  # of each command, a run each
    codes: list[int] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def command(self, *more: str, until: float, how: signal.Signals | None, budget: float) -> bool:
        """Run the sweep, or what it lacks, until so many runs or so late; whether it came to its end by itself."""
        arguments = [
            *FIXED,
            *AXES,
            f"repeat=range({self.runs // CELLS})",
            f"cache_dir={self.work / 'cache'}",
            *more,
            "-m",
        ]
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "scripts")))
        environment = os.environ | {"PYTHONPATH": paths, "TMPDIR": str(self.work / "tmp"), "BENCH_SOAK": self.mark}
        self.usage.append([])
        with (self.work / "stdout").open("a") as out, (self.work / "stderr").open("a") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench", *arguments], cwd=self.work, env=environment, stdout=out, stderr=err
            )
        watch = Watch(self, psutil.Process(process.pid))
        signalled = False
        while process.poll() is None:
            watch.look()
            late = time.monotonic() > min(budget, self.deadline)
            if not signalled and how is not None and (late or len(self.seen) >= until):
                process.send_signal(how)
                signalled = True
            time.sleep(0.01)
        watch.undo()
        self.codes.append(process.returncode)
        self.ended.append(how.name if signalled and how else "by itself")
        return not signalled


class Watch:
    """Looks at one command's processes and lets its faults happen."""

    def __init__(self, soak: Soak, supervisor: psutil.Process) -> None:
        self.soak = soak
        self.supervisor = supervisor
        self.number = -1
        self.planned: tuple[float, str, str, signal.Signals | None] | None = None
        self.filled_at: float | None = None

    def look(self) -> None:
        """See which run is on, take what the supervisor uses, and do what is due."""
        try:
            number, pids = self._processes()
            if number is not None and number != self.number:
                self._run_began(number)
        except (psutil.Error, OSError):
            return
        if self.filled_at is not None and time.monotonic() - self.filled_at > FULL_S:
            self.undo()
        if self.planned is None or time.monotonic() < self.planned[0] or number != self.number:
            return
        _, kind, role, signum = self.planned
        if self._inject(kind, pids.get(role), signum):
            self.soak.events.append(soak_checks.Event(self.number, kind, role, signum.name if signum else ""))
            self.planned = None

    def _processes(self) -> tuple[int | None, dict[str, int]]:
        """Number of the run that is on, and its processes by name."""
        number, pids = None, {}
        for child in self.supervisor.children(recursive=True):
            with contextlib.suppress(OSError, psutil.Error):
                if found := _LOG.search(os.readlink(f"/proc/{child.pid}/fd/1")):
                    number = int(found[1])
                    pids[found[2]] = child.pid
                    pids["fork server"] = child.ppid()
        return number, pids

    def _run_began(self, number: int) -> None:
        self.undo()
        self.number = number
        self.soak.seen.add(number)
        usage = soak_checks.Usage(self.supervisor.memory_info().rss, self.supervisor.num_fds())
        self.soak.usage[-1].append(usage)
        self.planned = None
        if len(self.soak.seen) % EVERY == 0:
            rng = self.soak.rng
            at = time.monotonic() + rng.uniform(0, LATEST_S)
            full = 3 if len(self.soak.usage) > 1 else 0  # not in the first, which shows how memory grows
            kind = rng.choices(["signal", "exception", "full disk"], [8, 1, full])[0]
            role = rng.choice(["frontend", "backend", "sampler", "fork server"])
            signum = rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
            self.planned = (at, kind, role, signum) if kind == "signal" else (at, kind, "", None)

    def _inject(self, kind: str, pid: int | None, signum: signal.Signals | None) -> bool:
        """Whether the fault was done; a process may not be there yet, or any more."""
        if kind == "exception":
            (self.soak.work / "raise").touch()
            return True
        if kind == "full disk":
            self.filled_at = time.monotonic()
            if self.soak.limits_files:
                self.supervisor.rlimit(psutil.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            else:
                fill(self.soak.work / "outputs" / "filler")
            return True
        if pid is None or signum is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
            return True
        return False

    def undo(self) -> None:
        """Give back the disk, and take back an exception that nobody raised."""
        (self.soak.work / "raise").unlink(missing_ok=True)
        if self.filled_at is not None:
            self.filled_at = None
            with contextlib.suppress(psutil.Error):
                self.supervisor.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            (self.soak.work / "outputs" / "filler").unlink(missing_ok=True)


def fill(file: Path) -> None:
    """Take all that is free."""
    with file.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        free = os.statvfs(file.parent)
        os.posix_fallocate(out.fileno(), 0, max(1, free.f_bavail * free.f_frsize))
        while True:
            out.write(bytes(4096))


@contextlib.contextmanager
def working_directory() -> Iterator[tuple[Path, bool]]:
    """A directory for the commands, and whether its outputs lie on a disk of their own, which may be filled."""
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as made:
        work = Path(made)
        for name in ("tmp", "outputs", "cache"):
            (work / name).mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "bench-soak", str(work / "outputs")]
        may_mount = os.environ.get("BENCH_SOAK_MOUNTS") == "1"
        own = may_mount and subprocess.call(mount, stderr=subprocess.DEVNULL) == 0
        try:
            yield work, own
        finally:
            if own:
                subprocess.call(["umount", "-l", str(work / "outputs")])


def in_mount_namespace() -> None:
    """Go on where a mount is seen by nobody else and ends with this process, if that is allowed."""
    tool = shutil.which("unshare")
    if "BENCH_SOAK_MOUNTS" in os.environ or tool is None:
        return
    allowed = subprocess.call([tool, "--mount", "true"], stderr=subprocess.DEVNULL) == 0
    os.environ["BENCH_SOAK_MOUNTS"] = str(int(allowed))
    if allowed:
        os.execv(tool, [tool, "--mount", sys.executable, *sys.argv])


def soak(soak: Soak, began: float) -> None:
    """The sweep in three commands, and as many more as a full disk ends."""

    def budget(share: float) -> float:
        return began + share * (soak.deadline - began)

    if soak.command(until=KILLED_AT * soak.runs, how=signal.SIGKILL, budget=budget(KILLED_AT)):
        return
    (directory,) = (soak.work / "outputs" / "soak").iterdir()
    resume = f"resume={directory}"
    while soak.command(resume, until=INTERRUPTED_AT * soak.runs, how=signal.SIGINT, budget=budget(INTERRUPTED_AT)):
        if not soak_checks.lacks(directory):
            return
    while soak.command(resume, until=float("inf"), how=signal.SIGINT, budget=soak.deadline):
        if not soak_checks.lacks(directory):
            return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A long sweep with faults, and what is left of it.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=60.0, help="the sweep is interrupted after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs/soak"))
    given = parser.parse_args(arguments)
    given.runs = CELLS * -(-given.runs // CELLS)
    in_mount_namespace()
    before = soak_checks.in_shared_memory()
    began = time.monotonic()
    with working_directory() as (work, own_disk):
        made = Soak(
            work, given.runs, began + 60 * given.minutes, random.Random(given.seed), str(os.getpid()), not own_disk
        )
        soak(made, began)
        time.sleep(5)  # what a killed supervisor started may live for so long
        found = soak_checks.Found(
            directory=next((work / "outputs" / "soak").iterdir()),
            events=made.events,
            usage=made.usage,
            codes=made.codes,
            ended=made.ended,
            mark=made.mark,
            shared_before=before,
            temporary=work / "tmp",
            seconds=time.monotonic() - began,
        )
        text, problems = soak_checks.judge(found, given.runs, given.seed)
        given.output.mkdir(parents=True, exist_ok=True)
        (given.output / "soak.md").write_text(text, encoding="utf-8")
        shutil.copy(work / "stderr", given.output / "stderr.txt")
        shutil.copy(found.directory / "summary.md", given.output / "summary.md")
        shutil.copy(found.directory / "runs.csv", given.output / "runs.csv")
    print(text)
    print(given.output / "soak.md")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
