"""What stands below the table: percentiles, stages, tails, drift and the steps of a ramp."""

from collections.abc import Sequence
from typing import Any

import pytest
from make_records import make_record

from bench.results import details
from bench.results.markdown import summary_markdown
from bench.results.metrics import STAGES
from bench.results.record import Record
from bench.results.stages import missing_percentiles
from bench.results.summary import Summary, summarize

SHARES = dict(zip(STAGES, (0.0, 0.5, 0.05, 0.1, 0.25, 0.0, 0.05, 0.05), strict=True))
TAIL = {"stage": "compute", "sentence": "p99 is 3 times p50; all of the difference is compute", "advice": "less"}
STEP = {"step": 0.0, "asked_rate": 100.0, "throughput": 3200.0, "average_latency": 0.01, "max_latency": 0.5}


def table(text: str, title: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table under `title`."""
    heading, _, *lines = text.splitlines()
    assert heading == title
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
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
    assert header == ["batch_size", "compile", "p50", "p90", "p95", "p99", "p99.9"]
    assert rows == [
        ["1", "true", "0.01000", "0.02000", "0.03000", "– (239 more requests)", "– (2935 more requests)"],
    ]


def test_percentiles_are_means_over_the_valid_runs() -> None:
    """1 and 3 s are 2.0 ± 1.4 s; an invalid run's 100 s counts for nothing, nor does what it lacks."""
    records = [make_record({"repeat": k}, metrics={"latency_p50": value}) for k, value in enumerate((1.0, 3.0))]
    wrong = make_record({"repeat": 2}, metrics={"latency_p50": 100.0}, status="invalid", reasons=["wrong"])
    lost = make_record(
        {"batch_size": 8}, status="failed", reasons=["killed"], evidence={"percentiles_missing": {"p50": 5}}
    )
    _, rows = table(details.percentiles(summary(wrong, *records, lost)), "Latency percentiles (s)")
    assert [row[:2] for row in rows] == [["8", "–"], ["32", "2.0 ± 1.4"]]


def test_stages_are_mean_shares_of_the_valid_runs() -> None:
    """Queue wait holds 50 % and 30 % of the latency in two runs; a failed run's shares are no part of the mean."""
    other = SHARES | {"queue_wait": 0.3, "compute": 0.45}
    records = [
        make_record({"repeat": k}, evidence={"stage_shares": shares}) for k, shares in enumerate((SHARES, other))
    ]
    lost = make_record({"repeat": 2}, status="failed", reasons=["killed"], evidence={"stage_shares": {}})
    header, rows = table(details.stages(summary(*records, lost)), "Where the latency goes (%)")
    assert header[2:] == [stage.replace("_", " ") for stage in STAGES]
    assert rows == [["32", "true", "0.0", "40.0", "5.0", "10.0", "35.0", "0.0", "5.0", "5.0"]]


def test_a_cell_that_knows_no_stages_has_dashes() -> None:
    """Its row stays, so that the tables have the same rows."""
    known = make_record({"batch_size": 1}, evidence={"stage_shares": SHARES})
    lost = make_record({"batch_size": 8}, status="failed", reasons=["killed"])
    _, rows = table(details.stages(summary(known, lost)), "Where the latency goes (%)")
    assert [row[0] for row in rows] == ["1", "8"]
    assert set(rows[1][1:]) == {"–"}


def test_the_experiment_is_named_where_there_are_several() -> None:
    """Its column comes first, as in the table above, and the axis is told apart by it."""
    records = [make_record({"experiment": name}, evidence={"stage_shares": SHARES}) for name in ("one", "two")]
    header, rows = table(details.stages(summary(*records)), "Where the latency goes (%)")
    assert header[:3] == ["experiment", "batch_size", "compile"]
    assert [row[:3] for row in rows] == [["one", "32", "true"], ["two", "32", "true"]]
    assert details.label(summary(*records).cells[1], summary(*records)) == "two, batch_size=32, compile=true"


def test_a_tail_is_a_sentence_and_what_to_try() -> None:
    """Of the first valid run of each cell that has one; a cell without a tail has no line."""
    wrong = make_record(
        {"batch_size": 1}, status="invalid", reasons=["wrong"], evidence={"tail": TAIL | {"sentence": "of a wrong run"}}
    )
    first = make_record({"batch_size": 1, "repeat": 1}, evidence={"tail": TAIL}, seconds=1)
    second = make_record({"batch_size": 1, "repeat": 2}, evidence={"tail": TAIL | {"sentence": "later"}}, seconds=2)
    none = make_record({"batch_size": 8}, evidence={"tail": TAIL | {"stage": None}})
    few = make_record({"batch_size": 32})
    assert details.tails(summary(wrong, first, second, none, few)) == [
        "batch_size=1: p99 is 3 times p50; all of the difference is compute. Try less"
    ]


def test_drift_is_told_of_the_cell_and_the_metric() -> None:
    """Throughput falls over 6 runs of one cell and stays within its noise in the other."""
    falls = repeats([106, 105, 104, 103, 102, 101], batch_size=1)
    noise = repeats([103, 101, 105, 102, 104, 103.5], batch_size=8)
    (line,) = details.drifts(summary(*falls, *noise))
    assert line == ("drift: throughput falls from run to run (Spearman's ρ = -1.00, p = 0.0028, n = 6) – batch_size=1")


@pytest.mark.parametrize("name", ["average_latency", "throughput", "warmup_latency"])
def test_drift_goes_by_the_time_of_the_runs(name: str) -> None:
    """By when they started, not by the number of their repeat, and over the valid ones only."""
    records = repeats([1, 2, 3, 4, 5, 6], name)
    (line,) = details.drifts(summary(*records))
    assert line.startswith(f"drift: {name} rises")
    wrong = make_record({"repeat": 7}, metrics={name: 0.0}, status="invalid", reasons=["wrong"], seconds=7)
    assert details.drifts(summary(*records, wrong)) == [line]
    shuffled = [records[k] for k in (3, 0, 5, 1, 4, 2)]
    assert details.drifts(summary(*shuffled)) == []


def test_a_ramp_has_a_row_for_each_step() -> None:
    """Steps count from 1 for a reader; what a step does not know is a dash."""
    steps = [STEP | {"latency_p50": 0.0123456}, {"step": 2.0, "throughput": 1.0, "average_latency": 9.0}]
    text = details.steps(summary(make_record({"batch_size": 1}, evidence={"steps": steps}), make_record()))
    header, rows = table(text, "Steps of the ramp")
    assert header[:4] == ["cell", "step", "asked (requests/s)", "samples/s"]
    assert rows == [
        ["batch_size=1", "1", "100", "3200", "0.01", "0.01235", "–", "0.5"],
        ["batch_size=1", "3", "–", "1", "9", "–", "–", "–"],
    ]


def test_steps_are_those_of_a_valid_run() -> None:
    """The first one that counts, not a failed one before it."""
    lost = make_record(status="failed", reasons=["killed"], evidence={"steps": [STEP | {"throughput": 7.0}]})
    good = make_record({"repeat": 1}, evidence={"steps": [STEP]}, seconds=1)
    _, rows = table(details.steps(summary(lost, good)), "Steps of the ramp")
    assert [row[3] for row in rows] == ["3200"]
    assert details.steps(summary(lost)) == ""


def test_what_nobody_knows_takes_no_room() -> None:
    """Records without evidence give no tables and no lines."""
    plain = summary(make_record(), make_record({"batch_size": 1}))
    assert [details.percentiles(plain), details.stages(plain), details.steps(plain)] == ["", "", ""]
    assert (details.tails(plain), details.drifts(plain)) == ([], [])


def test_the_summary_holds_all_of_it() -> None:
    """Each part under its heading, and drift among the warnings."""
    evidence = {"stage_shares": SHARES, "percentiles_missing": {"p50": 1}, "tail": TAIL, "steps": [STEP]}
    records = [
        make_record({"repeat": k}, metrics={"throughput": 100 + k}, evidence=evidence, warnings=["short"], seconds=k)
        for k in range(6)
    ]
    text = summary_markdown(summary(*records))
    headings = [
        "Latency percentiles (s)\n",
        "Where the latency goes (%)\n",
        "Steps of the ramp\n",
        "What the slowest requests waited for:\n\n- batch_size=32, compile=true: p99",
        "Warnings:\n\n- short",
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
    table = details.effects_table(summarize(records))
    rows = {line.split("|")[2].strip(): line.split("|")[3].strip() for line in table.splitlines()[4:]}
    assert rows["compile false → true"] == "1.500"
    assert rows["batch_size 1 → 8"] == "2.000"
    assert rows["batch_size 1 → 8 and compile false → true"] == "1.000"


def test_one_cell_has_no_effects() -> None:
    """There is nothing to compare it with."""
    assert details.effects_table(summarize([make_record()])) == ""
