"""`python -m bench.compare` matches cells, judges them, keeps gates, and says why it cannot."""

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from make_records import ENVIRONMENT, make_record, write_sweep

from bench.compare import Gate, main
from bench.results.compare import compare
from bench.results.record import Record

STEADY = (99.0, 100.0, 101.0, 100.0)


def runs(throughputs: Sequence[float] = STEADY, factor: float = 1.0, **others: Any) -> list[Record]:
    """Repeats of one cell; the latency is in inverse proportion to the throughput."""
    changes = others.pop("changes", {})
    return [
        make_record(
            {"repeat": k, **changes},
            metrics={"throughput": value * factor, "average_latency": 1 / (value * factor)},
            seconds=k,
            **others,
        )
        for k, value in enumerate(throughputs)
    ]


def swept(factors: dict[int, float], **others: Any) -> list[Record]:
    """A sweep over batch sizes, each so many times as fast as STEADY."""
    changes = others.pop("changes", {})
    return [
        record
        for size, factor in factors.items()
        for record in runs(factor=factor, changes={"batch_size": size, **changes}, **others)
    ]


class Compared:
    """One call: its exit code, and the tables that it printed and wrote."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], place: Path, first: list[Record], second: list[Record], *options: str
    ) -> None:
        a, b = write_sweep(place / "a", *first), write_sweep(place / "b", *second)
        output = place / "new" / "output"
        self.code = main([str(a), str(b), "--output", str(output), *options])
        printed = capsys.readouterr()
        self.out, self.err = printed.out, printed.err
        self.header: list[str] = []
        self.rows: list[list[str]] = []
        self.csv: list[dict[str, str]] = []
        if output.exists():
            self.markdown = (output / "comparison.md").read_text(encoding="utf-8")
            lines = [line for line in self.markdown.splitlines() if line.startswith("|")]
            self.header, _, *self.rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
            with (output / "comparison.csv").open(encoding="utf-8", newline="") as file:
                self.csv = list(csv.DictReader(file, strict=True))

    def column(self, name: str) -> list[str]:
        return [row[self.header.index(name)] for row in self.rows]


def test_cells_match_by_their_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the order they ran in; what one sweep alone has is passed over."""
    found = Compared(capsys, tmp_path, swept({1: 1, 8: 2, 64: 1}), swept({128: 1, 8: 2.4, 1: 0.5}))
    assert found.code == 0
    assert list(zip(found.column("batch_size"), found.column("metric"), found.column("B / A"), strict=True)) == [
        ("1", "throughput", "0.500"),
        ("1", "average_latency", "2.000"),
        ("8", "throughput", "1.200"),
        ("8", "average_latency", "0.833"),
    ]
    assert found.column("B is") == ["slower", "slower", "faster", "faster"]
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
    """A sweep over queues against one with the torch queue throughout: the rows of that queue."""
    second = swept({1: 1.5, 8: 1.5}, changes={"queue.name": "torch"})
    found = Compared(
        capsys, tmp_path, [*swept({1: 1, 8: 1}), *swept({1: 1, 8: 1}, changes={"queue.name": "torch"})], second
    )
    assert found.column("queue") == ["torch"] * 4
    assert found.column("batch_size") == ["1", "1", "8", "8"]


def test_only_valid_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid runs a thousand times as fast change no ratio."""
    wrong = [make_record({"repeat": 9}, metrics={"throughput": 1e5}, status="invalid", reasons=["wrong"], seconds=9)]
    found = Compared(capsys, tmp_path, [*runs(), *wrong], runs())
    assert found.column("B / A") == ["1.000", "1.000"]


def test_single_runs_have_a_ratio_and_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run says nothing of noise: no interval, no p, unsure, and a repeat is asked for."""
    found = Compared(capsys, tmp_path, runs([100.0]), runs([150.0]), "--metric", "throughput")
    assert found.rows[0][found.header.index("metric") :] == [
        *("throughput", "1.500", "–", "–", "unsure: 1 more repeats", "")
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
            "BROKEN" if row["gate_broken"].lower() == "true" else "",
        ]
        assert low < float(row["ratio"]) < high
    expected = compare(STEADY, [0.9 * value for value in STEADY], higher_is_better=True)
    assert expected is not None
    first = found.csv[0]
    assert float(first["ratio"]) == pytest.approx(0.9)
    assert float(first["ci_low"]) == pytest.approx(expected.low)
    assert float(first["ci_high"]) == pytest.approx(expected.high)
    assert [row["gate_broken"].lower() for row in found.csv] == ["true", "false", "false", "false"]


