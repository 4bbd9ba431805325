"""What stands below the table: percentiles, stages, tails, drift and the steps of a ramp."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from make_records import make_record

from bench.results import details, notes
from bench.results.markdown import summary_markdown
from bench.results.metric_names import metric
from bench.results.metrics import STAGES
from bench.results.record import Record
from bench.results.stages import missing_percentiles
from bench.results.summary import Summary, summarize

SHARES = dict(zip(STAGES, (0.0, 0.5, 0.05, 0.1, 0.25, 0.0, 0.05, 0.05), strict=True))
TAIL = {
    "stage": "compute",
    "sentence": "p99 is 3 times p50; all of the difference is compute",
    "advice": "less",
    "slow": {"latency": 3.0},
    "middle": {"latency": 1.0},
}
STEP = {"step": 0.0, "asked_rate": 100.0, "throughput": 3200.0, "average_latency": 0.01, "max_latency": 0.5}


def table(text: str, title: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table under `title`."""
    heading, _, *lines = text.splitlines()
    assert heading == f"## {title}"
    rows_only = itertools.takewhile(lambda line: line.startswith("|"), lines)
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in rows_only)
    return header, rows


def summary(*records: Record) -> Summary:
    return summarize(list(records))


def repeats(values: Sequence[float], name: str = "throughput", **changes: Any) -> list[Record]:
    """Runs of one cell in the order in which they started."""
    return [make_record({"repeat": k, **changes}, metrics={name: value}, seconds=k) for k, value in enumerate(values)]


def test_percentiles_are_told_or_how_many_requests_they_lack() -> None:
    """60 requests support p95; p99 needs 299 and p99.9 2995."""
    measured = {"latency_p50": 0.010, "latency_p90": 0.020, "latency_p95": 0.030}
    lacking = {"percentiles_missing": missing_percentiles(60)}
    text = details.percentiles(summary(make_record({"batch_size": 1}, metrics=measured, evidence=lacking)))
    header, rows = table(text, "Latency percentiles (s)")
    assert header == ["experiment", "batch_size", "compile", "p50", "p90", "p95", "p99", "p99.9"]
    assert rows == [
        ["default", "1", "true", "0.01000", "0.02000", "0.03000", "– (239 more requests)", "– (2935 more requests)"],
    ]


def test_percentiles_are_means_over_the_valid_runs() -> None:
    """1 and 3 s are 2.0 ± 1.4 s; an invalid run's 100 s counts for nothing, nor does what it lacks."""
    records = [make_record({"repeat": k}, metrics={"latency_p50": value}) for k, value in enumerate((1.0, 3.0))]
    wrong = make_record({"repeat": 2}, metrics={"latency_p50": 100.0}, status="invalid", reasons=["wrong"])
    lost = make_record(
        {"batch_size": 8}, status="failed", reasons=["killed"], evidence={"percentiles_missing": {"p50": 5}}
    )
    _, rows = table(details.percentiles(summary(wrong, *records, lost)), "Latency percentiles (s)")
    assert [row[1:3] for row in rows] == [["8", "–"], ["32", "2.0 ± 1.4"]]


def test_stages_are_mean_shares_of_the_valid_runs() -> None:
    """Queue wait holds 50 % and 30 % of the latency in two runs; a failed run's shares are no part of the mean."""
    other = SHARES | {"queue_wait": 0.3, "compute": 0.45}
    records = [
        make_record({"repeat": k}, evidence={"stage_shares": shares}) for k, shares in enumerate((SHARES, other))
    ]
    lost = make_record({"repeat": 2}, status="failed", reasons=["killed"], evidence={"stage_shares": {}})
    header, rows = table(details.stages(summary(*records, lost)), "Where the latency goes (%)")
    assert header[3:] == [metric(stage).title for stage in STAGES]
    assert rows == [["default", "32", "true", "0.0", "40.0", "5.0", "10.0", "35.0", "0.0", "5.0", "5.0"]]


