"""Single commands: help, what is imported, one run, and what is refused before anything starts."""

import re
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from commands import Done, call, environment, read_json, rows
from conftest import Start

from bench.results.record import read_record


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "== Config =="),
        (["--cfg", "job"], "num_workers: 4"),
        (["num_workers=3", "--cfg", "job"], "num_workers: 3"),
        (["--info", "searchpath"], "Config search path"),
    ],
)
def test_command_that_runs_nothing_is_light(tmp_path: Path, arguments: list[str], expected: str) -> None:
    """Help and configs come without torch, pandas or pyarrow, and leave nothing."""
    done = call(tmp_path, *arguments, flags=("-X", "importtime"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert expected in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "hydra" in imported
    assert not imported & {"torch", "pandas", "pyarrow", "torchvision", "matplotlib"}
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def single(start: Start) -> Done:
    """One run without -m, profiled."""
    return start("experiment=mine", "profile=true").wait()


def test_single_run_leaves_the_files_of_a_sweep(single: Done) -> None:
    """Its record and tables in one directory, its metrics printed, its row in the cumulative tables."""
    assert single.code == 0, single.stderr
    directory = single.directory
    assert read_record(directory).job is None
    assert {"metrics.json", "requests.parquet", "summary.md", "summary.csv", "runs.csv", "report.html"} <= {
        path.name for path in directory.iterdir()
    }
    for text in ("average_latency ", "throughput ", "summary.md"):
        assert text in single.stdout
    assert len(rows(single.outputs / "results" / "output.csv")) == 1
    assert "| mine" in (single.outputs / "results" / "output_2_false.md").read_text("utf-8")


def test_trace_is_a_chrome_trace(single: Done) -> None:
    """profile=true leaves events of the backend's threads, in JSON that opens."""
    events = read_json(single.directory / "trace.json")["traceEvents"]
    passes = [event for event in events if event.get("name") == "aten::conv2d"]
    assert len(passes) >= 8


def test_profile_lies_on_the_timeline(single: Done) -> None:
    """Each convolution that the profiler saw is within one of the forward passes that the stamps saw."""
    events = read_json(single.directory / "timeline.json")["traceEvents"]
    passes = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["cat"] == "compute"]
    operations = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "aten::conv2d"]
    assert len(passes) == len(operations) == 8
    assert all(any(start <= begun and ended <= end for start, end in passes) for begun, ended in operations)


def refused(start: Start, *overrides: str) -> str:
    """What the command says of settings that it refuses, before anything is made."""
    done = commands.refused(start(*overrides))
    assert done.stdout == ""
    assert not done.outputs.exists()
    return done.stderr


def test_bad_values_of_all_cells_are_refused_at_once(start: Start) -> None:
    """Four batch sizes, on both sides of -m with others: each key, value, range and next step in one message."""
    said = refused(start, "batch_size=0,-1,1.5,abc", "-m", "compile=maybe,true", "num_iters=0", "+nonsense=1")
    for value in ("0", "-1", "1.5", "abc"):
        assert f"batch_size={value}: must be a whole number from 1 to 1048576. Set batch_size=1" in said
    assert "compile=maybe: must be true or false. Set compile=true" in said
    assert "num_iters=0: must be a whole number from 1 to" in said
    assert "nonsense: no such key. Known here: allow_shared_device, batch_size, " in said
    assert len(re.findall(r"compile=maybe", said)) == 1, "each problem once, however many cells have it"


def test_good_cells_do_not_start_beside_a_bad_one(start: Start) -> None:
    """The last of three cells is bad, and nothing runs."""
    assert "batch_size=-5" in refused(start, "-m", "batch_size=1,2,-5")


@pytest.fixture(scope="module")
def models(start: Start) -> str:
    """What is said of a sweep over models none of which can be run."""
    targets = "null,toys.Nett,nowhere.Net,toys.os,math.pi,toys.CannotBeMade,toys.Net"
    return refused(
        start,
        "-m",
        f"model._target_={targets}",
        "model=torchvision",
        "model.name=resnet19",
        "model.input_shape=[4,16,16]",
    )


@pytest.mark.parametrize(
    "words",
    [
        "model.name=resnet19: not a model of torchvision. Close: resnet18",
        "model._target_=toys.Nett: ",
        "Close: Net",
        "model._target_=nowhere.Net: No module named 'nowhere'",
        "model._target_=toys.os: is a module, not a class",
        "model._target_=math.pi: is a float, not a class",
        "model._target_=toys.CannotBeMade: ",
        "cannot be made",
        "its forward pass fails on an input of shape (2, 4, 16, 16)",
    ],
)
def test_every_model_that_cannot_run_is_named_before_any_run(models: str, words: str) -> None:
    """Unknown names with close ones, targets that are no class, a constructor that raises, an unfit input."""
    assert words in models


def test_unknown_key_and_option_are_refused_by_name(tmp_path: Path) -> None:
    """A key and a group's option: with what is close, or there is, and exit code 2."""
    for arguments, words in (
        (["batchsize=1", "num_iters=0", "-m"], ["batchsize: no such key. Close: batch_size", "num_iters=0: must be"]),
        (["model=resnet"], ["model/resnet", "resnet18", "resnet50"]),
    ):
        done = call(tmp_path, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        for word in words:
            assert word in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_supervisor_never_imports_torch(tmp_path: Path, small: tuple[str, ...]) -> None:
    """A whole run, and the Hydra process behind it has neither torch nor a device."""
    code = (
        "import sys\nfrom bench.__main__ import main\n"
        "try: main()\nexcept SystemExit as ended: print('code', ended.code)\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, *small, "progress=false"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.stdout.splitlines()[-1] == "False", done.stdout + done.stderr
