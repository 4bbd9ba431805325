"""`python -m bench.compare` matches cells, judges them, keeps gates, and says why it cannot."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compared import STEADY, Compared, runs, swept
from make_records import ENVIRONMENT, SETTINGS, make_record, write_sweep

from bench.compare import main
from bench.config import Settings
from bench.invocation import Invocation
from bench.results.compare import compare
from bench.results.experiment import read_experiment
from bench.results.manifest import Manifest, write_manifest
from bench.results.record import Record


def test_cells_match_by_their_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the order they ran in; what only A has is lost, and what only B has stands below the table."""
    found = Compared(capsys, tmp_path, swept({1: 1, 8: 2, 64: 1}), swept({128: 1, 8: 2.4, 1: 0.5, 256: 1}))
    assert found.code == 0
    assert list(zip(found.column("batch_size"), found.column("metric"), found.column("B / A"), strict=True)) == [
        ("1", "throughput", "0.500"),
        ("1", "average_latency", "2.000"),
        ("8", "throughput", "1.200"),
        ("8", "average_latency", "0.833"),
        ("64", "throughput", "–"),
        ("64", "average_latency", "–"),
    ]
    assert found.column("B is") == ["slower", "slower", "faster", "faster", *["lost: no such cell in B"] * 2]
    assert [row["lost"] for row in found.csv] == [*[""] * 4, *["no such cell in B"] * 2]
    assert "\nOnly in B, so not compared: batch_size=128; batch_size=256\n" in found.markdown
    assert found.markdown in found.out


def test_a_setting_that_tells_two_sweeps_apart_is_what_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """compile=true against false, each over the same batch sizes: it is no axis."""
    first = swept({1: 1, 8: 1}, changes={"compile": False})
    found = Compared(capsys, tmp_path, first, swept({1: 1.5, 8: 1}, changes={"compile": True}))
    assert "compile" not in found.header
    assert found.column("B is") == ["faster", "faster", "same", "same"]


@pytest.mark.parametrize("changes", [{}, {"compile": False}, {"batch_size": 1}, {"queue.name": "torch"}])
def test_two_single_cells_match(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]) -> None:
    """Repeats of one cell against those of another: whatever differs is what is compared."""
    found = Compared(capsys, tmp_path, runs(), runs(factor=1.5, changes=changes))
    assert (found.code, found.err) == (0, "")
    assert found.column("B is") == ["faster", "faster"]


def test_an_axis_of_one_sweep_matches_the_others_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep over queues against one with the torch queue throughout: the rows of that queue; the others are lost."""
    second = swept({1: 1.5, 8: 1.5}, changes={"queue.name": "torch"})
    found = Compared(
        capsys, tmp_path, [*swept({1: 1, 8: 1}), *swept({1: 1, 8: 1}, changes={"queue.name": "torch"})], second
    )
    rows = list(zip(found.column("queue"), found.column("batch_size"), found.column("B is"), strict=True))
    assert [size for queue, size, verdict in rows if queue == "torch" and verdict == "faster"] == ["1", "1", "8", "8"]
    assert [size for queue, size, verdict in rows if verdict.startswith("lost")] == ["1", "1", "8", "8"]


def test_only_valid_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid runs a thousand times as fast change no ratio."""
    wrong = [make_record({"repeat": 9}, metrics={"throughput": 1e5}, status="invalid", reasons=["wrong"], seconds=9)]
    found = Compared(capsys, tmp_path, [*runs(), *wrong], runs())
    assert found.column("B / A") == ["1.000", "1.000"]


