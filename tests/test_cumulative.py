"""PyTorch's tables hold a row for each cell of each sweep so far, made anew from the records."""

import csv
import multiprocessing
from pathlib import Path
from typing import Any

import filelock
import pytest
from make_records import ENVIRONMENT, make_record, write_sweep

import bench.results.cumulative
from bench.errors import BenchError
from bench.results.cumulative import write_cumulative
from bench.results.record import write_record

HEADER = [
    "Experiment",
    "Warmup_latency (s)",
    "Average_latency (s)",
    "Throughput (samples/sec)",
    "GPU Utilization (%)",
]


def table(output_dir: Path, name: str) -> list[list[str]]:
    """The rows of one table, without heading and header, both of which are checked."""
    heading, blank, *lines = (output_dir / "results" / name).read_text(encoding="utf-8").splitlines()
    _, batch_size, compiled = name.removesuffix(".md").split("_")
    assert (heading, blank) == (f"## Batch Size {batch_size} Compile {compiled}", "")
    rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]
    assert rows[0] == HEADER
    return rows[2:]


def names(output_dir: Path) -> list[str]:
    return [row[0] for row in table(output_dir, "output_32_true.md")]


def test_rows_are_as_pytorch_writes_them(tmp_path: Path) -> None:
    """mean +/- std to three decimals; throughputs 90, 100, 140 give 110 and 26.458."""
    runs = [make_record({"repeat": i}, metrics={"throughput": x}) for i, x in enumerate([90, 100, 140])]
    write_sweep(tmp_path / "default" / "t", *runs)
    paths = write_cumulative(tmp_path)
    assert paths == [tmp_path / "results" / name for name in ("output.csv", "output_32_true.md")]
    assert table(tmp_path, "output_32_true.md") == [["default", "–", "–", "110.000 +/- 26.458", "–"]]


def test_each_cell_has_its_row_in_its_file(tmp_path: Path) -> None:
    """A file for each batch size and compile setting, with true and false as YAML spells them."""
    cells = [{"batch_size": size, "compile": compiled} for size in (1, 8) for compiled in (True, False)]
    write_sweep(tmp_path / "default" / "t", *map(make_record, cells))
    found = [path.name for path in write_cumulative(tmp_path)[1:]]
    assert found == ["output_1_false.md", "output_1_true.md", "output_8_false.md", "output_8_true.md"]
    assert all(table(tmp_path, name) == [["default", "1.500", "0.250", "100.000", "50.000"]] for name in found)


def test_sweeps_and_single_runs_stand_oldest_first(tmp_path: Path) -> None:
    """The order is that of their start, whatever the names of experiments and directories."""
    write_sweep(tmp_path / "a" / "2", make_record({"experiment": "third"}, seconds=30))
    single = tmp_path / "b" / "1"
    single.mkdir(parents=True)
    write_record(single, make_record({"experiment": "second"}, seconds=20))
    write_sweep(tmp_path / "c" / "0", make_record({"experiment": "first"}, seconds=10))
    write_cumulative(tmp_path)
    assert names(tmp_path) == ["first", "second", "third"]
    with (tmp_path / "results" / "output.csv").open(encoding="utf-8", newline="") as lines:
        directories = [row["directory"] for row in csv.DictReader(lines)]
    assert directories == ["c/0/0", "b/1", "a/2/0"]


def test_same_cell_of_two_sweeps_is_not_averaged(tmp_path: Path) -> None:
    """Two sweeps can be read one above the other."""
    write_sweep(tmp_path / "x" / "1", make_record(metrics={"throughput": 1}))
    write_sweep(tmp_path / "x" / "2", make_record(metrics={"throughput": 3}, seconds=1))
    write_cumulative(tmp_path)
    assert [row[3] for row in table(tmp_path, "output_32_true.md")] == ["1.000", "3.000"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["default", "default"]),
        ({"num_workers": 2}, ["default (num_workers=4)", "default (num_workers=2)"]),
        ({"load.name": "closed", "load.clients": 1}, ["default (load=burst)", "default (load=closed)"]),
        ({"experiment": "x|y", "progress": False}, ["default", "x\\|y"]),
        ({"repeat": 1, "output_dir": "z"}, ["default", "default"]),
    ],
)
def test_other_settings_that_differ_stand_behind_the_name(
    tmp_path: Path, changes: dict[str, Any], expected: list[str]
) -> None:
    """Only what differs and can change a number is named, and for all rows alike."""
    write_sweep(tmp_path / "x" / "1", make_record())
    write_sweep(tmp_path / "x" / "2", make_record(changes, seconds=1))
    write_cumulative(tmp_path)
    assert names(tmp_path) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hostname": "other"}, ["default (machine=host)", "default (machine=other)"]),
        (
            {"gpu": [{"name": "Some GPU"}]},
            ["default (machine=host, Some CPU)", "default (machine=host, Some CPU, Some GPU)"],
        ),
        ({"versions": {"torch": "2.9"}}, ["default", "default"]),
        ({"machine_id": "host", "hostname": "container"}, ["default", "default"]),
    ],
)
def test_machine_is_named_where_there_are_several(tmp_path: Path, change: dict[str, Any], expected: list[str]) -> None:
    """By its host name, or by what it consists of where one host name stands for several."""
    write_sweep(tmp_path / "x" / "1", make_record())
    write_sweep(tmp_path / "x" / "2", make_record(seconds=1, environment=ENVIRONMENT | change))
    write_cumulative(tmp_path)
    assert names(tmp_path) == expected