def test_a_cell_that_knows_no_stages_has_dashes() -> None:
    """Its row stays, so that the tables have the same rows."""
    known = make_record({"batch_size": 1}, evidence={"stage_shares": SHARES})
    lost = make_record({"batch_size": 8}, status="failed", reasons=["killed"])
    _, rows = table(details.stages(summary(known, lost)), "Where the latency goes (%)")
    assert [row[1] for row in rows] == ["1", "8"]
    assert set(rows[1][2:]) == {"–"}


def test_the_experiment_is_the_first_column() -> None:
    """As in the table above; where there are several, a cell is told apart by it."""
    records = [make_record({"experiment": name}, evidence={"stage_shares": SHARES}) for name in ("one", "two")]
    header, rows = table(details.stages(summary(*records)), "Where the latency goes (%)")
    assert header[:3] == ["experiment", "batch_size", "compile"]
    assert [row[:3] for row in rows] == [["one", "32", "true"], ["two", "32", "true"]]
    assert details.label(summary(*records).cells[1], summary(*records)) == "two, batch_size=32, compile=true"


def tail(length: float, stage: str | None = "compute") -> dict[str, Any]:
    """Evidence of a tail that is so many times as long as the middle."""
    sentence = f"p99 is {length:g} times p50; all of the difference is {stage}"
    return {"tail": TAIL | {"stage": stage, "sentence": sentence, "slow": {"latency": length}}}


def test_a_tail_is_a_sentence_and_what_to_try() -> None:
    """Of the valid runs the middle one's, of those that name the stage most often; no tail, no line."""
    wrong = make_record({"batch_size": 1}, status="invalid", reasons=["wrong"], evidence=tail(100))
    lengths = (9, 3, 4)
    runs = [make_record({"batch_size": 1, "repeat": k}, evidence=tail(x), seconds=k) for k, x in enumerate(lengths)]
    other = make_record({"batch_size": 1, "repeat": 3}, evidence=tail(5, "queue_wait"), seconds=4)
    none = [make_record({"batch_size": 8, "repeat": k}, evidence=tail(1, None)) for k in range(2)]
    once = make_record({"batch_size": 8, "repeat": 2}, evidence=tail(7))
    few = make_record({"batch_size": 32})
    assert notes.tails(summary(wrong, *runs, other, *none, once, few)) == [
        "p99 is 4 times p50; all of the difference is compute. Try less – batch_size=1 (3 runs)"
    ]


def test_the_same_tail_of_many_cells_is_one_line() -> None:
    """Ten cells of a burst all wait for the backlog, which is said once."""
    records = [make_record({"batch_size": size}, evidence=tail(2 + size)) for size in range(1, 11)]
    (line,) = notes.tails(summary(*records))
    assert line == "p99 is 3 times p50; all of the difference is compute. Try less – all cells (10 runs)"


def test_drift_is_told_of_the_cell_and_the_metric() -> None:
    """Throughput falls over 6 runs of one cell and stays within its noise in the other."""
    falls = repeats([106, 105, 104, 103, 102, 101], batch_size=1)
    noise = repeats([103, 101, 105, 102, 104, 103.5], batch_size=8)
    (line,) = notes.drifts(summary(*falls, *noise))
    assert line == ("drift: throughput falls from run to run (Spearman's ρ = -1.00, p = 0.0028, n = 6) – batch_size=1")


@pytest.mark.parametrize("name", ["average_latency", "throughput", "warmup_latency"])
def test_drift_goes_by_the_time_of_the_runs(name: str) -> None:
    """By when they started, not by the number of their repeat, and over the valid ones only."""
    records = repeats([1, 2, 3, 4, 5, 6], name)
    (line,) = notes.drifts(summary(*records))
    assert line.startswith(f"drift: {name} rises")
    wrong = make_record({"repeat": 7}, metrics={name: 0.0}, status="invalid", reasons=["wrong"], seconds=7)
    assert notes.drifts(summary(*records, wrong)) == [line]
    shuffled = [records[k] for k in (3, 0, 5, 1, 4, 2)]
    assert notes.drifts(summary(*shuffled)) == []