def test_single_runs_have_a_ratio_and_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run says nothing of noise: no interval, no p, unsure, and a repeat is asked for."""
    found = Compared(capsys, tmp_path, runs([100.0]), runs([150.0]), "--metric", "throughput")
    assert found.rows[0][found.header.index("metric") :] == [
        *("throughput", "1.500", "–", "–", "unsure: 1 more repeat", "")
    ]
    assert [found.csv[0][name] for name in ("ci_low", "ci_high", "p_value", "verdict")] == ["", "", "", "unsure"]


def test_csv_and_markdown_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every number of the table is that of the file, rounded, and both are those of the comparison itself."""
    second = swept({1: 0.9, 8: 1.001})
    found = Compared(capsys, tmp_path, swept({1: 1, 8: 1}), second, "--gate", "throughput:-3%")
    assert len(found.csv) == len(found.rows) == 4
    for row, shown in zip(found.csv, found.rows, strict=True):
        low, high = float(row["ci_low"]), float(row["ci_high"])
        assert shown == [
            row["batch_size"],
            row["metric"],
            f"{float(row['ratio']):.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{float(row['p_value']):.2g}",
            row["verdict"],
            {"broken": "BROKEN"}.get(row["gate"], row["gate"]),
        ]
        assert low < float(row["ratio"]) < high
    expected = compare(STEADY, [0.9 * value for value in STEADY], higher_is_better=True)
    assert expected is not None
    first = found.csv[0]
    assert float(first["ratio"]) == pytest.approx(0.9)
    assert float(first["ci_low"]) == pytest.approx(expected.low)
    assert float(first["ci_high"]) == pytest.approx(expected.high)
    assert [row["gate"] for row in found.csv] == ["broken", "", "kept", ""]


def test_an_interval_is_corrected_for_the_rows_of_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Holm: with one metric the smallest p is doubled for two cells, not quadrupled."""
    a, b = swept({1: 1, 8: 1}), swept({1: 0.95, 8: 1.0})
    two = Compared(capsys, tmp_path / "two", a, b, "--metric", "throughput")
    one = Compared(capsys, tmp_path / "one", a[:4], b[:4], "--metric", "throughput")
    assert len(two.csv) == 2
    assert float(two.csv[0]["p_value"]) == pytest.approx(2 * float(one.csv[0]["p_value"]))


def test_a_metric_that_is_not_better_for_either_is_higher_or_lower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half the CPU utilization is not called faster, and a gate on it may go either way."""
    all_of_it, half = make_cpu(1.0), make_cpu(0.5)
    down = Compared(capsys, tmp_path / "down", all_of_it, half, "--metric", "cpu_util", "--gate", "cpu_util:-5%")
    assert (down.code, down.column("B is"), down.column("gate")) == (1, ["lower"], ["BROKEN"])
    up = Compared(capsys, tmp_path / "up", half, all_of_it, "--metric", "cpu_util", "--gate", "cpu_util:-5%")
    assert (up.code, up.column("B is")) == (0, ["higher"])
    up = Compared(capsys, tmp_path / "gated", half, all_of_it, "--metric", "cpu_util", "--gate", "cpu_util:+5%")
    assert (up.code, up.column("gate")) == (1, ["BROKEN"])