def test_an_interval_is_corrected_for_the_rows_of_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Holm: with one metric the smallest p is doubled for two cells, not quadrupled."""
    a, b = swept({1: 1, 8: 1}), swept({1: 0.95, 8: 1.0})
    two = Compared(capsys, tmp_path / "two", a, b, "--metric", "throughput")
    one = Compared(capsys, tmp_path / "one", a[:4], b[:4], "--metric", "throughput")
    assert len(two.csv) == 2
    assert float(two.csv[0]["p_value"]) == pytest.approx(2 * float(one.csv[0]["p_value"]))


@pytest.mark.parametrize(
    ("gates", "factor", "code"),
    [
        (["throughput:-3%"], 0.95, 1),
        (["throughput:-3%"], 0.98, 0),
        (["throughput:-3%"], 1.5, 0),
        (["average_latency:+5%"], 0.9, 1),
        (["average_latency:+5%"], 0.97, 0),
        (["average_latency:+5%"], 2.0, 0),
        (["throughput:-20%", "average_latency:+5%"], 0.9, 1),
        (["throughput:-20%", "average_latency:+50%"], 0.9, 0),
        (["throughput:-2.5%"], 0.96, 1),
    ],
)
def test_a_broken_gate_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gates: list[str], factor: float, code: int
) -> None:
    """Only when B is surely worse by more than the gate allows, in the direction that is worse; the row says BROKEN."""
    options = [option for gate in gates for option in ("--gate", gate)]
    found = Compared(capsys, tmp_path, runs(), runs(factor=factor), *options)
    assert found.code == code
    assert found.column("gate").count("BROKEN") == code


def test_noise_breaks_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """5 % less, with an interval from a third to three times: nobody knows, so the gate holds."""
    noisy = [20.0, 100.0, 170.0, 210.0]
    found = Compared(capsys, tmp_path, runs(noisy), runs(noisy, factor=0.95), "--gate", "throughput:-3%")
    assert found.code == 0
    assert float(found.csv[0]["ci_low"]) < 0.95 < 1 < float(found.csv[0]["ci_high"])


def test_a_gate_of_single_runs_goes_by_the_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an interval there is nothing else to go by."""
    for factor, code in ((0.9, 1), (0.98, 0)):
        place = tmp_path / str(factor)
        assert Compared(capsys, place, runs([100.0]), runs([100.0], factor), "--gate", "throughput:-3%").code == code


def test_a_gate_brings_its_metric_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is compared and shown, after those that were asked for, once."""
    options = ("--metric", "throughput", "--gate", "average_latency:+5%", "--gate", "throughput:-3%")
    found = Compared(capsys, tmp_path, runs(), runs(), *options)
    assert found.column("metric") == ["throughput", "average_latency"]


def test_a_gate_on_a_metric_that_is_nowhere_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that looks at nothing must not pass: exit code 2, and it is named."""
    found = Compared(capsys, tmp_path, runs(), runs(), "--gate", "latency_p99:+5%")
    assert found.code == 2
    assert found.err == "bench.compare: --gate latency_p99: no cell of both sweeps has this metric\n"
    assert found.out == ""


def test_a_cell_that_no_longer_runs_does_not_pass_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of B's cells failed: what is left is as fast as before, and the gate cannot say that B is no worse."""
    lost = runs(changes={"batch_size": 8}, status="failed", reasons=["killed"])
    first, second = swept({1: 1, 8: 1}), [*swept({1: 1}), *lost]
    gated = Compared(capsys, tmp_path / "gated", first, second, "--gate", "throughput:-3%")
    assert (gated.code, gated.column("batch_size")) == (1, ["1", "1"])
    assert "\n- throughput of batch_size=8\n" in gated.markdown
    assert Compared(capsys, tmp_path / "not", first, second).code == 0
    assert Compared(capsys, tmp_path / "new", second, first, "--gate", "throughput:-3%").code == 0


