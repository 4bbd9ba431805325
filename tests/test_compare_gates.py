"""Gates of `python -m bench.compare`: what breaks them, what leaves them undecided, and what is no gate."""

from pathlib import Path

import pytest
from compared import STEADY, Compared, runs, swept
from make_records import make_record

from bench.results.compare import compare
from bench.results.gate import Gate
from bench.results.record import Record


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
    assert ("gate broken: " in found.out) == code


def test_noise_breaks_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """5 % less, with an interval from a third to three times: nobody knows, so the gate holds, and it is said."""
    noisy = [20.0, 100.0, 170.0, 210.0]
    found = Compared(capsys, tmp_path, runs(noisy), runs(noisy, factor=0.95), "--gate", "throughput:-3%")
    assert found.code == 0
    assert found.column("gate") == ["undecided", ""]
    assert "\n- gate undecided: throughput:-3%: the one cell: B / A is 0.950, its interval " in found.out
    assert found.out.rstrip().endswith(": over 1000 more repeats")
    assert found.csv[0]["more_repeats"] == ">1000"
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
    words = "no run has enough requests for it: it needs 299 (num_iters)"
    assert found.err == f"bench.compare: --gate latency_p99: {words}\n"
    assert found.out == ""


def test_a_cell_that_no_longer_runs_does_not_pass_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of B's cells failed: what is left is as fast as before, and the gate cannot say that B is no worse."""
    lost = runs(changes={"batch_size": 8}, status="failed", reasons=["killed"])
    first, second = swept({1: 1, 8: 1}), [*swept({1: 1}), *lost]
    gated = Compared(capsys, tmp_path / "gated", first, second, "--gate", "throughput:-3%")
    assert (gated.code, gated.column("batch_size")) == (1, ["1", "1", "8", "8"])
    assert gated.column("B is")[2:] == ["lost: no valid run in B"] * 2
    assert gated.column("gate") == ["kept", "", "BROKEN", ""]
    assert "\n- gate broken: throughput:-3%: batch_size=8: no valid run in B\n" in gated.markdown
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
    assert "\n- gate broken: goodput:-3%: batch_size=8: a value is not above 0\n" in found.markdown


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
    assert (Gate.parse(text).state(comparison) == "broken") is is_broken


def without(sweep: list[Record], *sizes: int) -> list[Record]:
    """A sweep that never ran these batch sizes."""
    return [record for record in sweep if record.settings["batch_size"] not in sizes]


def test_cells_that_are_gone_break_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of four cells are not in B: each is a row and a broken gate; the other way round nothing is broken."""
    four = swept({1: 1, 2: 1, 4: 1, 8: 1})
    lost = Compared(capsys, tmp_path / "lost", four, without(four, 2, 8), "--gate", "throughput:-3%")
    assert lost.code == 1
    gone = [f"- gate broken: throughput:-3%: batch_size={size}: no such cell in B\n" for size in (2, 8)]
    assert "".join(gone) in lost.out
    assert [row["batch_size"] for row in lost.csv if row["gate"] == "broken"] == ["2", "8"]
    new = Compared(capsys, tmp_path / "new", without(four, 2, 8), four, "--gate", "throughput:-3%")
    assert (new.code, len(new.rows), new.column("gate").count("kept")) == (0, 4, 2)
    assert "Only in B, so not compared: batch_size=2; batch_size=8\n" in new.out
    other = Compared(capsys, tmp_path / "other", four, without(four, 2, 8), "--metric", "average_latency")
    assert (other.code, other.column("B is").count("lost: no such cell in B")) == (0, 2)


def test_a_percentile_that_is_gone_breaks_its_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B sent too few requests for a p99: that is said, with the number that it takes."""
    enough = [
        make_record({"repeat": k}, metrics={"throughput": 1.0 + k, "latency_p99": 1.0 + k}, seconds=k) for k in (0, 1)
    ]
    found = Compared(capsys, tmp_path, enough, runs(), "--gate", "latency_p99:+5%", "--metric", "throughput")
    assert (found.code, found.column("gate")) == (1, ["", "BROKEN"])
    assert found.column("B is")[1] == "lost: too few requests in B, it needs 299"


def test_a_noisy_half_is_undecided_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs each, half the throughput, and an interval beyond 1: exit code 0, and how many repeats it takes."""
    found = Compared(capsys, tmp_path, runs([60, 140]), runs([30, 70]), "--gate", "throughput:-3%")
    assert (found.code, found.column("gate")) == (0, ["undecided", ""])
    (line,) = [line for line in found.out.splitlines() if "gate undecided" in line]
    assert line.startswith("- gate undecided: throughput:-3%: the one cell: B / A is 0.500, its interval ")
    more = int(line.rpartition(": ")[2].removesuffix(" more repeats"))
    settled = Compared(
        capsys, tmp_path / "more", runs([60, 140] * (1 + more)), runs([30, 70] * (1 + more)), "--gate", "throughput:-3%"
    )
    assert settled.code == 1


def test_gravest_of_two_gates_on_one_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The row says BROKEN where one of them is, and only that one is named."""
    found = Compared(
        capsys, tmp_path, runs(), runs(factor=0.9), "--gate", "throughput:-20%", "--gate", "throughput:-3%"
    )
    assert (found.code, found.column("gate")[0]) == (1, "BROKEN")
    assert "throughput:-3%: the one cell" in found.out
    assert "throughput:-20%" not in found.out


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--metric", "lateny_p99"), "--metric lateny_p99: no run has this metric. Close: latency_p99"),
        (("--metric", "nonsense"), "--metric nonsense: no run has this metric. There are: average_latency, throughput"),
        (("--gate", "througput:-3%"), "--gate througput: no run has this metric. Close: throughput"),
        (("--metric", "gpu_util"), "--metric gpu_util: only B has this metric"),
    ],
)
def test_a_metric_that_is_nowhere_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str], words: str
) -> None:
    """Beside one that is known, too: exit code 2, with names that are close, and nothing is compared in silence."""
    second = [make_record({"repeat": k}, seconds=k) for k in range(2)]
    found = Compared(
        capsys, tmp_path, runs(), runs() if "only B" not in words else second, "--metric", "throughput", *option
    )
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"bench.compare: {words}")
