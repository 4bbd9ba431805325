"""Sweeps end to end: every layout and queue, compiled and not, presets, a failing cell, odd names, shared places."""

import shutil
import time
from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from commands import Done, rows, stamps
from conftest import Start
from hydra import compose, initialize_config_dir

from bench.agenda import Agenda
from bench.hydra_glue import conf_directory, new_moment
from bench.results.metrics import STAGES
from bench.results.record import Record
from bench.stamps import STAMPS

CELLS = list(product(["serial", "async", "pipelined"], ["shared_memory", "torch"], ["burst", "closed"]))
WARMUP, ITERS, CLIENTS = 3, 8, 3


@pytest.fixture(scope="module")
def layouts(start: Start) -> Done:
    """Every layout × queue × load, eager, in one sweep."""
    return start(
        "stream_layout=serial,async,pipelined",
        "queue=shared_memory,torch",
        "load=burst,closed",
        "-m",
        f"load.clients={CLIENTS}",
        f"warmup_iters={WARMUP}",
        f"num_iters={ITERS}",
        "repeat=range(1)",
    ).wait()


def cell(done: Done, layout: str, queue: str, load: str) -> Record:
    (found,) = [
        record
        for record in done.records
        if [record.settings[group]["name"] for group in ("stream_layout", "queue", "load")] == [layout, queue, load]
    ]
    return found


def assert_whole(record: Record) -> dict[str, list[Any]]:
    """A valid record with all its stamps, whose stages add up; returns the stamps."""
    assert (record.verdict.status, record.reasons, record.error) == ("valid", [], None)
    assert not [warning for warning in record.verdict.warnings if "answers" in warning]
    columns = stamps(record.directory)
    warmup, iters = record.settings["warmup_iters"], record.settings["num_iters"]
    assert columns["phase"] == ["cold"] + ["warm-up"] * warmup + ["measured"] * iters
    assert columns["payload"] == [k % 4 for k in range(1 + warmup + iters)]
    for row in range(1, 1 + warmup + iters):
        times = [columns[f"{name}_ns"][row] for name in STAMPS]
        assert times[0] > 0
        assert times[1:] == sorted(times[1:]), "stamps go back in time"
        assert times[0] <= times[1]
    metrics, measured = record.metrics, slice(1 + warmup, None)
    means = {name: sum(columns[f"{name}_ns"][measured]) / iters for name in STAMPS}
    # To the microsecond: the stages, each from its own two stamps, are all of the latency.
    assert sum(means[end] - means[start] for start, end in STAGES.values()) / 1e9 == pytest.approx(
        metrics["average_latency"], abs=1e-6
    )
    first, last = min(columns["sent_ns"][measured]), max(columns["completed_ns"][measured])
    assert metrics["throughput"] == pytest.approx(iters * record.settings["batch_size"] / (last - first) * 1e9)
    return columns


def test_sweep_of_layouts_and_queues_succeeds(layouts: Done) -> None:
    """12 cells, 12 valid runs, exit code 0, and nothing on the terminal that looks like trouble."""
    assert layouts.code == 0, layouts.stderr
    assert len(layouts.records) == len(CELLS)
    for word in ("Traceback", "leaked", "Warning", "Error"):
        assert word not in layouts.stderr


@pytest.mark.parametrize(("layout", "queue", "load"), CELLS)
def test_record_of_each_layout_queue_and_load_is_whole(layouts: Done, layout: str, queue: str, load: str) -> None:
    """Every request has every stamp in order, stages add up to the latency, and all answers were right."""
    record = cell(layouts, layout, queue, load)
    columns = assert_whole(record)
    assert max(columns["completed_ns"][: 1 + WARMUP]) < min(columns["sent_ns"][1 + WARMUP :]), "warm-up is apart"
    assert columns["completed_ns"][0] < columns["sent_ns"][1], "the cold first request is apart"
    assert record.metrics["warmup_iters_average_latency"] > 0