def test_a_ramp_has_a_row_for_each_step() -> None:
    """Steps count from 1 for a reader; what a step does not know is a dash."""
    steps = [STEP | {"latency_p50": 0.0123456}, {"step": 2.0, "throughput": 1.0, "average_latency": 9.0}]
    text = details.steps(summary(make_record({"batch_size": 1}, evidence={"steps": steps}), make_record()))
    header, rows = table(text, "Steps of the ramp")
    assert header[:4] == ["experiment", "batch_size", "step", "asked (requests/s)"]
    assert rows == [
        ["default", "1", "1", "100.0", "3200", "0.01000", "0.01235", "–", "0.5000"],
        ["default", "1", "3", "–", "1.000", "9.000", "–", "–", "–"],
    ]


def test_steps_are_means_over_the_valid_runs() -> None:
    """A failed run's steps are not among them, and a value that one run of two has says so."""
    lost = make_record(status="failed", reasons=["killed"], evidence={"steps": [STEP | {"throughput": 7.0}]})
    good = [
        make_record({"repeat": 1}, evidence={"steps": [STEP | {"throughput": 3000.0}]}, seconds=1),
        make_record({"repeat": 2}, evidence={"steps": [STEP | {"throughput": 3100.0, "latency_p50": 0.1}]}, seconds=2),
    ]
    _, rows = table(details.steps(summary(lost, *good)), "Steps of the ramp")
    assert [(row[5], row[7]) for row in rows] == [("3050 ± 71", "0.1000 (n=1)")]
    assert details.steps(summary(lost)) == ""


def test_what_nobody_knows_takes_no_room() -> None:
    """Records without evidence give no tables and no lines."""
    plain = summary(make_record(), make_record({"batch_size": 1}))
    assert [details.percentiles(plain), details.stages(plain), details.steps(plain)] == ["", "", ""]
    assert (notes.tails(plain), notes.drifts(plain)) == ([], [])


def test_the_summary_holds_all_of_it() -> None:
    """Each part under its heading, and drift among the warnings."""
    evidence = {"stage_shares": SHARES, "percentiles_missing": {"p50": 1}, "tail": TAIL, "steps": [STEP]}
    records = [
        make_record({"repeat": k}, metrics={"throughput": 100 + k}, evidence=evidence, warnings=["short"], seconds=k)
        for k in range(6)
    ]
    text = summary_markdown(summary(*records))
    headings = [
        "## How to read the table\n",
        "## How it was measured\n",
        "## Latency percentiles (s)\n",
        "## Where the latency goes (%)\n",
        "## What the slowest requests waited for\n\n- p99",
        "## Steps of the ramp\n",
        "## Warnings\n\n- short",
        "\n- drift: throughput rises",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_effects_of_two_level_axes_are_ratios() -> None:
    """Compiled is 1.5 times as fast at both batch sizes: an effect of 1.5, and no interaction."""
    runs = {(1, False): 10.0, (1, True): 15.0, (8, False): 20.0, (8, True): 30.0}
    records = [
        make_record(
            {"batch_size": size, "compile": compiled, "repeat": repeat}, metrics={"throughput": value + repeat / 100}
        )
        for (size, compiled), value in runs.items()
        for repeat in range(2)
    ]
    header, rows = table(details.effects_table(summarize(records)), "Effects of axes with two values")
    assert header == ["change", "throughput ×", "95 % interval"]
    found = {change: float(ratio) for change, ratio, _ in rows}
    assert found == pytest.approx(
        {"compile false → true": 1.5, "batch_size 1 → 8": 2, "batch_size 1 → 8 together with compile false → true": 1},
        rel=1e-3,
    )


def test_one_cell_has_no_effects() -> None:
    """There is nothing to compare it with."""
    assert details.effects_table(summarize([make_record()])) == ""
