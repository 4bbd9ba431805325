"""All records of a directory: in order, each read once, and read again when it has changed."""

import os
import tracemalloc
from pathlib import Path

import pytest
from make_records import make_record, write_sweep

from bench.results import records as module
from bench.results.record import RecordError, read_record, write_record
from bench.results.records import read_records

MOST_BYTES = 5000  # of memory for one record of a cell more; it takes 6,400 where nothing is shared


def test_records_are_found_here_and_one_level_below_oldest_first(tmp_path: Path) -> None:
    """A single run and the runs of a sweep are found, in the order of their start, whatever their names."""
    write_sweep(tmp_path, *(make_record({"repeat": i}, seconds=second) for i, second in enumerate([30, 20, 10])))
    write_record(tmp_path, make_record({"repeat": 3}, seconds=15))
    (tmp_path / "running" / "deeper").mkdir(parents=True)
    write_record(tmp_path / "running" / "deeper", make_record({"repeat": 4}))
    records, problems = read_records(tmp_path)
    assert [record.settings["repeat"] for record in records] == [2, 3, 1, 0]
    assert [record.directory.name for record in records] == ["2", tmp_path.name, "1", "0"]
    assert problems == []


def test_times_are_compared_as_times(tmp_path: Path) -> None:
    """A Z for UTC and a missing fraction do not change the order."""
    early = make_record({"repeat": 1}, started_at="2025-01-31T12:00:00Z")
    late = make_record({"repeat": 2}, started_at="2025-01-31T12:00:00.000001+00:00")
    write_sweep(tmp_path, late, early)
    assert [record.settings["repeat"] for record in read_records(tmp_path)[0]] == [1, 2]


def test_unreadable_record_is_a_problem_line_and_costs_no_other(tmp_path: Path) -> None:
    """One broken record among good ones is reported with its file."""
    write_sweep(tmp_path, make_record(), make_record({"repeat": 1}))
    (tmp_path / "0" / "metrics.json").write_text("{")
    (tmp_path / "2" / "metrics.json").mkdir(parents=True)
    records, problems = read_records(tmp_path)
    assert len(records) == 1
    assert len(problems) == 2
    assert all("metrics.json: " in line for line in problems)


def test_missing_directory_has_no_records(tmp_path: Path) -> None:
    """Looking where nothing is, is no error."""
    assert read_records(tmp_path / "nowhere") == ([], [])


def test_record_is_read_again_only_where_its_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two runs the one that is written anew, to the same size and time, is read; one that is gone is forgotten."""
    write_sweep(tmp_path, make_record(metrics={"throughput": 1.0}), make_record({"repeat": 1}, seconds=1))
    read: list[str] = []

    def reading(directory: Path) -> object:
        read.append(directory.name)
        return read_record(directory)

    monkeypatch.setattr(module, "read_record", reading)
    first, _ = read_records(tmp_path)
    again, _ = read_records(tmp_path)
    assert again == first
    file = tmp_path / "0" / "metrics.json"
    before = file.stat()
    write_record(tmp_path / "0", make_record(metrics={"throughput": 2.0}))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    records, _ = read_records(tmp_path)
    assert records[0].metrics == {"throughput": 2.0}
    assert [name for name in read if name in "01"] == ["0", "1", "0"]
    file.unlink()
    assert [record.settings["repeat"] for record in read_records(tmp_path)[0]] == [1]
    file.write_text("{")
    assert len(read_records(tmp_path)[1]) == 1
    with pytest.raises(RecordError):
        read_record(tmp_path / "0")


def test_record_takes_little_memory(tmp_path: Path) -> None:
    """What records share, such as most settings and the environment, is in memory once."""
    write_sweep(tmp_path, *(make_record({"repeat": repeat}, seconds=repeat) for repeat in range(60)))
    few = write_sweep(tmp_path / "few", make_record({"repeat": 99}))
    read_records(few)
    tracemalloc.start()
    records, _ = read_records(tmp_path)
    size = tracemalloc.get_traced_memory()[0] / len(records)
    tracemalloc.stop()
    assert size < MOST_BYTES
    assert records[0].settings["model"] is records[59].settings["model"]
    assert records[0].environment is records[59].environment


def test_equal_parts_of_other_types_stay_apart(tmp_path: Path) -> None:
    """1 and true are equal to Python, and not to a reader."""
    write_sweep(tmp_path, make_record(evidence={"a": {"b": 1}}), make_record(evidence={"a": {"b": True}}, seconds=1))
    assert [record.evidence["a"]["b"] for record in read_records(tmp_path)[0]] == [1, True]
    assert read_records(tmp_path)[0][1].evidence["a"]["b"] is True