def make_cpu(factor: float) -> list[Record]:
    """Repeats of one cell of which only the CPU utilization is known."""
    return [
        make_record({"repeat": k}, metrics={"cpu_util": value * factor}, seconds=k) for k, value in enumerate(STEADY)
    ]


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "machine": ({"machine_id": "0123456789ab", "hostname": "x"}, "machine: host in A, x (0123456789ab) in B"),
    "processor": ({"cpu": {"model": "Another CPU"}}, "processor: Some CPU in A, Another CPU in B"),
    "GPU": ({"gpu": [{"name": "GPU", "driver": "5"}]}, "GPUs: none in A, GPU (5) in B"),
    "torch": ({"versions": {"torch": "2.13.0", "python": "3.11.2"}}, "torch: 2.14.1 in A, 2.13.0 in B"),
    "python": ({"versions": {"torch": "2.14.1", "python": "3.12.1"}}, "python: 3.11.2 in A, 3.12.1 in B"),
    "triton": (
        {"versions": {"torch": "2.14.1", "python": "3.11.2", "triton": "3.5"}},
        "triton: none in A, 3.5 in B",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_different_machines_are_refused_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Their numbers do not compare: exit code 2, with both named and the flag that compares them all the same."""
    second = runs(factor=1.5, environment=ENVIRONMENT | OTHERS[what][0])
    refused = Compared(capsys, tmp_path / "refused", runs(), second)
    assert (refused.code, refused.out, refused.rows) == (2, "", [])
    words = OTHERS[what][1]
    assert refused.err == (
        "bench.compare: the runs are of different machines or versions, whose numbers do not compare:\n"
        f"    {words}\n--other-machine compares them all the same\n"
    )
    allowed = Compared(capsys, tmp_path / "allowed", runs(), second, "--other-machine")
    assert (allowed.code, allowed.column("B is")) == (0, ["faster", "faster"])
    assert f"Of different machines or versions: {words}." in allowed.markdown


def test_what_changes_from_run_to_run_makes_no_other_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The load before the start, phases and charge differ between any two runs, as do two containers' names."""
    environment = ENVIRONMENT | {"load_before_start": 1.5, "phases_s": {"start": 1.0}, "battery": {"percent": 50.0}}
    here, there = ({"machine_id": "0123456789ab", "hostname": name} for name in ("d2c7", "f00f"))
    contained = runs(environment=ENVIRONMENT | here), runs(environment=environment | there)
    assert Compared(capsys, tmp_path / "containers", *contained).code == 0
    assert Compared(capsys, tmp_path, runs(), runs(environment=environment)).code == 0


def test_a_failed_run_that_knows_less_is_no_other_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It failed before it knew all of where it was, and its numbers are not compared."""
    lost = make_record({"repeat": 9}, status="failed", reasons=["x"], environment={"hostname": "host"}, seconds=9)
    assert Compared(capsys, tmp_path, [*runs(), lost], runs()).code == 0


def test_an_experiments_sweeps_are_pooled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Repeats of one cell in two sweeps are the repeats of one; the output says how many sweeps stand behind it."""
    for name, factor in (("one", 1.0), ("two", 1.2)):
        write_sweep(tmp_path / name / "first", *runs(STEADY[:2], factor))
        write_sweep(tmp_path / name / "second", *runs(STEADY[2:], factor), *swept({8: factor}))
    pooled = Compared(capsys, tmp_path / "beside", runs(), runs(factor=1.2), "--metric", "throughput")
    assert main([str(tmp_path / "one"), str(tmp_path / "two"), "--metric", "throughput"]) == 0
    out = capsys.readouterr().out
    assert f"A: {tmp_path / 'one'} (experiment: 2 sweeps pooled, 8 runs)\n" in out
    assert f"B: {tmp_path / 'two'} (experiment: 2 sweeps pooled, 8 runs)\n" in out
    assert f"A: {tmp_path / 'beside' / 'a'} (4 runs)\n" in pooled.out
    (row,) = [line for line in out.splitlines() if line.startswith(f"| {SETTINGS['batch_size']} ")]
    assert pooled.rows[0][pooled.header.index("B / A") + 1] in row


def test_an_experiments_sweeps_of_two_machines_are_not_pooled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor of two versions, unless asked for: what differs within A is named."""
    write_sweep(tmp_path / "one" / "first", *runs())
    write_sweep(tmp_path / "one" / "second", *runs(environment=ENVIRONMENT | OTHERS["torch"][0]))
    write_sweep(tmp_path / "two" / "first", *runs())
    arguments = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert main(arguments) == 2
    assert "    torch: 2.14.1 in A, 2.13.0 in A\n" in capsys.readouterr().err
    assert main([*arguments, "--other-machine"]) == 0


def test_an_experiment_of_single_runs_and_a_retried_sweep(tmp_path: Path) -> None:
    """Single runs count with the sweeps' runs; a failed run that was tried again does not."""
    place = tmp_path / "one"
    write_sweep(place, *runs(STEADY[:1]))
    failed = make_record({"batch_size": 8}, status="failed", reasons=["x"])
    again = make_record({"batch_size": 8}, seconds=1)
    write_sweep(place / "sweep", failed, again)
    settings = Settings.from_mapping(failed.settings)
    write_manifest(place / "sweep", Manifest.of(Invocation(["bench"], [], "/"), [settings]))
    found = read_experiment(place)
    assert (len(found.records), found.sweeps, found.problems) == (2, 1, [])
    alone = read_experiment(place / "sweep")
    assert ([record.verdict.status for record in alone.records], alone.sweeps) == (["valid"], 0)


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cell has a repeat less, which stands below the table."""
    a, b = write_sweep(tmp_path / "a", *runs()), write_sweep(tmp_path / "b", *runs())
    (b / "3" / "metrics.json").write_text("{")
    assert main([str(a), str(b)]) == 0
    assert f"Left out: {b / '3' / 'metrics.json'}: not whole" in capsys.readouterr().out


def test_two_experiments_in_one_directory_are_not_mixed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same cell under two names: neither is compared in silence in the other's place."""
    both = [*runs(changes={"experiment": "one"}), *runs(factor=2, changes={"experiment": "two"})]
    found = Compared(capsys, tmp_path, both, runs())
    assert found.code == 2
    assert "one, two" in found.err


@pytest.mark.parametrize("status", ["failed", "invalid"])
def test_without_a_common_cell_there_is_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Any
) -> None:
    """Exit code 2 and the axes, where no axis agrees and where one side has no valid run."""
    other = Compared(capsys, tmp_path / "axes", swept({1: 1, 8: 1}), swept({2: 1, 64: 1}))
    assert other.code == 2
    assert other.err == "bench.compare: no cell with valid runs is in both. Axes: batch_size\n"
    broken = Compared(capsys, tmp_path / "runs", runs(), runs(status=status, reasons=["x"]))
    assert broken.code == 2
    assert "no cell with valid runs is in both" in broken.err


