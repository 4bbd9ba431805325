"""The checks of scripts/soak find what they are there for. The soak itself takes minutes and is not in the suite."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from make_records import make_record, write_run

from bench.results.record import Record

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
checks: Any = importlib.import_module("soak_checks")  # the scripts are no package


def failed(reason: str, process: str = "backend") -> Record:
    return make_record(status="failed", reasons=[reason], error={"process": process, "traceback": "soak_model.py"})


@pytest.mark.parametrize(
    ("event", "record", "right"),
    [
        (("signal", "backend", "SIGKILL"), failed("the backend was killed by SIGKILL in phase load"), True),
        (("signal", "backend", "SIGKILL"), failed("the backend was killed by SIGSEGV in phase load"), False),
        (("signal", "backend", "SIGKILL"), failed("the frontend was killed by SIGKILL in phase load"), False),
        (("signal", "backend", "SIGSTOP"), failed("the backend is stopped (SIGSTOP): nothing was answered"), True),
        (("signal", "sampler", "SIGKILL"), failed("the backend was killed by SIGKILL in phase load"), False),
        (("exception", "", ""), failed("backend: RuntimeError: soaked"), True),
        (("exception", "", ""), make_record(status="invalid", reasons=["9 of 9 answers are wrong"]), False),
        (("signal", "backend", "SIGKILL"), make_record(), True),  # it came too late
        (None, make_record(), True),
        (None, failed("nothing was answered for 2 s"), False),
    ],
)
def test_verdict_must_be_that_of_the_fault(event: tuple[str, ...] | None, record: Record, right: bool) -> None:
    """Each failed run names the process and the signal that met it, and no other run fails."""
    events = [] if event is None else [checks.Event(7, *event)]
    assert (list(checks.wrong_verdicts({7: record}, events)) == []) is right


def test_metrics_must_be_those_of_the_stamps(tmp_path: Path) -> None:
    """A record whose throughput is not what its requests' stamps give is named."""
    record = write_run(tmp_path / "0001", make_record(metrics={}), [(1 + k, 1.5 + k) for k in range(3)])
    assert list(checks.wrong_metrics([record])) == []
    record.metrics["throughput"] *= 1.01
    (problem,) = checks.wrong_metrics([record])
    assert problem.startswith("run 0001: throughput=")


def test_growth_is_found() -> None:
    """100 KiB and a descriptor a run, over 400 runs; steady use is none."""
    steady = [checks.Usage(100 * 2**20 + k % 3, 20 + k % 2) for k in range(400)]
    growing = [checks.Usage(100 * 2**20 + k * 100 * 2**10, 20 + k) for k in range(400)]
    assert list(checks.growth([steady])) == []
    assert len(list(checks.growth([steady, growing]))) == 2


def test_process_that_lives_on_is_found() -> None:
    """By the variable that all processes of a soak carry."""
    with subprocess.Popen(["sleep", "60"], env=os.environ | {"BENCH_SOAK": "test"}) as left:
        assert list(checks.living("test")) == [left.pid]
        left.kill()
    assert checks.living("test") == {}
