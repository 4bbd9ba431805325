"""Cells, axes, verdicts and statistics follow from the records alone."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_records import make_record

from bench.results.record import Record
from bench.results.statistics import Statistic
from bench.results.summary import summarize, swept_axes


def axes(*changes: dict[str, Any]) -> dict[str, str]:
    return swept_axes(make_record(change) for change in changes)


def test_mean_and_sample_deviation_equal_those_by_hand() -> None:
    """2, 4, 9: mean 5, squared deviations 9 + 1 + 16 = 26, over n - 1 = 2 that is 13."""
    assert Statistic.of([2.0, 4.0, 9.0]) == Statistic(5.0, 13.0**0.5, 3)


def test_one_run_has_no_deviation() -> None:
    """A single value has a mean and no std, neither 0 nor NaN."""
    assert Statistic.of([2.5]) == Statistic(2.5, None, 1)


def test_swept_settings_are_the_axes_in_reading_order() -> None:
    """batch_size and compile first, then workers, layout and queue, then the rest by name."""
    order = ["batch_size", "compile", "num_workers", "stream_layout", "queue", "load", "seed"]
    changed = {
        "seed": 1,
        "load.name": "closed",
        "load.clients": 3,
        "queue.name": "torch",
        "stream_layout.name": "serial",
        "num_workers": 1,
        "compile": False,
        "batch_size": 1,
    }
    assert list(axes({}, changed)) == order


def test_repeat_and_keys_that_change_no_number_are_no_axes() -> None:
    """Runs that differ in these only are shown by batch_size and compile."""
    other = {"repeat": 1, "experiment": "x", "output_dir": "y", "progress": False, "model_dir": "z"}
    assert axes({}, other) == {"batch_size": "batch_size", "compile": "compile"}


def test_key_that_follows_from_its_group_is_left_out() -> None:
    """load=burst against load=closed is one axis, although load.clients differs too."""
    assert axes({}, {"load.name": "closed", "load.clients": 1}) == {"load": "load.name"}


def test_key_that_does_not_follow_from_its_group_is_an_axis() -> None:
    """burst, closed with 1 and closed with 2 clients need both axes to be told apart."""
    closed = {"load.name": "closed", "load.clients": 1}
    assert axes({}, closed, closed | {"load.clients": 2}) == {
        "load": "load.name",
        "load.clients": "load.clients",
    }


def test_values_that_python_calls_equal_are_told_apart() -> None:
    """A model argument of 1, 1.0 and true makes three cells and an axis."""
    records = [make_record({"model.args": {"x": value}}) for value in (True, 1, 1.0)]
    assert swept_axes(records) == {"model.args.x": "model.args.x"}
    assert [str(cell.axes["model.args.x"]) for cell in summarize(records).cells] == ["True", "1", "1.0"]


@pytest.mark.parametrize(
    ("key", "ordered"),
    [
        ("batch_size", [1, 2, 10, 256]),
        ("compile", [False, True]),
        ("stream_layout.intraop_threads", [None, 1, 2, 16]),
        ("model.name", ["B", "a", "resnet101", "resnet18"]),
        ("model.input_shape", [[3, 64, 64], [3, 128, 128]]),
        ("model.args.x", [None, False, True, 2, 10.5, "1", "a", [1, None], [2]]),
    ],
)
def test_rows_are_in_the_order_of_their_values(key: str, ordered: list[Any]) -> None:
    """Null first, false before true, numbers as numbers, else as text, whatever order they ran in."""
    for seed in range(3):
        records = [make_record({key: value}) for value in ordered]
        random.Random(seed).shuffle(records)
        assert [cell.settings[key] for cell in summarize(records).cells] == ordered


def test_null_on_an_axis_keeps_its_cell() -> None:
    """A sweep over null and 2 has two cells."""
    records = [make_record({"stream_layout.intraop_threads": threads}) for threads in (None, 2, None)]
    assert [(list(cell.axes.values()), cell.n) for cell in summarize(records).cells] == [
        ([None], 2),
        ([2], 1),
    ]


def test_duplicates_join_one_cell() -> None:
    """batch_size=1,1 is one cell whose n counts both."""
    summary = summarize([make_record({"batch_size": 1}), make_record({"batch_size": 1})])
    assert [cell.n for cell in summary.cells] == [2]


def test_experiments_are_not_averaged_together() -> None:
    """The same settings under two names are two rows, in the order they began."""
    summary = summarize([make_record({"experiment": name}) for name in ("b", "a", "b")])
    assert [(cell.experiment, cell.n) for cell in summary.cells] == [("b", 2), ("a", 1)]


def test_only_valid_runs_are_averaged() -> None:
    """Numbers of an invalid or failed run reach no mean, those of a warned run do."""
    cell = summarize(
        [
            make_record(metrics={"throughput": 10}),
            make_record(metrics={"throughput": 30}, warnings=["short"]),
            make_record(metrics={"throughput": 1e9}, status="invalid", reasons=["wrong answers"]),
            make_record(metrics={"throughput": 1e9}, status="failed", reasons=["killed"]),
        ]
    ).cells[0]
    assert cell.n == 2
    assert cell.metrics == {"throughput": Statistic(20.0, 200.0**0.5, 2)}


def test_metric_that_a_run_lacks_is_averaged_over_the_others() -> None:
    """Absent is not 0, and the statistic knows its own n."""
    records = [make_record(metrics=metrics) for metrics in ({"a": 1.0}, {"a": 3.0, "b": 5.0})]
    assert summarize(records).cells[0].metrics == {
        "a": Statistic(2.0, 2.0**0.5, 2),
        "b": Statistic(5.0, None, 1),
    }


VALID, WARNED = make_record(), make_record(warnings=["short"])
WRONG = make_record(status="invalid", reasons=["wrong answers"])
KILLED = make_record(status="failed", reasons=["killed"])


@pytest.mark.parametrize(
    ("records", "verdict", "explained"),
    [
        ([VALID, VALID], "valid", "valid"),
        ([VALID, WARNED], "valid (warnings)", "valid (warnings)"),
        ([WRONG, WRONG], "INVALID", "INVALID (wrong answers)"),
        ([KILLED], "FAILED", "FAILED (killed)"),
        ([WRONG, KILLED, KILLED], "FAILED", "1 INVALID (wrong answers), 2 FAILED (killed)"),
        ([VALID, KILLED, WARNED], "2 of 3 runs: 1 FAILED (killed)", "2 of 3 runs: 1 FAILED (killed)"),
    ],
)
def test_verdict_says_how_many_runs_count_and_why(records: list[Record], verdict: str, explained: str) -> None:
    """The words of each mixture of runs."""
    cell = summarize(records).cells[0]
    assert (cell.verdict, cell.explained) == (verdict, explained)


def test_long_reason_is_short_and_on_one_line_in_a_verdict() -> None:
    """A traceback does not blow up a table."""
    cell = summarize([VALID, make_record(status="failed", reasons=["line\n" * 100])]).cells[0]
    assert len(cell.verdict) < 100
    assert "\n" not in cell.verdict


def test_nothing_gives_an_empty_summary() -> None:
    """No records, no cells, and the two standing axes."""
    summary = summarize([])
    assert (summary.axes, summary.cells) == (["batch_size", "compile"], [])


VALUE = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5))
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUE | st.lists(VALUE, max_size=2))


@settings(max_examples=50, deadline=None)
@given(st.lists(ARGUMENTS, max_size=6))
def test_no_run_is_lost_and_no_two_cells_look_alike(arguments: list[dict[str, Any]]) -> None:
    """Whatever the values of the arguments, each run is in one cell, and cells differ in an axis."""
    summary = summarize([make_record({"model.args": value}) for value in arguments])
    assert sum(len(cell.records) for cell in summary.cells) == len(arguments)
    assert len({repr(cell.axes) for cell in summary.cells}) == len(summary.cells)
