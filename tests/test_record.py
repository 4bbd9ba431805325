"""A record is on disk whole or not at all, and is read back as it was or refused with a reason."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_records import make_record

from bench.results.record import Record, RecordError, Verdict, read_record, write_record, write_requests

TEXT = st.text(max_size=300)
quick = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_read_gives_back_what_was_written(tmp_path: Path) -> None:
    """File and directory are both good names of a record, and nothing is lost on the way."""
    record = replace(
        make_record(status="failed", reasons=["killed"], warnings=["short"], job=3),
        error={"process": "backend", "phase": "load", "reason": "killed", "traceback": "a\nb", "log": None},
        directory=tmp_path,
    )
    file = write_record(tmp_path, record)
    assert read_record(tmp_path) == read_record(file) == record
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


@quick
@given(experiment=TEXT, reason=TEXT, metric=st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_and_number_survives(tmp_path: Path, experiment: str, reason: str, metric: float) -> None:
    """Unicode, control characters and extreme floats are read back exactly."""
    verdict = Verdict("invalid", [reason], [])
    record = make_record(experiment=experiment, verdict=verdict, metrics={"x": metric}, directory=tmp_path)
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record


def test_undecodable_file_name_in_a_text_survives(tmp_path: Path) -> None:
    """A lone surrogate, which UTF-8 cannot hold, neither loses the record nor changes."""
    write_record(tmp_path, make_record(status="failed", reasons=["no file \udcff"]))
    (tmp_path / "metrics.json").read_text(encoding="utf-8")
    assert read_record(tmp_path).verdict.reasons == ["no file \udcff"]


def test_record_truncated_at_each_length_is_refused(tmp_path: Path) -> None:
    """No shorter file passes for a record, not even one byte shorter."""
    content = write_record(tmp_path, make_record(experiment="Größe ± 1")).read_bytes()
    cut = tmp_path / "cut.json"
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        with pytest.raises(RecordError, match=r"cut\.json: "):
            read_record(cut)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "1", None, True, 10**400])
def test_metric_that_is_no_finite_number_is_not_written(tmp_path: Path, bad: Any) -> None:
    """The writer refuses it, names it where it can, and leaves no file behind."""
    with pytest.raises(RecordError, match="not written"):
        write_record(tmp_path, make_record(metrics={"throughput": bad}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [math.nan, {1, 2}, numpy.int64(1)])
def test_other_value_that_json_lacks_is_not_written(tmp_path: Path, bad: Any) -> None:
    """NaN or an object in the environment is an error of the writer, not of a later reader."""
    with pytest.raises(RecordError, match="not written"):
        write_record(tmp_path, make_record(environment={"load": bad}))
    assert list(tmp_path.iterdir()) == []


def test_numpy_numbers_are_written_as_plain_ones(tmp_path: Path) -> None:
    """A metric straight from numpy does not cost the record."""
    write_record(tmp_path, make_record(metrics={"a": numpy.float32(0.5), "b": numpy.int64(2)}))
    assert read_record(tmp_path).metrics == {"a": 0.5, "b": 2.0}


def test_failed_write_leaves_the_old_record_and_no_other_file(tmp_path: Path) -> None:
    """Where the new file cannot take its place, the temporary one is removed."""
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_record(tmp_path, make_record())
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", 2, "record format 2; this version reads format 1"),
        ("format", True, "format: must be int"),
        ("experiment", 3, "experiment: must be str, not int"),
        ("job", True, "job: must be int or null, not bool"),
        ("started_at", "yesterday", "yesterday"),
        ("started_at", "2025-01-31T12:00:00", "time zone"),
        ("settings", [], "settings: must be dict"),
        (
            "settings",
            {"batch_size": "../x", "compile": True, "repeat": 0},
            "settings.batch_size: must be int",
        ),
        ("settings", {"batch_size": 1, "compile": 1, "repeat": 0}, "settings.compile: must be bool"),
        ("settings", {"batch_size": 1}, "no such key: settings.compile, settings.repeat"),
        ("metrics", {"throughput": None}, "metrics.throughput=None"),
        ("metrics", {"throughput": 10**400}, "too large"),
        ("verdict", {"status": "good", "reasons": [], "warnings": []}, "verdict.status='good'"),
        ("verdict", {"status": "valid", "reasons": [1], "warnings": []}, "lists of texts"),
        ("verdict", {"status": "valid"}, "no such key: verdict.reasons, verdict.warnings"),
        ("error", "text", "error: must be dict or null"),
    ],
)
def test_wrong_value_is_refused_by_name(tmp_path: Path, key: str, value: Any, words: str) -> None:
    """The message names the file, the key and what is wrong with it."""
    file = write_record(tmp_path, make_record())
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(RecordError) as caught:
        read_record(tmp_path)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)


def test_each_missing_key_is_named(tmp_path: Path) -> None:
    """A record that lacks any one of its keys is refused with the name of that key."""
    file = write_record(tmp_path, make_record())
    values = json.loads(file.read_text())
    for key in values:
        file.write_text(json.dumps({k: v for k, v in values.items() if k != key}))
        with pytest.raises(RecordError, match=f"no such key: {key}$"):
            read_record(file)


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"format": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, other JSON, NaN, other encodings and endless nesting all give the one error."""
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(RecordError, match=r"metrics\.json: "):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (make_record(warnings=["short"]), []),
        (make_record(status="invalid", reasons=["a", "b"]), ["a", "b"]),
        (make_record(status="failed", error={"reason": "killed"}), ["killed"]),
        (make_record(status="failed"), ["no reason recorded"]),
    ],
)
def test_each_run_that_does_not_count_has_a_reason(record: Record, expected: list[str]) -> None:
    """The verdict's reasons, else the error's, else a word that says there is none."""
    assert record.reasons == expected


def test_requests_are_a_row_each(tmp_path: Path) -> None:
    """Columns keep their types and exact nanoseconds, and no temporary file stays."""
    sent = numpy.array([2**62 + 1, 2**62 + 3], dtype=numpy.int64)
    write_requests(tmp_path, {"sent": sent, "right": numpy.array([True, False])})
    table = pyarrow.parquet.read_table(tmp_path / "requests.parquet")
    assert table.to_pydict() == {"sent": [2**62 + 1, 2**62 + 3], "right": [True, False]}
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]
