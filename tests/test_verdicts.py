"""Each reason for an invalid run, and each warning of a run's own course, provoked in real processes."""

from pathlib import Path

import pytest
from commands import Done
from conftest import Start

from bench.job import compose
from bench.measure import no_progress
from bench.results.record import Record
from bench.run import Job, run

REASONS = {
    "TurnsDouble": "the backend ran dtype=float64 where float32 was asked",
    "StampsBackwards": "stamps out of order in 1 requests, first d2h_start of request 5",
    "SentEarlier": "Little's law is broken",
    "AnswersTwice": "9 requests were due, 9 were sent and 8 answered",
    "WrongOnce": "1 of 9 answers are wrong",
}


@pytest.fixture(scope="module")
def spoilt(start: Start) -> Done:
    """A sweep over toys each of which spoils one thing."""
    targets = ",".join(f"toys.{name}" for name in REASONS)
    return start(f"model._target_={targets}", "repeat=range(1)", "-m").wait()


@pytest.mark.parametrize("toy", REASONS)
def test_what_would_make_a_number_wrong_makes_the_run_invalid(spoilt: Done, toy: str) -> None:
    """The run is invalid for that reason, the command says so, and nothing of it is averaged."""
    assert spoilt.code == 1
    (record,) = [one for one in spoilt.records if one.settings["model"]["_target_"] == f"toys.{toy}"]
    assert record.verdict.status == "invalid"
    assert any(reason.startswith(REASONS[toy]) for reason in record.verdict.reasons), record.verdict.reasons


def test_a_compilation_inside_the_window_makes_the_run_invalid(start: Start) -> None:
    """A guard that fails in the middle of the window costs a compilation there."""
    done = start("model._target_=toys.CompilesAgain", "compile=true", "stream_layout=async", "num_workers=1").wait()
    assert done.code == 1
    (record,) = done.records
    assert "the backend ran compilations_in_window=1 where 0 was asked" in record.verdict.reasons


def ran(tmp_path: Path, *overrides: str) -> Record:
    """The record of one small run in this process."""
    small = ("compile=false", "batch_size=1", f"cache_dir={tmp_path}/cache", "stream_layout=serial")
    return run(compose(*small, *overrides), tmp_path, Job(None, {}), no_progress)


@pytest.mark.flaky(reruns=2)  # as in test_truth: other load may hide what is provoked
def test_a_run_that_slows_down_is_called_unsteady(tmp_path: Path) -> None:
    """Passes that take up to three times as long at the end as at the start."""
    record = ran(
        tmp_path, "model=custom", "model._target_=toys.SlowsDown", "model.input_shape=[3,16,16]", "num_iters=90"
    )
    assert record.verdict.status == "valid"
    assert any(warning.startswith("unsteady: ") for warning in record.verdict.warnings), record.verdict.warnings


@pytest.mark.flaky(reruns=2)  # as in test_truth: other load may hide what is provoked
def test_a_load_beyond_the_backend_is_called_saturated(tmp_path: Path) -> None:
    """150 requests/s where 100 can be answered: the backlog grows, and by how much is said."""
    load = ["load=poisson", "load.rate=150", "num_iters=300"]
    record = ran(tmp_path, "model=simulated", "model.args.mean_ms=10", "model.input_shape=[1]", *load)
    assert record.verdict.status == "valid"
    (warning,) = [warning for warning in record.verdict.warnings if warning.startswith("saturated: ")]
    assert "the backlog grows by" in warning
    assert record.evidence["tail"]["stage"] == "queue_wait"
    assert "saturated" in record.evidence["tail"]["sentence"]


def test_one_payload_cannot_check_answers(tmp_path: Path) -> None:
    """Every answer is the same, right or wrong, and the run says that it could not tell."""
    record = ran(tmp_path, "model=noop", "payloads=1", "num_iters=30")
    assert any(warning.startswith("answers could not be checked") for warning in record.verdict.warnings)


def test_a_thinking_loop_ends_with_its_time(tmp_path: Path) -> None:
    """load.think_ms and duration_s alone: half a second of sending, and no more."""
    record = ran(tmp_path, "model=noop", "load=closed", "load.think_ms=20", "num_iters=null", "duration_s=0.5")
    assert record.verdict.status == "valid", record.verdict.reasons
    assert 0.3 < record.metrics["window"] < 0.7


def test_a_ramp_has_a_row_for_each_step(tmp_path: Path) -> None:
    """Two rates, two rows, each at the rate that was asked."""
    steps = "load.steps=[{rate: 100, requests: 40}, {rate: 200, requests: 40}]"
    record = ran(tmp_path, "model=noop", "load=ramp", steps)
    rates = [step["asked_rate"] for step in record.evidence["steps"]]
    assert rates == pytest.approx([100, 200], rel=0.05)


def test_a_sweep_goes_on_until_its_means_are_certain(start: Start) -> None:
    """An interval that no two runs can have: repeats are added up to their limit, as records of the sweep."""
    done = start("repeat=range(2)", "precision.relative_ci=0.0001", "precision.max_repeats=3", "-m").wait()
    assert done.code == 0, done.stderr
    assert sorted(record.settings["repeat"] for record in done.records) == [0, 1, 2]
    assert len({record.cell for record in done.records}) == 1
