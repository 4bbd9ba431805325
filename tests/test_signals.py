"""Signals in each phase of a command: it ends at once, says what finishes it, and nothing is left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from commands import Command, environment, wait_until
from conftest import Start
from filelock import FileLock

from bench.results.records import read_records

ENDED_S = 5.0
INTERRUPTED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -signal.SIGKILL}
WAITING = ("model._target_=toys.Waits", "queue=torch")


def is_reached(cwd: Path) -> bool:
    return (cwd / "reached").exists()


def calibrates(cwd: Path) -> bool:
    return any((cwd / "tmp").glob("pymp-*/calibration-*"))


def compiles(cwd: Path) -> bool:
    return any((cwd / "tmp").glob("pymp-*/compile-*/*"))


def has_run(cwd: Path) -> bool:
    return any(cwd.glob("outputs/*/*/0000/metrics.json"))


# Phase: what to ask for, when it is there, what to send.
PHASES: dict[str, tuple[tuple[str, ...], Callable[[Path], bool], signal.Signals]] = {
    "preflight": ((*WAITING, "+model.args.at=preflight"), is_reached, signal.SIGINT),
    "calibration": (("cache_dir=cache",), calibrates, signal.SIGKILL),
    "load": ((*WAITING, "+model.args.at=backend"), is_reached, signal.SIGHUP),
    "compile": (("compile=true",), compiles, signal.SIGKILL),
    "check, killed": ((*WAITING, "+model.args.at=12"), is_reached, signal.SIGKILL),
    "between runs": ((), has_run, signal.SIGINT),
    "between runs, killed": ((), has_run, signal.SIGKILL),
}


@pytest.mark.parametrize("phase", PHASES)
def test_signal_ends_the_command_in_each_phase(start: Start, tmp_path: Path, phase: str) -> None:
    """Its exit code, no process 5 s later, no temporary file, whole records, and what to do next."""
    overrides, is_there, number = PHASES[phase]
    (tmp_path / "tmp").mkdir()
    command = start(
        *overrides, "-m", "repeat=range(3)", cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"), TORCHINDUCTOR_CACHE_DIR="/tmp"
    )
    wait_until(lambda: is_there(tmp_path), 120)
    os.kill(command.process.pid, number)
    done = command.wait(ENDED_S)
    assert done.code == INTERRUPTED[number]
    command.assert_all_gone(ENDED_S)
    wait_until(lambda: not list((tmp_path / "tmp").iterdir()), 1, lambda: str(list((tmp_path / "tmp").iterdir())))
    assert "Traceback" not in done.stderr
    began = phase not in ("preflight", "calibration")
    if number != signal.SIGKILL:
        assert "bench: interrupted" in done.stderr
        assert ("This finishes the sweep:" in done.stderr) == began
    if began:
        records, problems = read_records(done.directory)
        assert problems == []
        assert len(records) == phase.startswith("between runs")
        assert (done.directory / "manifest.json").exists()
    else:
        assert not done.outputs.exists()


def test_fork_server_killed_with_the_command_leaves_nothing(start: Start, tmp_path: Path) -> None:
    """It removes the temporary files of a killed command; where it is killed, too, the run's processes do."""
    (tmp_path / "tmp").mkdir()
    command = start(
        *WAITING, "+model.args.at=12", cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"), TORCHINDUCTOR_CACHE_DIR="/tmp"
    )
    wait_until(lambda: is_reached(tmp_path), 120)
    assert list((tmp_path / "tmp").glob("pymp-*"))
    fork_server = psutil.Process(command.named("backend")).ppid()
    os.kill(fork_server, signal.SIGKILL)
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait(ENDED_S)
    command.assert_all_gone(ENDED_S)
    assert list((tmp_path / "tmp").iterdir()) == []


def marked(command: Command) -> bool:
    return any("nterrupted" in path.read_text("utf-8") for path in command.cwd.glob("outputs/default/*/summary.md"))


def test_fork_server_that_is_still_importing_ends_with_the_command(start: Start, tmp_path: Path) -> None:
    """Its import of torch takes a minute here, as on a cold disk."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "torch.py").write_text(
        "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path / "slow"), environment()["PYTHONPATH"]])
    command = start(cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"), PYTHONPATH=path)
    wait_until(lambda: (tmp_path / "importing").exists(), 60)
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait(ENDED_S)
    command.assert_all_gone(ENDED_S)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_second_signal_ends_without_waiting(start: Start, tmp_path: Path) -> None:
    """A complete sweep waits for the cumulative tables' lock: the first marks the tables, the second ends it there."""
    lock = FileLock(tmp_path / "outputs" / "results" / ".lock")
    (tmp_path / "outputs" / "results").mkdir(parents=True)
    with lock:
        command = start("-m", "repeat=range(1)", cwd=tmp_path)
        wait_until(lambda: "summary.md" in (tmp_path / "stdout").read_text("utf-8"), 120)
        os.kill(command.process.pid, signal.SIGINT)
        wait_until(lambda: marked(command), ENDED_S)
        assert command.process.poll() is None
        os.kill(command.process.pid, signal.SIGINT)
        assert command.wait(2).code == 130
    command.assert_all_gone()


_STARTED_LATE = """
import multiprocessing, os, signal, tempfile
from bench import child

os.environ["BENCH_TEMPORARY"] = tempfile.gettempdir()

def late(connection):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)
    child.start("builtins:print", None, connection, None)

ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=late, args=(theirs,))
process.start()
process.join(20)
print("exit code", process.exitcode)
"""


def test_ctrl_c_that_waits_for_a_starting_child_is_not_for_it() -> None:
    """A signal that came while the child was being made, when it has them blocked, is the supervisor's alone."""
    ended = subprocess.run([sys.executable, "-c", _STARTED_LATE], capture_output=True, text=True, timeout=60)
    assert "exit code 0" in ended.stdout
    assert "KeyboardInterrupt" not in ended.stderr