def test_a_metric_that_fell_to_nothing_does_not_pass_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No request of B was within the promise: there is no ratio to 0, and that is no reason to pass."""

    def sweep(goodputs: dict[int, float]) -> list[Record]:
        return [
            make_record({"batch_size": size, "repeat": k}, metrics={"goodput": value * (1 + k / 100)}, seconds=k)
            for size, value in goodputs.items()
            for k in range(2)
        ]

    a, b = sweep({1: 100.0, 8: 100.0}), sweep({1: 100.0, 8: 0.0})
    found = Compared(capsys, tmp_path, a, b, "--gate", "goodput:-3%")
    assert found.code == 1
    assert "\n- goodput of batch_size=8\n" in found.markdown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("throughput", "must be METRIC:-N% or METRIC:+N%"),
        ("throughput:-3", "must be METRIC"),
        ("throughput:3%", "must be METRIC"),
        ("throughput:-x%", "must be METRIC"),
        (":-3%", "must be METRIC"),
        ("throughput:-3%%", "must be METRIC"),
        ("", "must be METRIC"),
        ("throughput:+3%", "gets worse in the other direction. Write throughput:-N%"),
        ("average_latency:-3%", "gets worse in the other direction. Write average_latency:+N%"),
        ("throughput:-100%", "below 100%"),
        ("throughput:-250%", "below 100%"),
    ],
)
def test_a_text_that_is_no_gate_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """Exit code 2, with the gate, what is wrong and what to write; one that nothing could break is none."""
    found = Compared(capsys, tmp_path, runs(), runs(), f"--gate={text}")
    assert found.code == 2
    assert found.err.startswith(f"bench.compare: --gate {text!r}: ")
    assert words in found.err


@pytest.mark.parametrize(
    ("text", "factor", "is_broken"),
    [("throughput:-0%", 0.9, True), ("throughput:-0%", 1.1, False), ("throughput:-2.5%", 0.97, True)],
)
def test_a_gate_may_allow_nothing(text: str, factor: float, is_broken: bool) -> None:
    """0 % is broken by what is surely slower, and never by what is faster."""
    comparison = compare(STEADY, [factor * value for value in STEADY], higher_is_better=True)
    assert comparison is not None
    assert Gate.parse(text).broken(comparison) is is_broken


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


OTHERS: dict[str, dict[str, Any]] = {
    "hostname": {"hostname": "another"},
    "processor": {"cpu": {"model": "Another CPU"}},
    "GPU": {"gpu": [{"name": "Some GPU"}]},
    "torch": {"versions": {"torch": "2.13.0", "python": "3.11.2"}},
    "python": {"versions": {"torch": "2.14.1", "python": "3.12.1"}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_different_machines_are_refused_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Their numbers do not compare: exit code 2, with both named and the flag that compares them all the same."""
    second = runs(factor=1.5, environment=ENVIRONMENT | OTHERS[what])
    refused = Compared(capsys, tmp_path / "refused", runs(), second)
    assert (refused.code, refused.out, refused.rows) == (2, "", [])
    assert "different machines or versions: " in refused.err
    assert "host, Some CPU, torch 2.14.1, python 3.11.2" in refused.err
    assert "--other-machine" in refused.err
    allowed = Compared(capsys, tmp_path / "allowed", runs(), second, "--other-machine")
    assert (allowed.code, allowed.column("B is")) == (0, ["faster", "faster"])


def test_what_changes_from_run_to_run_makes_no_other_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The load before the start, phases and charge differ between any two runs."""
    environment = ENVIRONMENT | {"load_before_start": 1.5, "phases_s": {"start": 1.0}, "battery": {"percent": 50.0}}
    assert Compared(capsys, tmp_path, runs(), runs(environment=environment)).code == 0


def test_a_failed_run_that_knows_less_is_no_other_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It failed before it knew all of where it was, and its numbers are not compared."""
    lost = make_record({"repeat": 9}, status="failed", reasons=["x"], environment={"hostname": "host"}, seconds=9)
    assert Compared(capsys, tmp_path, [*runs(), lost], runs()).code == 0


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
