"""Each process of a run killed, stopped or exiting in each phase: said in words, in time, and the next run is well."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import wait_until

from bench import child, fork_server, scratch, supervisor
from bench.config import Settings
from bench.errors import RunFailed
from bench.job import compose
from bench.measure import Outcome, measure, no_progress
from bench.process_state import is_stopped
from bench.run import Job, run
from bench.watch import Watch

NOTICED_S = 5.0
STALL_S = 0.5
PHASES = ["start", "load", "compile", "warm-up", "measuring", "check"]


def settings_of(toy: str, *overrides: str, **args: Any) -> Settings:
    return compose(
        "model=custom",
        f"model._target_=toys.{toy}",
        f"model.args={{{','.join(f'{key}: {value}' for key, value in args.items())}}}",
        "model.input_shape=[3,16,16]",
        "batch_size=1",
        "num_workers=2",
        "num_iters=8",
        f"stall_timeout_s={STALL_S}",
        f"compile={str(args.get('phase') == 'compile').lower()}",
        *overrides,
    )


class Fault:
    """A signal for one process of the next run as soon as the supervisor enters a phase."""

    def __init__(self, name: str, phase: str, number: int) -> None:
        self.name, self.phase, self.number = name, phase, number
        self.pids: list[int] = []
        self.at = 0.0

    @contextmanager
    def armed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator["Fault"]:
        enter = Watch._enter

        def entered(watch: Watch, phase: str) -> None:
            enter(watch, phase)
            if phase == self.phase and not self.pids:
                children = {child.name: child.pid for child in (watch.frontend, watch.backend, watch.sampler) if child}
                self.pids, self.at = list(children.values()), time.monotonic()
                pid = fork_server._pid() if self.name == "fork server" else children[self.name]
                assert pid is not None
                os.kill(pid, self.number)

        with monkeypatch.context() as patch:
            patch.setattr(Watch, "_enter", entered)
            yield self

    def assert_over(self) -> None:
        """It was noticed in time, and no process of the run is left."""
        assert self.pids, f"phase {self.phase} never began"
        assert time.monotonic() - self.at < NOTICED_S
        assert not [pid for pid in self.pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def faulty(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 30.0) -> Outcome:
    """What becomes of a run that is held in the fault's phase."""
    with fault.armed(monkeypatch):
        outcome = measure(settings_of("Acts", phase=fault.phase, seconds=seconds), tmp_path, no_progress)
    fault.assert_over()
    return outcome


def failed(outcome: Outcome, process: str, phase: str) -> str:
    """The reason of a run that failed as it should."""
    assert outcome.failure is not None
    assert outcome.failure.process == process, str(outcome.failure)
    # A process that starts may be ready before the fault reaches it.
    assert outcome.failure.phase in ((phase, "cold") if phase == "start" else (phase,)), str(outcome.failure)
    return str(outcome.failure).replace("phase cold", "phase start")


@pytest.mark.parametrize(
    ("phase", "number"), [*((phase, signal.SIGKILL) for phase in PHASES), ("load", signal.SIGSEGV)]
)
@pytest.mark.parametrize("name", ["frontend", "backend"])
def test_killed_process_is_named_with_phase_and_signal(
    name: str, phase: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frontend and backend in every phase; where it crashed, its stack is in the log's last lines."""
    outcome = faulty(Fault(name, phase, number), tmp_path, monkeypatch)
    assert failed(outcome, name, phase) == f"the {name} was killed by {number.name} in phase {phase}"
    if number == signal.SIGSEGV:
        assert "Segmentation fault" in outcome.logs[name]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["frontend", "backend"])
