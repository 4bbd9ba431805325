"""Processes that fail, die, stall or are interrupted: noticed in time, said in words, and nothing is left behind."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import Command, Done, rows, wait_until
from conftest import Start

from bench import supervisor
from bench.errors import RunFailed
from bench.results.record import Record
from bench.results.records import read_records

NOTICED_S = 5.0
STALL_S = 4.0


def in_shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def in_use() -> set[str]:
    """Names there that a living process, such as another user's, has mapped."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found |= {Path(area.path).name for area in process.memory_maps() if area.path.startswith("/dev/shm/")}
    return found


def call(body: str, setup: Any = None, timeout_s: float = 60.0) -> Any:
    return supervisor.call("helper", f"toys:{body}", setup, timeout_s=timeout_s)


def test_call_returns_what_the_child_sends() -> None:
    """A child's `done` is the answer; messages before it are passed on."""
    heard: list[tuple[str, Any]] = []
    answer = supervisor.call(
        "helper", "toys:answer", 20, timeout_s=60, on_message=lambda kind, content: heard.append((kind, content))
    )
    assert (answer, heard) == (21, [("download", "half")])


def test_exception_of_a_child_comes_with_its_traceback() -> None:
    """The reason names process and exception, and the child's own lines are kept."""
    with pytest.raises(RunFailed, match=r"^helper: KeyError: 'colour'$") as caught:
        call("raise_key_error")
    assert caught.value.process == "helper"
    assert "in raise_key_error" in caught.value.traceback


@pytest.mark.parametrize(("body", "words"), [("be_killed", "was killed by SIGKILL"), ("leave", "exited with code 3")])
def test_death_of_a_child_is_noticed_at_once(body: str, words: str) -> None:
    """A child without last words: how it ended is said within seconds, though a minute was allowed."""
    call("answer", 0)  # the fork server is there
    began = time.monotonic()
    with pytest.raises(RunFailed, match=f"^the helper {words} in phase helper$"):
        call(body)
    assert time.monotonic() - began < NOTICED_S


def test_silent_child_is_ended_with_what_it_started() -> None:
    """A child that sleeps is given up after the time-out; it and its own child are gone."""
    with pytest.raises(RunFailed, match=r"^helper said nothing for 1 s$"):
        supervisor.call("helper", "toys:sleep_with_a_child", None, timeout_s=1, on_message=lambda _k, c: pids.extend(c))
    assert len(pids) == 2
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), NOTICED_S)  # type: ignore[misc]  # mypy and defaults


pids: list[int] = []


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


FAULTS = {  # what becomes of each toy: status, process, phase and words of the reason
    "Net": ("valid", "", "", ""),
    "RaisesAtOnce": ("failed", "backend", "load", "backend: RuntimeError: a fault of the toy"),
    "RaisesInThread": ("failed", "backend", "measuring", "backend: RuntimeError: a fault of the toy"),
    "RaisesInCheck": ("failed", "backend", "check", "backend: RuntimeError: a fault of the toy"),
    "KilledInLoad": ("failed", "backend", "load", "the backend was killed by SIGKILL in phase load"),
    "KilledInWarmUp": ("failed", "backend", "warm-up", "the backend was killed by SIGKILL in phase warm-up"),
    "Killed": ("failed", "backend", "measuring", "the backend was killed by SIGKILL in phase measuring"),
    "Exits": ("failed", "backend", "measuring", "the backend exited with code 3 in phase measuring"),
    "Stalls": ("failed", "backend", "measuring", f"nothing was answered for {STALL_S:g} s in phase measuring"),
    "WrongOnce": ("invalid", "", "", "1 of 9 answers are wrong, first that to request "),
    "NotANumberOnce": ("invalid", "", "", "1 of 9 answers are wrong, first that to request "),
    "BreaksLayout": ("invalid", "", "", "answers are wrong, first that to request "),
}


@pytest.fixture(scope="module")
def faults(start: Start) -> tuple[Done, Command, set[str]]:
    """One sweep over all ways to go wrong, with a good run at its begin and its end."""
    before = in_shared_memory()
    targets = ",".join(f"toys.{name}" for name in FAULTS)
    command = start(f"model._target_={targets}", f"stall_timeout_s={STALL_S}", "queue=torch", "repeat=range(1)", "-m")
    return command.wait(), command, before


def of(faults: tuple[Done, Command, set[str]], toy: str) -> Record:
    return faults[0].by("model._target_")[f"toys.{toy}"]