def test_cell_without_a_valid_run_says_so(tmp_path: Path) -> None:
    """FAILED or INVALID stands where numbers would, and no number of such a run is averaged."""
    write_sweep(
        tmp_path / "x" / "1",
        make_record({"batch_size": 1}, status="failed", reasons=["killed"]),
        make_record({"batch_size": 2}, status="invalid", reasons=["wrong"]),
        make_record({"batch_size": 3}, metrics={"throughput": 5}),
        make_record({"batch_size": 3, "repeat": 1}, metrics={"throughput": 99}, status="invalid", reasons=["x"]),
    )
    write_cumulative(tmp_path)
    assert table(tmp_path, "output_1_true.md")[0][1:] == ["FAILED"] * 4
    assert table(tmp_path, "output_2_true.md")[0][1:] == ["INVALID"] * 4
    assert table(tmp_path, "output_3_true.md")[0][3] == "5.000"


def test_tables_follow_the_records(tmp_path: Path) -> None:
    """What is removed on disk leaves the tables, a table without rows goes, the user's files stay."""
    write_sweep(tmp_path / "x" / "1", make_record({"batch_size": 1}))
    write_sweep(tmp_path / "x" / "2", make_record())
    write_cumulative(tmp_path)
    mine = tmp_path / "results" / "output_of_mine.md"
    mine.write_text("notes")
    (tmp_path / "x" / "1" / "0" / "metrics.json").unlink()
    write_cumulative(tmp_path)
    left = sorted(path.name for path in (tmp_path / "results").iterdir() if not path.name.startswith("."))
    assert left == ["output.csv", "output_32_true.md", "output_of_mine.md"]


def test_broken_record_costs_no_other_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is left out with a warning that names it."""
    write_sweep(tmp_path / "x" / "1", make_record(), make_record({"num_workers": 1}))
    (tmp_path / "x" / "1" / "1" / "metrics.json").write_text("{")
    write_cumulative(tmp_path)
    assert names(tmp_path) == ["default"]
    assert "metrics.json" in caplog.text


def test_nothing_so_far_is_an_empty_list_of_runs(tmp_path: Path) -> None:
    """No records, no table, and output.csv with its header only."""
    assert write_cumulative(tmp_path / "new") == [tmp_path / "new" / "results" / "output.csv"]
    assert len((tmp_path / "new" / "results" / "output.csv").read_text().splitlines()) == 1


def test_lock_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that stays held is an error that names it."""
    monkeypatch.setattr(bench.results.cumulative, "_LOCK_TIMEOUT_S", 0.1)
    (tmp_path / "results").mkdir()
    with (
        filelock.FileLock(tmp_path / "results" / ".lock"),
        pytest.raises(BenchError, match=r"\.lock: held by another process"),
    ):
        write_cumulative(tmp_path)


def _add_sweeps(output_dir: Path, name: str, start: Any) -> None:
    start.wait(60)
    for i in range(5):
        write_sweep(output_dir / name / str(i), make_record({"experiment": name}, seconds=i))
        write_cumulative(output_dir)


def test_two_processes_at_once_lose_no_row(tmp_path: Path) -> None:
    """While both add sweeps and write, the last tables hold the rows of both."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    writers = [context.Process(target=_add_sweeps, args=(tmp_path, name, start)) for name in ("a", "b")]
    try:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        assert [writer.exitcode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.join(10)
    assert sorted(names(tmp_path)) == ["a"] * 5 + ["b"] * 5
    assert not list((tmp_path / "results").glob("*.tmp")) + list((tmp_path / "results").glob(".*.tmp"))
