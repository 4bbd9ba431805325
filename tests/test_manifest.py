"""What a sweep's directory must hold, told from its manifest and its records; what belongs in it and what does not."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from make_records import ENVIRONMENT, SETTINGS, make_record, write_sweep

from bench import resume
from bench.cells import AskedRun
from bench.config import Settings
from bench.errors import BenchError, ConfigError
from bench.invocation import Invocation
from bench.results.manifest import Manifest, read_manifest, write_manifest
from bench.results.record import RECORD_FILE, Record
from bench.results.records import read_records

INVOCATION = Invocation(["bench"], ["-m", "batch_size=1,2"], "/somewhere")


def asked(*batch_sizes: int, repeats: int = 2, **changes: Any) -> list[AskedRun]:
    """The runs that a command asks for."""
    values = SETTINGS | {"resume": "last"} | changes
    runs = [values | {"batch_size": size, "repeat": k} for k in range(repeats) for size in batch_sizes]
    return [AskedRun((), Settings.from_mapping(run)) for run in runs]


def manifest(*batch_sizes: int, repeats: int = 2) -> Manifest:
    return Manifest.of(INVOCATION, [run.settings for run in asked(*batch_sizes, repeats=repeats)])


def record(batch_size: int, repeat: int, **others: Any) -> Record:
    changes = {"batch_size": batch_size, "repeat": repeat} | others.pop("changes", {})
    return make_record(changes, environment=ENVIRONMENT | others.pop("environment", {}), **others)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is that of the records."""
    monkeypatch.setattr(resume, "environment", lambda: ENVIRONMENT)


def test_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """With cells that share most settings, values that are equal to Python only, and odd arguments."""
    written = dataclasses.replace(manifest(1, 2), invocation=Invocation(["bench"], ["experiment='ä b'"], "/a b"))
    written.cells[0].settings["seed"], written.cells[1].settings["seed"] = 1, True
    write_manifest(tmp_path, written)
    found = read_manifest(tmp_path)
    assert found == written
    assert found is not None
    assert found.cells[1].settings["seed"] is True


def test_broken_manifest_is_named_and_costs_no_record(tmp_path: Path) -> None:
    """At each length: whole, or an error that names the file; the records are read all the same."""
    write_sweep(tmp_path, record(1, 0))
    write_manifest(tmp_path, manifest(1))
    file = tmp_path / "manifest.json"
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        with pytest.raises(BenchError, match=r"manifest\.json: not a whole manifest"):
            read_manifest(tmp_path)
        records, problems = read_records(tmp_path)
        assert len(records) == 1
        assert len(problems) == 1


def test_unfinished_sweep_is_counted(tmp_path: Path) -> None:
    """Missing, failed and invalid runs, and the command with what it takes; nothing of a complete sweep."""
    found = manifest(1, 2)
    records = [record(1, 0), record(2, 0, status="failed", reasons=["x"])]
    words = found.unfinished(tmp_path, records)
    assert words.startswith("of 4 runs: 2 missing, 1 failed. This finishes the sweep:\n")
    assert words.endswith(f"bench -m batch_size=1,2 resume={tmp_path} retry=failed")
    assert found.unfinished(tmp_path, [record(size, k) for size in (1, 2) for k in (0, 1)]) == ""


def test_retried_record_gives_way_to_the_new_one_only(tmp_path: Path) -> None:
    """A failed run counts until there is another record of it; a valid one is never left out."""
    old = record(1, 0, status="failed", reasons=["old"])
    new = record(1, 0, status="failed", reasons=["new"], seconds=10)
    good = record(1, 0, seconds=20)
    found = manifest(1, repeats=1)
    assert found.standing([old]) == [old]
    assert found.standing([old, new]) == [new]
    assert found.standing([old, new, good]) == [good]
    assert found.standing([good, good]) == [good, good]
    twice = manifest(1, 1, repeats=1)
    assert twice.standing([old, good]) == [old, good], "asked for twice"
    write_manifest(tmp_path, found)
    write_sweep(tmp_path, old, good)
    assert [r.verdict.status for r in read_records(tmp_path)[0]] == ["valid"]