def test_stopped_process_is_named(name: str, phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop, which ends nothing and says nothing, is told from a model that takes long."""
    outcome = faulty(Fault(name, phase, signal.SIGSTOP), tmp_path, monkeypatch)
    assert failed(outcome, name, phase).startswith(f"the {name} is stopped (SIGSTOP)")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
@pytest.mark.parametrize("phase", ["start", "load", "measuring"])
def test_sampler_costs_its_own_figures_only(
    phase: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever becomes of it, the run ends well, at most 2 s later, and says why there is no telemetry."""
    outcome = faulty(Fault("sampler", phase, number), tmp_path, monkeypatch, seconds=0.1)
    assert outcome.failure is None
    assert outcome.report["backend"]
    assert outcome.samples == []
    words = "is stopped (SIGSTOP)" if number == signal.SIGSTOP else f"was killed by {number.name} in phase "
    assert outcome.no_samples is not None
    assert outcome.no_samples.startswith(f"the sampler {words}")


@pytest.mark.parametrize("phase", PHASES[1:])
def test_exiting_backend_is_named_with_its_code(phase: str, tmp_path: Path) -> None:
    """os._exit, as a library may: no exception, no last words."""
    outcome = measure(settings_of("Acts", phase=phase, action="exit"), tmp_path, no_progress)
    assert failed(outcome, "backend", phase) == f"the backend exited with code 7 in phase {phase}"


@pytest.mark.parametrize("phase", ["start", "warm-up", "measuring", "check"])
def test_exiting_frontend_is_named_with_its_code(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the frontend, at each of its own steps."""
    replace_body(monkeypatch, "frontend", "toys:leaving_frontend")
    outcome = measure(settings_of("Acts", phase=phase, seconds=1), tmp_path, no_progress)
    assert failed(outcome, "frontend", phase) == f"the frontend exited with code 7 in phase {phase}"


def replace_body(monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    started = supervisor.started

    def other(child: str, its_body: str, *rest: Any, **options: Any) -> Any:
        return started(child, body if child == name else its_body, *rest, **options)

    monkeypatch.setattr(supervisor, "started", other)


def test_sampler_that_raises_costs_its_own_figures_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is valid, warns with the sampler's error, and the traceback is in its log."""
    replace_body(monkeypatch, "sampler", "toys:raising_sampler")
    record = run(settings_of("Net", "num_iters=8"), tmp_path, Job(None, {}), no_progress)
    assert record.verdict.status == "valid"
    assert "no telemetry of the GPU and the host: sampler: RuntimeError: no such counter" in record.verdict.warnings
    assert "in raising_sampler" in (tmp_path / "sampler.log").read_text()


def test_last_lines_of_the_log_are_in_the_record(tmp_path: Path) -> None:
    """50 of them, of the process that failed."""
    record = run(settings_of("Acts", phase="measuring", action="exit"), tmp_path, Job(None, {}), no_progress)
    assert record.error is not None
    assert record.error["log"].splitlines() == [f"line {k}" for k in range(10, 60)]


@pytest.mark.parametrize(("toy", "queue"), [("RaisesInThreadOfItsOwn", "shared_memory"), ("CannotBeSent", "torch")])
def test_exception_in_any_thread_fails_the_run_with_its_traceback(toy: str, queue: str, tmp_path: Path) -> None:
    """In a thread that the model started, and in the one that torch's queue sends answers with."""
    outcome = measure(settings_of(toy, f"queue={queue}", "stall_timeout_s=60"), tmp_path, no_progress)
    assert failed(outcome, "backend", "measuring") == "backend: RuntimeError: a fault of the toy"
    assert outcome.failure is not None
    assert "toys.py" in outcome.failure.traceback


def test_child_stopped_in_the_middle_of_a_message_is_given_up() -> None:
    """The read that has begun does not wait for its rest without end."""
    with pytest.raises(RunFailed, match="the helper stopped in the middle of a message"):
        supervisor.call("helper", "toys:half_a_message", None, timeout_s=30)


def test_child_that_the_supervisor_lets_go_of_takes_nothing_with_it() -> None:
    """As where the fork server was killed: it ends, and the temporary directory of the living supervisor stays."""
    context = fork_server.context()
    ours, theirs = context.Pipe()
    process: Any = context.Process(target=child.start, args=("toys:waits_long", None, theirs, None))
    fork_server.start(process, 60)
    assert ours.recv() == ("started", None)
    pid = process.pid
    process._popen.finalizer()
    wait_until(lambda: not is_alive(pid), NOTICED_S)
    assert scratch.directory().is_dir()


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGKILL, 30), (signal.SIGSTOP, 0.1)])
def test_fork_server_is_started_anew(
    number: signal.Signals, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its death fails the run, which cannot be watched without it; a stop harms nothing. The next run is well."""
    before = fork_server._pid()
    outcome = faulty(Fault("fork server", "load", number), tmp_path, monkeypatch, seconds)
    if number == signal.SIGKILL:
        assert failed(outcome, "fork server", "load").startswith("the fork server was killed by SIGKILL in phase load")
    else:
        assert outcome.failure is None
        assert outcome.samples
    assert measure(settings_of("Net"), tmp_path, no_progress).failure is None
    assert fork_server._pid() != before


def test_fork_server_that_starts_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped just before a process is asked of it: the wait for an answer has an end."""
    server = fork_server._pid()
    monkeypatch.setattr(fork_server, "end_if_stopped", lambda: stop(server))
    outcome = measure(settings_of("Net"), tmp_path, no_progress)
    monkeypatch.undo()
    said = "the fork server is stopped (SIGSTOP) or hangs: it started no backend"
    assert failed(outcome, "fork server", "start") == said


def test_stopped_process_of_the_backend_is_named(tmp_path: Path) -> None:
    """One that it started and waits for, such as a compiler."""
    outcome = measure(settings_of("Acts", phase="load", action="wait"), tmp_path, no_progress)
    assert re.match(
        r"process \d+, which the backend started, is stopped \(SIGSTOP\)", failed(outcome, "backend", "load")
    )


def stop(pid: int | None) -> bool:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    while not is_stopped(pid):
        time.sleep(0.01)
    return True
