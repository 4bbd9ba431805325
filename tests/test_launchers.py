"""The same sweep under Hydra's launchers: the same table, the same exit code, and nothing that outlives the command."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from commands import Command, Done, rows, wait_until
from conftest import Start

from bench.results.records import read_records

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "allow_shared_device=true")
LAUNCHERS = {
    "basic": (),
    "joblib in the command": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=1"),
    "joblib": JOBLIB,
    "submitit": ("hydra/launcher=submitit_local",),
}
SHARED = "shared device: other runs used it at the same time (allow_shared_device=true)"


@pytest.fixture(scope="module")
def sweeps(start: Start) -> dict[str, Done]:
    """A good cell and one that fails, under each launcher."""
    commands = {
        name: start("model._target_=toys.TellsThreads", "batch_size=1,2", "repeat=range(1)", "-m", *overrides)
        for name, overrides in LAUNCHERS.items()
    }
    return {name: command.wait() for name, command in commands.items()}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_changes_nothing(sweeps: dict[str, Done], name: str) -> None:
    """Table, exit code, threads and the command that the record names are those of the basic launcher."""
    basic, done = sweeps["basic"], sweeps[name]
    assert done.code == basic.code == 1, done.stderr
    kept = ("experiment", "batch_size", "n", "verdict")
    tables = [[[row[key] for key in kept] for row in rows(sweep.directory / "summary.csv")] for sweep in (basic, done)]
    assert tables[0] == tables[1]
    assert [row[2] for row in tables[1]] == ["1", "0"]
    assert [run.name for run in sorted(done.directory.glob("0*"))] == ["0000", "0001"]
    good = [record for record in done.records if record.verdict.status == "valid"]
    assert good[0].backend["intraop_threads"] == basic.records[0].backend["intraop_threads"]
    for record in done.records:
        assert record.environment["command"] == basic.records[0].environment["command"] + "".join(
            f" {override}" for override in LAUNCHERS[name]
        )
        assert name == "joblib" or SHARED not in record.verdict.warnings
    told = {path.read_text() for path in done.outputs.parent.glob("threads-*")}
    assert told == {str(os.environ.get("OMP_NUM_THREADS"))}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_result_of_every_run_is_shown_once(sweeps: dict[str, Done], name: str) -> None:
    """On the terminal, with its cell, wherever it took place."""
    for number in (1, 2):
        start = f"run {number} of 2: batch_size={number}: "
        lines = [line for line in sweeps[name].stderr.splitlines() if line.startswith(start)]
        assert len([line for line in lines if "samples/s" in line or "FAILED" in line]) == 1, sweeps[name].stderr


LASTING = ("model._target_=toys.Slow", "num_iters=5,9999", "repeat=range(1)", "-m", "allow_shared_device=true")
ENDS = [
    ("joblib", signal.SIGINT, 130),
    ("joblib", signal.SIGKILL, -signal.SIGKILL),
    ("submitit", signal.SIGTERM, 143),
]


@pytest.fixture(scope="module")
def endless(start: Start) -> dict[tuple[str, int], Command]:
    """A command for each launcher and signal: a short run and one that lasts minutes, side by side."""
    return {(name, number): start(*LASTING, *LAUNCHERS[name][:2]) for name, number, _ in ENDS}


def test_killed_worker_ends_the_sweep_in_words(start: Start) -> None:
    """Not a process of the run, which fails it, but the one that waits for it: what is done is in the tables."""
    command = start(*LASTING, *LAUNCHERS["submitit"])
    wait_until(lambda: first_is_done(command), 180)
    os.kill(worker(command), signal.SIGKILL)
    done = command.wait(30)
    command.assert_all_gone()
    assert done.code == 1
    assert "bench: the launcher gave up: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "bench: broke off, of 2 runs: 1 missing. This finishes the sweep:" in done.stderr
    assert len(rows(done.directory / "runs.csv")) == 1


def worker(command: Command) -> int:
    """Process id of the worker whose run is not over."""
    backends = [pid for pid, output in command.processes().items() if output.endswith("/backend.log")]
    return psutil.Process(psutil.Process(backends[0]).ppid()).ppid()


def first_is_done(command: Command) -> bool:
    """Of its two runs, the other of which lasts."""
    assert command.process.poll() is None, (command.cwd / "stderr").read_text()
    return len(list(command.cwd.glob("backend-*"))) == 2 and any(command.cwd.glob("outputs/*/*/*/metrics.json"))


@pytest.mark.parametrize(("name", "number", "code"), ENDS)
def test_nothing_outlives_the_command(
    endless: dict[tuple[str, int], Command], name: str, number: signal.Signals, code: int
) -> None:
    """Workers and what they started are gone in 5 s; where it can, the command leaves tables of the finished run."""
    command = endless[name, number]
    wait_until(lambda: first_is_done(command), 180)
    os.kill(command.process.pid, number)
    done = command.wait(10)
    command.assert_all_gone()
    assert done.code == code
    records, problems = read_records(done.directory)
    assert (len(records), problems) == (1, [])
    if number != signal.SIGKILL:
        assert len(rows(done.directory / "runs.csv")) == 1
        assert "1 of 2 runs" in (done.directory / "summary.md").read_text("utf-8")
        assert "Traceback" not in done.stderr
    assert not list(Path("/dev/shm").glob(f"*{command.process.pid}*"))