def test_every_run_of_a_sweep_full_of_faults_has_its_record(faults: tuple[Done, Command, set[str]]) -> None:
    """All of them are recorded and in the table, and the exit code is 1."""
    done = faults[0]
    assert done.code == 1, done.stderr
    assert [record.settings["model"]["_target_"][5:] for record in done.records] == list(FAULTS)
    cells = {row["model._target_"][5:]: row for row in rows(done.directory / "summary.csv")}
    assert {name: row["n"] for name, row in cells.items()} == {name: str(int(name == "Net")) for name in FAULTS}
    for name, row in cells.items():
        assert {"valid": "valid", "failed": "FAILED", "invalid": "INVALID"}[FAULTS[name][0]] in row["verdict"]


@pytest.mark.parametrize("toy", FAULTS)
def test_fault_is_said_in_words(faults: tuple[Done, Command, set[str]], toy: str) -> None:
    """Status, reason, process and phase of each; a failed run's reason is on the terminal as well."""
    status, process, phase, words = FAULTS[toy]
    record = of(faults, toy)
    assert record.verdict.status == status, record.reasons
    assert words in " ".join(record.reasons)
    assert words in faults[0].stderr
    if status == "failed":
        assert record.error is not None
        assert (record.error["process"], record.error["phase"]) == (process, phase)
        assert record.error["reason"] == record.reasons[0]
    else:
        assert record.error is None


@pytest.mark.parametrize("toy", ["RaisesAtOnce", "RaisesInThread", "RaisesInCheck"])
def test_traceback_of_a_raised_fault_is_kept(faults: tuple[Done, Command, set[str]], toy: str) -> None:
    """Down to the toy's line, from whichever thread."""
    error = of(faults, toy).error
    assert error is not None
    assert "toys.py" in error["traceback"]
    assert "in fault" in error["traceback"]


@pytest.mark.parametrize("toy", [name for name, fault in FAULTS.items() if fault[0] == "failed"])
def test_fault_is_noticed_within_seconds(faults: tuple[Done, Command, set[str]], toy: str) -> None:
    """No phase of a failed run took longer than 5 s beyond what a stall must take."""
    phases = of(faults, toy).environment["phases_s"]
    assert max(phases.values()) < NOTICED_S + STALL_S * (toy == "Stalls")


def test_wrong_answers_are_counted(faults: tuple[Done, Command, set[str]]) -> None:
    """Of the layout that answers with the output before, nearly every answer in the window is wrong."""
    count = int(of(faults, "BreaksLayout").reasons[0].split()[0])
    assert 4 <= count <= 8


def test_nothing_is_left_of_it(faults: tuple[Done, Command, set[str]]) -> None:
    """No process, not even one that a backend started itself, and nothing in /dev/shm."""
    _, command, before = faults
    command.assert_all_gone()

    def left() -> set[str]:
        return in_shared_memory() - before - in_use()

    wait_until(lambda: not left(), NOTICED_S, lambda: str(left()))


def running(command: Command, runs: int) -> None:
    """Wait until `command` is in the middle of the run after `runs` finished ones."""

    def is_there() -> bool:
        assert command.process.poll() is None, (command.cwd / "stderr").read_text()
        return len(list(command.cwd.glob("backend-*"))) > runs

    wait_until(is_there, 120)
    time.sleep(0.3)  # into the window


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


@pytest.fixture(scope="module")
def sweeps(start: Start) -> dict[signal.Signals, Command]:
    """A command for each signal, of a short run and one that lasts minutes; started together, since that is slow."""
    return {
        number: start("model._target_=toys.Slow", "num_iters=5,9999", "repeat=range(1)", "queue=torch", "-m")
        for number in SIGNALS
    }


@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
def test_signal_ends_everything(sweeps: dict[signal.Signals, Command], number: signal.Signals, code: int) -> None:
    """In the middle of the second run: all processes are gone in 5 s; where it can, it leaves tables of the first."""
    command = sweeps[number]
    running(command, runs=1)
    children = command.processes()
    assert {"frontend", "backend", "sampler"} <= {Path(output).stem for output in children.values()}
    os.kill(command.process.pid, number)
    done = command.wait(NOTICED_S)
    command.assert_all_gone()
    assert done.code == code
    assert not [name for name in in_shared_memory() for pid in children if f"_{pid}_" in name]
    records, problems = read_records(done.directory)
    assert (len(records), problems) == (1, [])
    if number != signal.SIGKILL:
        assert len(rows(done.directory / "runs.csv")) == 1
        markdown = (done.directory / "summary.md").read_text("utf-8")
        assert "nterrupted" in markdown
        assert "1 of 2 runs" in markdown
        assert "bench: interrupted" in done.stderr
        assert "Traceback" not in done.stderr
