"""The curves of a page are those of the pictures' runs, each read once, thinned and bounded."""

import json
from pathlib import Path

import numpy as np
import pytest
from make_records import make_record, write_run

from bench.results.page import curves
from bench.results.page.curves import CurveReader
from bench.results.page.write import write_page
from bench.results.plots import runs
from bench.results.raw import read_stamps
from bench.results.records import read_records
from bench.results.summary import Summary, summarize

CONSTANT = {"load.name": "constant", "load.rate": 100.0}
LATENCIES = np.random.default_rng(1).lognormal(-3, 1, 5000)


def write_repeats(directory: Path, batch_size: int, *shifts: float, requests: int = 5000) -> None:
    """A run of a cell for each shift of its latencies, 100 requests/s."""
    for repeat, shift in enumerate(shifts):
        times = [(k / 100, k / 100 + shift + latency) for k, latency in enumerate(LATENCIES[:requests])]
        changes = {"batch_size": batch_size, "repeat": repeat, **CONSTANT}
        write_run(directory / f"{batch_size}-{repeat}", make_record(changes, metrics={}, seconds=repeat), times)


def summary_of(directory: Path) -> Summary:
    return summarize(read_records(directory)[0])


def test_curves_are_of_the_middle_run_and_keep_its_tail(tmp_path: Path) -> None:
    """60 points at most with the exact ranks of their latencies, the slowest among them; the course adds up."""
    write_repeats(tmp_path, 2, 3.0, 0.0, 1.0)
    found, problems = CurveReader().read(summary_of(tmp_path))
    assert problems == []
    one = found[0]
    ordered = np.sort(1.0 + LATENCIES)
    assert (one["run"], one["requests"]) == (2, 5000)
    assert len(one["rank"]) <= 60
    assert one["latency"] == pytest.approx([ordered[rank - 1] for rank in one["rank"]], rel=1e-3)
    assert one["rank"][-4:] == [*range(4997, 5001)]
    course = one["course"]
    assert [len(course[name]) for name in ("rate", "asked", "time", "median", "highest")] == [40] * 5
    assert sum(course["rate"]) * course["end"] / 40 == pytest.approx(2 * 5000, rel=1e-3)
    assert sum(course["asked"]) * course["end"] / 40 == pytest.approx(2 * 5000, rel=1e-3)
    assert max(course["highest"]) == pytest.approx(ordered[-1], rel=1e-3)
    assert all(low <= high for low, high in zip(course["median"], course["highest"], strict=True))


def test_few_requests_are_all_there(tmp_path: Path) -> None:
    """Each of them is a point, and there is no utilization of a run that was not sampled."""
    write_repeats(tmp_path, 1, 0.0, requests=7)
    one = CurveReader().read(summary_of(tmp_path))[0][0]
    by_answer = np.argsort(np.arange(7) / 100 + LATENCIES[:7])
    assert one["rank"] == [1, 2, 3, 4, 5, 6, 7]
    assert one["course"]["median"] == one["course"]["highest"]
    assert one["course"]["median"] == pytest.approx([LATENCIES[k] for k in by_answer], rel=1e-3)
    assert "telemetry" not in one


def test_telemetry_is_thinned_by_means(tmp_path: Path) -> None:
    """From the first send on, in the unit of its axis, None where nothing was known."""
    write_repeats(tmp_path, 1, 0.0, requests=50)
    start = 1_000_000_000
    samples = [(start + k * 10**8, 10 + k % 2, (2 + k // 40) * 2**30) for k in range(-10, 80)]
    lines = [f"{time},{cpu if k != 1 else ''},{rss},7" for k, (time, cpu, rss) in enumerate(samples, -10)]
    text = "\n".join(["time_ns,cpu_util,backend_rss_bytes,load1", *lines])
    (tmp_path / "1-0" / "telemetry.csv").write_text(text)
    found = CurveReader().read(summary_of(tmp_path))[0][0]["telemetry"]
    assert list(found) == ["time", "cpu_util", "backend_rss_bytes"]
    assert found["cpu_util"] == [10, *[10.5] * 39]
    assert found["backend_rss_bytes"] == [2] * 20 + [3] * 20
    assert found["time"][:2] == [0.05, 0.25]


def test_each_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is written again reads what became a middle run since, and forgets what is none any more."""
    read: list[str] = []

    def counting(directory: Path) -> object:
        read.append(directory.name)
        return read_stamps(directory)

    monkeypatch.setattr(runs, "read_stamps", counting)
    write_repeats(tmp_path, 1, 2.0, requests=20)
    write_repeats(tmp_path, 2, 1.0, requests=20)
    reader = CurveReader()
    first = reader.read(summary_of(tmp_path))
    assert reader.read(summary_of(tmp_path)) == first
    assert read == ["1-0", "2-0"]
    for repeat, shift in ((1, 1.0), (2, 1.5)):
        times = [(k, k + shift) for k in range(20)]
        record = make_record({"batch_size": 1, "repeat": repeat, **CONSTANT}, metrics={}, seconds=repeat)
        write_run(tmp_path / f"1-{repeat}", record, times)
    assert reader.read(summary_of(tmp_path))[0][0]["latency"][0] == 1.5
    assert read == ["1-0", "2-0", "1-2"]
    assert {directory.name for directory in reader._known} == {"1-2", "2-0"}


def test_unreadable_requests_cost_their_own_curves_only(tmp_path: Path) -> None:
    """The page is written and names the file, each time."""
    write_repeats(tmp_path, 1, 0.0, requests=20)
    write_repeats(tmp_path, 2, 0.0, requests=20)
    (tmp_path / "1-0" / "requests.parquet").write_bytes(b"no parquet")
    reader = CurveReader()
    for _ in range(2):
        found, (problem,) = reader.read(summary_of(tmp_path))
        assert list(found) == [1]
        assert "1-0/requests.parquet" in problem
    page = write_page(tmp_path)
    assert page is not None
    assert "1-0/requests.parquet" in page.read_text("utf-8")


def test_many_cells_have_curves_of_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page stays light: beyond so many cells only those that a reader decides between, and it says so."""
    monkeypatch.setattr(curves, "MOST_CELLS", 2)
    monkeypatch.setattr("bench.results.page.data.MOST_CELLS", 2)
    for batch_size in (1, 2, 3):
        write_repeats(tmp_path, batch_size, 0.0, requests=20)
    found, _ = CurveReader().read(summary_of(tmp_path))
    assert list(found) == [1, 2]
    page = write_page(tmp_path)
    assert page is not None
    data = json.loads(page.read_text("utf-8").partition('id="data">')[2].partition("</script>")[0])
    assert [cell["curves"] is None for cell in data["cells"]] == [True, False, False]
    assert "is not on this page" in data["curves_left_out"]


def test_two_hundred_cells_take_little_room(tmp_path: Path) -> None:
    """Curves of 3 KB a cell, so that the page of 200 stays within 15 % of what it is without."""
    write_repeats(tmp_path, 1, 0.0)
    samples = "\n".join(f"{10**9 + k * 10**8},{10 + k % 7}.{k},{100 + k}.5,{k}.25" for k in range(400))
    header = "time_ns,cpu_util,backend_cpu_util,frontend_cpu_util\n"
    (tmp_path / "1-0" / "telemetry.csv").write_text(header + samples)
    found, _ = CurveReader().read(summary_of(tmp_path))
    assert len(json.dumps(found, separators=(",", ":"))) < 3500