@pytest.mark.parametrize(("layout", "threads", "streams"), [("serial", 1, 1), ("async", 2, 3), ("pipelined", 2, 4)])
def test_backend_attests_what_it_ran(layouts: Done, layout: str, threads: int, streams: int) -> None:
    """Threads and streams of two workers: serial has one thread, pipelined a stream more; no buffers on the CPU."""
    for queue, load in product(["shared_memory", "torch"], ["burst", "closed"]):
        backend = cell(layouts, layout, queue, load).backend
        assert (backend["compute_threads"], backend["streams"], backend["buffers"]) == (threads, streams, 0)
        assert (backend["stream_layout"], backend["input_shape"]) == (layout, [2, 3, 16, 16])
        assert (backend["compiled"], backend["compilations"]) == (False, 0)


@pytest.mark.parametrize(
    ("layout", "queue"), list(product(["serial", "async", "pipelined"], ["shared_memory", "torch"]))
)
def test_closed_load_keeps_no_more_in_flight_than_it_has_clients(layouts: Done, layout: str, queue: str) -> None:
    """From the stamps: at no time are more than 3 requests sent and not completed, and at some time 3 are."""
    columns = stamps(cell(layouts, layout, queue, "closed").directory)
    events = [(time, 1) for time in columns["sent_ns"][1 + WARMUP :]]
    events += [(time, -1) for time in columns["completed_ns"][1 + WARMUP :]]
    in_flight = most = 0
    for _, change in sorted(events):
        in_flight += change
        most = max(most, in_flight)
    assert most == CLIENTS


def test_tables_hold_what_the_records_hold(layouts: Done) -> None:
    """runs.csv has a row a run and summary.csv a row a cell, with the same throughput; summary.md is printed."""
    directory = layouts.directory
    runs, cells = rows(directory / "runs.csv"), rows(directory / "summary.csv")
    assert len(runs) == len(cells) == len(CELLS)
    for row in cells:
        record = cell(layouts, row["stream_layout"], row["queue"], row["load"])
        assert float(row["throughput_mean"]) == pytest.approx(record.metrics["throughput"])
        assert (row["n"], row["throughput_std"]) == ("1", "")
    markdown = (directory / "summary.md").read_text("utf-8")
    assert markdown in layouts.stdout
    table = markdown[markdown.index("\n| ") :].strip().partition("\n\n")[0]
    assert len(table.splitlines()) == 2 + len(CELLS)


def test_progress_tells_run_and_cell(layouts: Done) -> None:
    """Which run of how many, its cell and its result, in plain lines where there is no terminal."""
    assert "run 1 of 12: " in layouts.stderr
    assert "run 12 of 12: " in layouts.stderr
    assert "samples/s" in layouts.stderr


@pytest.fixture(scope="module")
def compiled(start: Start) -> list[Record]:
    """compile=true and false, cold, of the pipelined layout."""
    done = start("compile=true,false", "repeat=range(1)", "-m").wait()
    assert done.code == 0, done.stderr
    return done.records


def test_compiled_run_compiles_once_and_before_the_window(compiled: list[Record]) -> None:
    """One graph for one shape, though two threads run it; the eager run beside it makes none."""
    by = {record.settings["compile"]: record for record in compiled}
    for record in by.values():
        assert_whole(record)
    graphs = {key: (r.backend["compiled"], r.backend["compilations"]) for key, r in by.items()}
    assert graphs == {True: (True, 1), False: (False, 0)}
    assert by[True].backend["compilations_in_window"] == 0
    assert by[True].metrics["m_compile_time"] > 0
    assert "m_compile_time" not in by[False].metrics
    assert by[True].metrics["warmup_latency"] > by[False].metrics["warmup_latency"]


