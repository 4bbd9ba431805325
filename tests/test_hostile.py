"""Any value under any key, and any content of any file: a clear error or right results, never a traceback of ours."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
from commands import environment, rows
from conftest import Start
from hydra.errors import HydraException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_records import make_record, write_run

from bench import hydra_glue
from bench.config import Settings, flatten
from bench.conversion import keys_of
from bench.errors import ConfigError
from bench.frontend.load import plan, unused
from bench.job import settings_of
from bench.report import report
from bench.results.cumulative import write_cumulative
from bench.results.records import read_records

GROUPS = ("model", "stream_layout", "queue", "load", "device")
KEYS = [key for key in keys_of(Settings) if key not in GROUPS]
NEEDED = {  # what makes a key of a load one that is used
    "load.clients": "load=closed",
    "load.think_ms": "load=closed",
    "load.rate": "load=poisson",
    "load.file": "load=replay",
    "load.steps": "load=ramp",
    "load.random": "load=ramp",
}
PLAIN = [
    *("", "null", "true", "-1", "0", "1.5", "nan", "inf", "-inf", "1e999", "9" * 30, "[1,2]", "[]", "{}", "{a: 1}"),
    *("[[[[1]]]]", "???", "a b", "a,b", "../x", "${seed}", "${nope}", "${oc.env:HOME}", "\\", "|", "%", "x" * 300, "~"),
]
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def composing() -> Iterator[None]:
    """Hydra, initialized once: it takes longer than all else."""
    with hydra.initialize_config_dir(str(hydra_glue.conf_directory()), version_base="1.3"):
        yield


def quoted(text: str) -> str:
    """As an override must spell a text of any characters."""
    return "'" + text.replace("'", "\\'") + "'"


@pytest.mark.usefixtures("composing")
@quick
@given(st.sampled_from(KEYS), st.sampled_from(PLAIN) | st.text(max_size=20).map(quoted) | st.integers().map(str))
def test_any_override_is_taken_or_refused_by_name(key: str, value: str) -> None:
    """Through the composition: settings with that very value, an error that names the key, or a fault of grammar."""
    overrides = [needed] if (needed := NEEDED.get(key)) else []
    try:
        config = hydra.compose("config", hydra_glue.added([*overrides, f"{key}={value}"]))
    except HydraException:
        return  # the command ends with 2 and its words, see test_command
    problems = []
    try:
        found = settings_of(config)
        plan(found)
    except ConfigError as error:
        problems = error.problems
    assert all(problem.startswith((key, "load.", "num_iters=", "model.channels_last")) for problem in problems)
    if problems:
        return
    assert unused([found]) == []
    taken = flatten(found.as_mapping()).get(key)
    if isinstance(taken, str) and value.startswith("'") and "${" not in value:
        assert quoted(taken) == value
    assert not (isinstance(taken, float) and math.isnan(taken))


@pytest.mark.parametrize("arguments", [["queue=3"], ["-m", "load=[1],burst"], ["model=[1,2]"], ["batch_size=[1"]])
def test_what_hydra_stumbles_over_is_refused_in_words(tmp_path: Path, arguments: list[str]) -> None:
    """Numbers and lists in the place of a group's option, and brackets left open: exit code 2, and no traceback."""
    command = [sys.executable, "-m", "bench", *arguments, "dry_run=true"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bench: ")
    assert "Traceback" not in done.stderr


def test_hostile_names_and_paths_stay_what_they_are(start: Start) -> None:
    """Spaces, commas, quotes, bars, `..` and 300 characters in names and paths: two runs, one cell, right labels."""
    name = "o|d $x, é'\"=;#&(a)[b]{c}~%ü"
    places = [f"{key}={quoted(place)}" for key, place in (("output_dir", f"p/{name}/../q{name}"), ("model_dir", name))]
    names = [f"experiment={quoted(name.ljust(300, 'x'))}", f"model.name={quoted(name)}"]
    small = ("model=noop", "model._target_=bench.backend.models.Noop", "batch_size=1,1", "repeat=0", "num_iters=5")
    command = start(*small, *places, *names, "-m")
    done = command.wait()
    assert done.code == 0, done.stderr
    (summary,) = command.cwd.glob("p/q*/*/*/summary.csv")
    (cell,) = rows(summary)
    assert (cell["experiment"], cell["n"]) == (name.ljust(300, "x"), "2")
    assert [row["model.name"] for row in rows(summary.with_name("runs.csv"))] == [name, name]
    assert not (command.cwd / "outputs").exists()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of two cells, with all their files."""
    directory = tmp_path_factory.mktemp("outputs") / "experiment" / "sweep"
    for number, (batch_size, repeat) in enumerate([(1, 0), (2, 0), (1, 1)]):
        run = directory / f"{number:04d}"
        record = make_record({"batch_size": batch_size, "repeat": repeat}, seconds=number)
        write_run(run, record, [(1 + k / 10, 1.05 + k / 10) for k in range(40)])
        samples = "".join(f"{10**9 + k * 10**8},5.0,\n" for k in range(30))
        (run / "telemetry.csv").write_text("time_ns,cpu_util,gpu_util\n" + samples)
    return directory


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within nested containers."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(10**400)
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)


@quick
@given(st.data(), anything)
def test_any_value_in_a_record_costs_no_other_run(sweep: Path, data: st.DataObject, value: Any) -> None:
    """One value of one record replaced: the record is refused by name, or taken, and all others are in the tables."""
    file = sweep / "0001" / "metrics.json"
    good = file.read_bytes()
    values = json.loads(good)
    *way, last = data.draw(st.sampled_from(sorted(places(values), key=str)))
    place = values
    for key in way:
        place = place[key]
    place[last] = value
    try:
        file.write_text(json.dumps(values))
        assert_reported(sweep)
    finally:
        file.write_bytes(good)


@quick
@given(
    st.sampled_from(["metrics.json", "requests.parquet", "telemetry.csv"]),
    st.sampled_from(["cut", "flip", "other"]),
    st.integers(0, 2**32),
)
def test_any_damage_to_a_file_costs_no_other_run(sweep: Path, name: str, damage: str, where: int) -> None:
    """A file of a run cut short, with a bit flipped, or another in its place."""
    file = sweep / "0001" / name
    good = file.read_bytes()
    byte, bit = where % len(good), where % 8
    bad = {
        "cut": good[:byte],
        "flip": good[:byte] + bytes([good[byte] ^ 1 << bit]) + good[byte + 1 :],
        "other": b"a,b\n1,2\n\xff\xfe\0",
    }[damage]
    try:
        file.write_bytes(bad)
        assert_reported(sweep)
    finally:
        file.write_bytes(good)


def assert_reported(sweep: Path) -> None:
    """The report is made; each record is a row or a problem that is named."""
    records, problems = read_records(sweep)
    assert len(records) + len(problems) == 3
    report(sweep, plots=False)
    write_cumulative(sweep.parent.parent)
    assert len(rows(sweep / "runs.csv")) == len(records)
    markdown = (sweep / "summary.md").read_text("utf-8")
    assert markdown.count("metrics.json: ") == len(problems)