def test_done_runs_are_those_with_a_record_of_this_format(tmp_path: Path) -> None:
    """A cut record and one of another format are run again, as is what is to be retried; numbers go on."""
    write_sweep(tmp_path, record(1, 0), record(2, 0), record(1, 1), record(2, 1, status="failed", reasons=["x"]))
    (tmp_path / "1" / RECORD_FILE).write_text("{")
    other = (tmp_path / "2" / RECORD_FILE).read_text("utf-8").replace('"format": 1', '"format": 99')
    (tmp_path / "2" / RECORD_FILE).write_text(other)
    found = resume.standing(tmp_path, asked(1, 2))
    assert found.done == Counter({record(1, 0).fingerprint: 1, record(2, 1).fingerprint: 1})
    assert found.next_number == 4
    again = resume.standing(tmp_path, asked(1, 2, retry=["failed"]))
    assert again.done == Counter({record(1, 0).fingerprint: 1})


def test_more_values_and_repeats_only_add(tmp_path: Path) -> None:
    """A wider command: what is there counts, nothing is refused."""
    write_sweep(tmp_path, record(1, 0), record(1, 1))
    write_manifest(tmp_path, manifest(1))
    assert resume.standing(tmp_path, asked(1, 2, 4, repeats=5)).done.total() == 2


def test_repeats_that_precision_added_belong(tmp_path: Path) -> None:
    """Beyond the repeats that were asked for, of a sweep that refines; without precision they are a difference."""
    refining = {"precision.relative_ci": 0.05}
    write_sweep(tmp_path, *(record(1, k, changes=refining) for k in range(4)))
    found = resume.standing(tmp_path, asked(1))
    assert (found.done.total(), found.extra) == (2, 2)
    bad = record(1, 4, changes=refining, status="failed", reasons=["x"], directory=tmp_path / "4")
    write_sweep(tmp_path / "bad", *(record(1, k, changes=refining) for k in range(3)), bad)
    found = resume.standing(tmp_path / "bad", asked(1, retry=["failed"]))
    assert (found.done.total(), found.extra, [one.fingerprint for one in found.again]) == (2, 1, [bad.fingerprint])
    write_sweep(tmp_path / "other", *(record(1, k) for k in range(4)))
    with pytest.raises(ConfigError, match="repeat=3: 1 more in the sweep than in this command"):
        resume.standing(tmp_path / "other", asked(1))


DIFFERENT = {
    "torch": (
        {"environment": {"versions": {"torch": "2.9.0", "python": "3.11.2"}}},
        "torch: 2.9.0 in the sweep, 2.14.1",
    ),
    "processor": ({"environment": {"cpu": {"model": "Other CPU"}}}, "processor: Other CPU in the sweep, Some CPU here"),
    "setting": ({"changes": {"num_iters": 7}}, "num_iters=7 in the sweep, num_iters=100 in this command"),
    "group": ({"changes": {"queue.name": "torch"}}, "queue.name=torch in the sweep, queue.name=shared_memory in"),
    "cell": ({"changes": {"batch_size": 64}}, "batch_size=64 in the sweep, batch_size=1,2 in this command"),
    "experiment": ({"changes": {"experiment": "e"}}, "experiment: e in the sweep, default in this command"),
}


def test_another_container_of_this_machine_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host's name is another, and so is a kernel's patch level after an update; a machine's identity is not."""
    here = ENVIRONMENT | {"machine_id": "0123456789ab", "hostname": "d2c7", "kernel": "6.1.0-22-amd64"}
    monkeypatch.setattr(resume, "environment", lambda: here)
    there = {"machine_id": "0123456789ab", "hostname": "f00f", "kernel": "6.1.0-21-amd64"}
    write_sweep(tmp_path, record(1, 0, environment=there))
    assert resume.standing(tmp_path, asked(1, 2)).done.total() == 1


@pytest.mark.parametrize(("others", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_difference_is_named(tmp_path: Path, others: dict[str, Any], words: str) -> None:
    """One record among others that is of another machine, version, setting or experiment."""
    write_sweep(tmp_path, record(1, 0), record(2, 1, **others))
    with pytest.raises(ConfigError) as caught:
        resume.standing(tmp_path, asked(1, 2))
    assert words in str(caught.value)
    assert "resume=last: cannot go on with" in str(caught.value)


def test_runs_that_were_asked_for_and_never_begun_count_as_well(tmp_path: Path) -> None:
    """Killed before its first run, the sweep still knows its cells: a narrower command is refused."""
    write_manifest(tmp_path, manifest(1, 2))
    with pytest.raises(ConfigError, match="batch_size=2 in the sweep, batch_size=1 in this command") as caught:
        resume.standing(tmp_path, asked(1))
    assert f"bench -m batch_size=1,2 resume={tmp_path}" in str(caught.value)