def test_warm_cache_is_filled_before_a_commands_first_run(start: Start, small: tuple[str, ...]) -> None:
    """Serial × torch, twice by one command and once by another, for which the old kernels are of no use any more.

    All compile once, and no run makes a kernel: those were there before its first request.
    """
    asked = ("compile=true", "compile_cache=warm", "stream_layout=serial", "queue=torch", "-m")
    clock = time.time_ns() - time.perf_counter_ns()
    for repeats in (2, 1):
        done = start(f"repeat=range({repeats})", *asked).wait()
        assert done.code == 0, done.stderr
        for record in done.records:
            assert_whole(record)
            assert (record.backend["compilations"], record.backend["compilations_in_window"]) == (1, 0)
        cache = Path(small[-1].partition("=")[2]) / "compile" / done.records[0].cell
        kernels = list(cache.rglob("*.so"))
        assert kernels
        first = min(stamps(record.directory)["sent_ns"][0] for record in done.records) + clock
        assert [file for file in kernels if file.stat().st_mtime_ns > first] == []
        shutil.rmtree(cache)


PRESETS = [
    (["+sweep=quick"], 4, 12),
    (["+sweep=pytorch"], 10, 100),
    (["+sweep=workers"], 20, 200),
    (["+sweep=layouts"], 6, 60),
]


@pytest.mark.parametrize(("arguments", "cells", "runs"), PRESETS)
def test_every_preset_composes(arguments: list[str], cells: int, runs: int) -> None:
    """All its cells are settings that can be run, each once, with as many repeats as it says."""
    new_moment()
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        agenda = Agenda.multiple(compose("config", arguments, return_hydra_config=True))
    assert (len(agenda.cells), agenda.total) == (cells, runs)
    assert len({settings.cell for settings in agenda.cells}) == cells


def test_presets_are_what_they_are_named_after() -> None:
    """pytorch is runner.sh's matrix on its queue and layout; there is a test above for each file."""
    files = {file.stem for file in (conf_directory() / "sweep").glob("*.yaml")}
    assert files == {name.partition("=")[2] for arguments, _, _ in PRESETS for name in arguments if name[0] == "+"}
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        cells = Agenda.multiple(compose("config", ["+sweep=pytorch"], return_hydra_config=True)).cells
    assert {(c.batch_size, c.compile) for c in cells} == set(product([1, 32, 64, 128, 256], [True, False]))
    assert {(c.queue.name, c.stream_layout.name, c.num_workers) for c in cells} == {("torch", "pipelined", 4)}


@pytest.mark.parametrize(
    ("arguments", "cells", "runs"),
    [
        (["+sweep=quick", "batch_size=4", "compile=true,false", "repeat=range(2)"], 2, 4),
        (["batch_size=1,32,64,128,256", "compile=true,false", "-m"], 10, 100),
    ],
)
def test_dry_run_prints_cells_and_memory_and_makes_nothing(
    start: Start, arguments: list[str], cells: int, runs: int
) -> None:
    """A preset runs without -m and can be narrowed; -m alone has ten repeats; no directory is made."""
    command = start(*arguments, "dry_run=true")
    done = command.wait()
    assert done.code == 0, done.stderr
    assert done.stdout.startswith(f"{runs} runs of {cells} cells.")
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) == len(set(table)) == 2 + cells, "every cell differs from the others in what is shown"
    assert "shared memory (MiB)" in table[0]
    assert not done.outputs.exists()
    command.assert_all_gone()


@pytest.fixture(scope="module")
def failing(start: Start) -> Done:
    """Three runs, of which that with batch_size=2 fails."""
    return start("model._target_=toys.RaisesForTwo", "batch_size=1,2,1", "repeat=range(1)", "-m").wait()


def test_failed_cell_does_not_cost_the_others(failing: Done) -> None:
    """All runs took place, in turn; the exit code tells of the one that failed, and so do the tables."""
    assert failing.code == 1
    assert [record.settings["batch_size"] for record in failing.records] == [1, 2, 1]
    _, bad = rows(failing.directory / "summary.csv")
    assert (bad["batch_size"], bad["n"], bad["throughput_mean"]) == ("2", "0", "")
    assert "FAILED" in bad["verdict"]
    assert "FAILED (backend: RuntimeError: no room for 2 samples)" in failing.stdout