def test_a_directory_without_records_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, empty or with a record that cannot be read: exit code 2, and why."""
    good = write_sweep(tmp_path / "good", make_record())
    (tmp_path / "empty").mkdir()
    broken = write_sweep(tmp_path / "broken", make_record())
    (broken / "0" / "metrics.json").write_text("{")
    for place, words in (("nowhere", "no records"), ("empty", "no records"), ("broken", "not whole or not JSON")):
        for pair in ((good, tmp_path / place), (tmp_path / place, good)):
            assert main([str(directory) for directory in pair]) == 2
            printed = capsys.readouterr()
            assert printed.err.startswith(f"bench.compare: {tmp_path / place}: no records there")
            assert words in printed.err
            assert printed.out == ""


def test_a_place_that_cannot_be_written_is_no_broken_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the place, not 1 and a traceback."""
    sweep = write_sweep(tmp_path / "sweep", make_record())
    (tmp_path / "file").touch()
    assert main([str(sweep), str(sweep), "--output", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_any_users_text_on_an_axis_keeps_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bar and a star in a value of an axis split no column and mark nothing."""
    sweep = [record for text in ("*c*", "a|b") for record in runs(changes={"model.args": {"x": text}})]
    found = Compared(capsys, tmp_path, sweep, sweep, "--metric", "throughput")
    assert [row["model.args.x"] for row in found.csv] == ["*c*", "a|b"]
    assert "a\\|b" in found.markdown
    assert "\\*c\\*" in found.markdown


def test_it_runs_as_a_command_on_an_ascii_terminal(tmp_path: Path) -> None:
    """`python -m bench.compare`, its exit code and its help, where ± cannot be printed."""
    a, b = write_sweep(tmp_path / "a", *runs()), write_sweep(tmp_path / "größer", *runs(factor=0.5))
    for arguments, code in (((str(a), str(b), "--gate", "throughput:-3%"), 1), (("--help",), 0)):
        done = subprocess.run(
            [sys.executable, "-m", "bench.compare", *arguments],
            cwd=Path(__file__).parents[1],
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, b"")
        assert b"METRIC" in done.stdout or b"BROKEN" in done.stdout


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_a_reader_that_has_gone_is_no_broken_gate(tmp_path: Path, factor: float) -> None:
    """`bench.compare … | head`: no traceback, the exit code of the gates, and the files are whole."""
    a, b = write_sweep(tmp_path / "a", *runs()), write_sweep(tmp_path / "b", *runs(factor=factor))
    read, write = os.pipe()
    os.close(read)
    output = tmp_path / "output"
    try:
        done = subprocess.run(
            [*(sys.executable, "-m", "bench.compare", a, b), "--gate", "throughput:-3%", "--output", output],
            cwd=Path(__file__).parents[1],
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (int(factor < 1), b"")
    assert sorted(path.name for path in output.iterdir()) == ["comparison.csv", "comparison.html", "comparison.md"]