def test_same_value_twice_is_one_cell(failing: Done) -> None:
    """batch_size=1,…,1 makes two runs in two directories, which are one cell with n=2."""
    assert len({record.directory for record in failing.records}) == 3
    good, _ = rows(failing.directory / "summary.csv")
    assert (good["batch_size"], good["n"], good["verdict"][:5]) == ("1", "2", "valid")
    assert float(good["throughput_std"]) > 0


def test_failed_record_says_where_and_why(failing: Done) -> None:
    """Process, phase, reason and the whole traceback, down to the line of the user's model."""
    for record in failing.records:
        if record.settings["batch_size"] == 2:
            assert record.verdict.status == "failed"
            assert record.error is not None
            assert record.error["process"] == "backend"
            assert record.error["phase"] == "load"
            assert record.error["reason"] == "backend: RuntimeError: no room for 2 samples"
            assert "toys.py" in record.error["traceback"]
            assert not {"warmup_latency", "average_latency", "throughput"} & set(record.metrics)


def test_cumulative_tables_hold_the_good_runs_and_the_csv_all(failing: Done) -> None:
    """A table for batch_size=1; output.csv with a row for each of the three runs."""
    results = failing.outputs / "results"
    assert len(rows(results / "output.csv")) == 3
    lines = (results / "output_1_false.md").read_text("utf-8").splitlines()
    assert len([line for line in lines if line.startswith("| default ")]) == 1


NAMES = ['a/b, c\'s "größe" | ± 100 %', "x" * 300]


def quoted(name: str) -> str:
    """As Hydra's grammar wants it."""
    return "experiment='" + name.replace("'", "\\'") + "'"


def test_any_experiment_name_works(start: Start, tmp_path: Path) -> None:
    """Slash, comma, space, quotes, umlaut and bar, and 300 characters: the name stands whole in every table."""
    commands = [
        start(quoted(name), "model=noop", "model._target_=bench.backend.models.Noop", cwd=tmp_path / str(k))
        for k, name in enumerate(NAMES)
    ]
    for name, command in zip(NAMES, commands, strict=True):
        done = command.wait()
        assert done.code == 0, done.stderr
        (record,) = done.records
        assert record.experiment == name
        assert rows(done.directory / "summary.csv")[0]["experiment"] == name
        assert rows(done.outputs / "results" / "output.csv")[0]["experiment"] == name


def test_four_commands_of_one_second_do_not_mix(start: Start, tmp_path: Path) -> None:
    """Started together in one place: four directories with two runs each, all tabulated, no two at the same time."""
    overrides = ("model._target_=toys.Slow", "stream_layout=serial", "num_iters=20", "repeat=range(2)", "-m")
    commands = [start(*overrides, cwd=tmp_path, locks=tmp_path / "locks") for _ in range(4)]
    for command in commands:
        assert command.wait().code == 0
    sweeps = [path for path in (tmp_path / "outputs" / "default").iterdir() if path.is_dir()]
    assert len(sweeps) == 4
    assert [len(rows(sweep / "runs.csv")) for sweep in sweeps] == [2] * 4
    all_runs = rows(tmp_path / "outputs" / "results" / "output.csv")
    assert Counter(row["repeat"] for row in all_runs) == {"0": 4, "1": 4}
    table = (tmp_path / "outputs" / "results" / "output_2_false.md").read_text("utf-8")
    assert len([line for line in table.splitlines() if line.startswith("| default")]) == 4
    times = [stamps(sweep / name) for sweep in sweeps for name in ("0000", "0001")]
    windows = sorted((columns["sent_ns"][0], columns["completed_ns"][-1]) for columns in times)
    assert all(end < begin for (_, end), (begin, _) in pairwise(windows))


def test_swept_experiment_names_do_not_lose_their_runs(start: Start) -> None:
    """experiment=a,b is refused in words, or its tables hold both runs."""
    done = start("experiment=a,b", "repeat=range(1)", "-m").wait()
    if done.code == 2:
        assert "experiment" in done.stderr
        assert not done.outputs.exists()
    else:
        assert done.code == 0, done.stderr
        assert len(rows(done.directory / "runs.csv")) == 2
