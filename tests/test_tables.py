"""The three tables of a sweep hold each run, the right numbers and any user's text."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_records import make_record, write_sweep

from bench.results.metrics import STAGES
from bench.results.record import Record, write_record
from bench.results.statistics import Statistic
from bench.results.tables import write_tables
from bench.results.text import escaped, markdown_table, mean_std, printable, ratio_interval, shown

FILES = ["runs.csv", "summary.csv", "summary.md"]
SHARES = dict.fromkeys(STAGES, 1 / len(STAGES))


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        found = list(csv.DictReader(lines, strict=True))
    assert all(None not in row and None not in row.values() for row in found), "a row of another length"
    return found


def table(markdown: str) -> list[list[str]]:
    """Header and rows of the first table, as GitHub splits them: at bars that no backslash escapes."""
    first = markdown[markdown.index("\n|") + 1 :].split("\n\n")[0]
    lines = [line for line in first.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.replace("\\|", "\0")[1:-1].split("|")] for line in lines]
    return [split[0], *split[2:]]


def test_numbers_are_those_computed_by_hand(tmp_path: Path) -> None:
    """Throughputs 90, 100, 140: mean 110, deviation sqrt((400 + 100 + 900) / 2) = 26.46.

    The 95 % interval is 110 ± 4.3027 × 26.46 / √3, Student's t with 2 degrees of freedom.
    """
    write_sweep(tmp_path, *(make_record(metrics={"throughput": x}) for x in (90, 100, 140)))
    markdown = write_tables(tmp_path)
    (row,) = rows(tmp_path / "summary.csv")
    numbers = {name: float(row.pop(name)) for name in list(row) if name.startswith("throughput_")}
    assert row == {"experiment": "default", "batch_size": "32", "compile": "true", "n": "3", "verdict": "valid"}
    half = 4.302652729911275 * 700**0.5 / 3**0.5
    assert numbers == pytest.approx(
        {
            "throughput_mean": 110,
            "throughput_std": 700**0.5,
            "throughput_ci_low": 110 - half,
            "throughput_ci_high": 110 + half,
            "throughput_cv": 700**0.5 / 110,
        }
    )
    header, shown_row = table(markdown)
    assert header == [
        "experiment",
        "batch_size",
        "compile",
        "Warm-up latency (s)",
        "Average latency (s)",
        "Throughput (samples/s)",
        "GPU utilization (%)",
        "n",
    ]
    assert shown_row == ["default", "32", "true", "–", "–", "110 ± 26", "–", "3"]


def test_one_run_has_no_deviation(tmp_path: Path) -> None:
    """A single run, its record in the directory itself, has means and empty stds."""
    write_record(tmp_path, make_record(metrics={"throughput": 123.456}))
    assert table(write_tables(tmp_path))[1][5] == "123.5"
    summary, run = rows(tmp_path / "summary.csv")[0], rows(tmp_path / "runs.csv")[0]
    assert (summary["throughput_mean"], summary["throughput_std"], summary["n"]) == ("123.456", "", "1")
    assert [summary[f"throughput_{name}"] for name in ("ci_low", "ci_high", "cv")] == ["", "", ""]
    assert (run["directory"], run["throughput"]) == (".", "123.456")


def test_runs_have_every_setting_and_metric(tmp_path: Path) -> None:
    """Columns are the union over runs with other metrics and settings; what a run lacks is empty."""
    write_sweep(
        tmp_path,
        make_record({"load.clients": 2}, metrics={"a": 1}, warnings=["w1", "w2"]),
        make_record({"repeat": 1}, metrics={"b": 0.1}, status="invalid", reasons=["r1"], seconds=1),
    )
    write_tables(tmp_path)
    first, second = rows(tmp_path / "runs.csv")
    assert list(first)[:7] == [*("experiment", "directory", "started_at", "repeat", "verdict", "reasons", "warnings")]
    assert (first["verdict"], first["warnings"], first["reasons"]) == ("valid", "w1; w2", "")
    assert (second["verdict"], second["warnings"], second["reasons"]) == ("invalid", "", "r1")
    assert (first["directory"], second["directory"], second["repeat"]) == ("0", "1", "1")
    assert (first["a"], first["b"], second["a"], second["b"]) == ("1.0", "", "", "0.1")
    assert (first["load.clients"], second["load.clients"]) == ("2", "null")
    assert first["model.input_shape"] == "[3,250,250]"
    assert first["compile"] == "true"


def test_null_axis_and_duplicates_keep_their_rows(tmp_path: Path) -> None:
    """null and 2 are two rows; the same cell twice is one row with n = 2."""
    write_sweep(tmp_path, *(make_record({"stream_layout.intraop_threads": x}) for x in (2, None, 2)))
    markdown = write_tables(tmp_path)
    assert [(row[1], row[-1]) for row in table(markdown)[1:]] == [("null", "1"), ("2", "2")]
    axis = [row["stream_layout.intraop_threads"] for row in rows(tmp_path / "summary.csv")]
    assert axis == ["null", "2"]


def test_metric_of_fewer_runs_says_so(tmp_path: Path) -> None:
    """A mean over 1 of 2 runs is not passed off as one over both."""
    write_sweep(tmp_path, make_record(metrics={"gpu_util": 50}), make_record({"repeat": 1}, metrics={}))
    assert table(write_tables(tmp_path))[1][6:] == ["50.00 (n=1)", "2"]


def test_runs_that_do_not_count_are_explained(tmp_path: Path) -> None:
    """Table and lists say which cell, how many runs and why; warnings are listed once."""
    write_sweep(
        tmp_path,
        make_record({"batch_size": 1}, warnings=["short"]),
        make_record({"batch_size": 1, "repeat": 1}, warnings=["short"]),
        make_record({"batch_size": 1, "repeat": 2}, status="invalid", reasons=["answers wrong"]),
        make_record({"batch_size": 8}, status="failed", reasons=["backend killed"], metrics={}),
    )
    markdown = write_tables(tmp_path)
    assert [row[-1] for row in table(markdown)] == [
        "verdict",
        "2 of 3 runs: 1 INVALID (answers wrong)",
        "FAILED (backend killed)",
    ]
    assert "- INVALID: answers wrong – batch_size=1 (1 run)" in markdown
    assert "- FAILED: backend killed – batch_size=8 (1 run)" in markdown
    assert "- short – batch_size=1 (2 runs)" in markdown
    assert [row["verdict"] for row in rows(tmp_path / "summary.csv")] == [
        "2 of 3 runs: 1 INVALID (answers wrong)",
        "FAILED",
    ]


def test_warning_of_all_cells_is_one_line(tmp_path: Path) -> None:
    """What is true everywhere is not repeated for each cell."""
    write_sweep(tmp_path, *(make_record({"batch_size": size}, warnings=["short"]) for size in (1, 2, 3)))
    assert "- short – all cells (3 runs)" in write_tables(tmp_path)


def test_several_machines_are_said(tmp_path: Path) -> None:
    """One machine is named with its versions; two come with a warning and their counts."""
    gpu = {
        "cpu": {"model": "C"},
        "gpu": [{"name": "Some GPU"}],
        "hostname": "b",
        "versions": {"torch": "2.9"},
    }
    write_sweep(tmp_path, make_record())
    assert "- host, Some CPU; torch 2.14.1, python 3.11.2\n" in write_tables(tmp_path)
    write_sweep(tmp_path / "x", make_record({"repeat": 1}, environment=gpu))
    (tmp_path / "x" / "0").rename(tmp_path / "1")
    markdown = write_tables(tmp_path)
    assert "do not compare" in markdown
    assert "- b, C, Some GPU; torch 2.9 (1 run)" in markdown


def test_failed_run_that_knows_less_is_no_second_machine(tmp_path: Path) -> None:
    """A run that failed before it knew all of where it was raises no alarm, alone it is placed."""
    lost = make_record({"repeat": 1}, status="failed", reasons=["x"], environment={"hostname": "host"})
    write_sweep(tmp_path / "both", make_record(), lost)
    assert "do not compare" not in write_tables(tmp_path / "both")
    write_sweep(tmp_path / "alone", lost)
    assert "## Measured on\n\n- host\n" in write_tables(tmp_path / "alone")


def test_burst_is_explained_only_where_it_was(tmp_path: Path) -> None:
    """The hint at the backlog belongs to load=burst alone."""
    write_sweep(tmp_path / "burst", make_record())
    write_sweep(tmp_path / "closed", make_record({"load.name": "closed", "load.clients": 1}))
    assert "whole backlog" in write_tables(tmp_path / "burst")
    assert "whole backlog" not in write_tables(tmp_path / "closed")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, None),
        ({"expected": 1}, None),
        ({"expected": 20}, "1 of 20 runs so far."),
        ({"interrupted": True}, "**Interrupted after 1 run.**"),
        ({"interrupted": True, "expected": 20}, "**Interrupted after 1 of 20 runs.**"),
    ],
)
def test_unfinished_sweep_says_how_far_it_came(tmp_path: Path, arguments: Any, line: str | None) -> None:
    """The line stands between the sentence and the table, and only where runs are missing."""
    write_sweep(tmp_path, make_record())
    title, _, sentence, _, *above = write_tables(tmp_path, **arguments).partition("|")[0].splitlines()
    assert (title, sentence[:19]) == ("# default", "Batch 32, compiled:")
    assert above == ([line, ""] if line else [])


def test_writing_again_changes_nothing_and_leaves_no_other_file(tmp_path: Path) -> None:
    """The same records give the same bytes, and the tables are all that is added."""
    write_sweep(tmp_path, make_record(), make_record({"batch_size": 1}))
    assert write_tables(tmp_path) == (tmp_path / "summary.md").read_text(encoding="utf-8")
    before = [(tmp_path / name).read_bytes() for name in FILES]
    write_tables(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in FILES] == before
    assert sorted(os.listdir(tmp_path)) == ["0", "1", *FILES]


def test_broken_record_is_named_and_costs_no_other(tmp_path: Path) -> None:
    """The table is made of the readable records, and the file of the other stands below it."""
    write_sweep(tmp_path, make_record(), make_record({"repeat": 1}))
    (tmp_path / "1" / "metrics.json").write_text("{")
    markdown = write_tables(tmp_path)
    assert table(markdown)[1][-1] == "1"
    assert "## Unreadable records\n\n- " in markdown
    assert len(rows(tmp_path / "runs.csv")) == 1


def test_no_records_give_tables_without_rows(tmp_path: Path) -> None:
    """A sweep interrupted before its first record still has its files."""
    assert write_tables(tmp_path, interrupted=True, expected=2) == ("# No runs\n\n**Interrupted after 0 of 2 runs.**\n")
    assert rows(tmp_path / "runs.csv") == rows(tmp_path / "summary.csv") == []


HOSTILE = ["a,b", 'say "x"', "a|b", "über ± 語", "<b>x</b>", "`x` *y* _z_", "back\\slash|", "x" * 300, "=1+1"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_one_label(tmp_path: Path, text: str) -> None:
    """Experiment and model may be named anything printable: same rows, same columns, same text."""
    write_sweep(tmp_path, *(make_record({"experiment": text, "model.name": name}) for name in (text, "b")))
    markdown = write_tables(tmp_path)
    assert {row["model"] for row in rows(tmp_path / "summary.csv")} == {text, "b"}
    assert {row["experiment"] for row in rows(tmp_path / "runs.csv")} == {text}
    assert {len(row) for row in table(markdown)} == {7}
    assert escaped(text) in markdown


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300))
def test_any_reason_leaves_the_tables_whole(tmp_path: Path, text: str) -> None:
    """Newlines, control characters and bars in a reason add no row and no column."""
    write_record(tmp_path, make_record(status="failed", reasons=[text], warnings=[text], metrics={}))
    markdown = write_tables(tmp_path)
    assert [len(row) for row in table(markdown)] == [9, 9]
    [run] = rows(tmp_path / "runs.csv")
    clean = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    assert run["reasons"].encode() == clean.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        (601.234, 12.3, "601 ± 12"),
        (0.5, 0.00123, "0.5000 ± 0.0012"),
        (0.5, 0.0996, "0.50 ± 0.10"),
        (56789.0, 1234.0, "56800 ± 1200"),
        (5.0, 20.0, "5 ± 20"),
        (2.0, 0.0, "2.000 ± 0"),
        (0.0, 0.0, "0 ± 0"),
        (3.0, 4e-16, "3.000 ± 4e-16"),
        (601.234, None, "601.2"),
        (56789.0, None, "56790"),
        (0.00012345, None, "0.0001234"),
        (1.5e-9, None, "1.5e-09"),
        (0.0, None, "0"),
    ],
)
def test_digits_are_those_that_the_deviation_supports(mean: float, std: float | None, expected: str) -> None:
    """Two digits of the deviation, the mean to the same place; four digits of a single value."""
    assert mean_std(Statistic(mean, std, 1 if std is None else 3)) == expected


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.1423, 1.1123, 1.1723, ("1.142", "1.112 to 1.172")),
        (1.0, 0.05, 20.0, ("1.0", "0.050 to 20")),
        (1.5, 1.5, 1.5, ("1.500", "1.500 to 1.500")),
        (1.23456, None, None, ("1.235", "–")),
    ],
)
def test_a_ratio_has_the_digits_of_its_interval(
    ratio: float, low: float | None, high: float | None, expected: tuple[str, str]
) -> None:
    """Two digits of the half width; of a wide one each number has its own, and no bound becomes 0."""
    assert ratio_interval(ratio, low, high) == expected


@given(st.floats(-1e300, 1e300), st.floats(0, 1e300) | st.none())
def test_any_number_can_be_shown(mean: float, std: float | None) -> None:
    """No finite mean or deviation breaks the formatting, and the shown mean is within half a deviation."""
    text = mean_std(Statistic(mean, std, 2))
    if std is not None and std > 0:
        assert float(text.partition(" ")[0]) == pytest.approx(mean, abs=std / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (1.0, "1.0"), ([3, 64], "[3,64]"), ("null", "null"), ("é", "é")],
)
def test_settings_are_shown_as_yaml_spells_them(value: Any, text: str) -> None:
    """The labels of the tables can be typed as overrides."""
    assert shown(value) == text


def test_only_what_would_be_markup_is_escaped() -> None:
    """Names with inner underscores stay as they are, so that they read well in a terminal."""
    assert escaped("batch_size=[3,64] (x) 50% a-b") == "batch_size=[3,64] (x) 50% a-b"
    assert escaped("_x_ model._target_") == "\\_x\\_ model.\\_target\\_"
    assert escaped("a|b\nc\x1b[0m [x](y) &amp;") == "a\\|b c [0m [x\\](y) \\&amp;"


def test_wide_characters_keep_the_columns_aligned() -> None:
    """A terminal gives 語 two columns, and so does the table."""
    assert markdown_table(["a", "b"], [["語", "1"], ["xyz", "22"]], right={1}) == (
        "| a   |   b |\n| --- | --: |\n| 語  |   1 |\n| xyz |  22 |\n"
    )


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "1 ± 2 – é"),
        ("ascii", "1+/-2 - \\xe9"),
        (None, "1+/-2 - \\xe9"),
        ("unknown-8", "1+/-2 - \\xe9"),
        ("latin-1", "1+/-2 - é"),
    ],
)
def test_any_terminal_can_print(encoding: str | None, expected: str) -> None:
    """What an encoding lacks has a plain spelling of the same width where there is one."""
    assert printable("1 ± 2 – é", encoding) == expected


def marked(markdown: str, heading: str) -> list[str]:
    """The values of a column of the first table, as they are marked."""
    header, *found = table(markdown)
    return [row[header.index(heading)] for row in found]


def repeated(size: int, throughputs: Sequence[float], **metrics: float) -> list[Record]:
    return [
        make_record({"batch_size": size, "repeat": k}, metrics={"throughput": value, "gpu_util": 50.0, **metrics})
        for k, value in enumerate(throughputs)
    ]


def test_the_best_value_is_bold_and_what_cannot_be_told_apart_italic(tmp_path: Path) -> None:
    """High throughput and low latency are good; no utilization is the best; what bold means is said."""
    slow, close, fast = (
        repeated(size, [mean - 1, mean, mean + 1], warmup_latency=warm)
        for size, mean, warm in ((1, 50, 0.1), (8, 99.5, 0.2), (32, 100, 0.3))
    )
    write_sweep(tmp_path, *slow, *close, *fast)
    markdown = write_tables(tmp_path)
    assert marked(markdown, "Throughput (samples/s)") == ["50.0 ± 1.0", "*99.5 ± 1.0*", "**100.0 ± 1.0**"]
    assert [text[:2] for text in marked(markdown, "Warm-up latency (s)")] == ["**", "0.", "0."]
    assert not [text for text in marked(markdown, "GPU utilization (%)") if "*" in text]
    assert "- **Bold** is the best mean of a column, *italic*" in markdown


def test_nothing_is_marked_where_nothing_stands_out(tmp_path: Path) -> None:
    """One cell has no best, and cells that are all alike have none either."""
    write_sweep(tmp_path / "one", *repeated(1, [1, 2, 3]))
    write_sweep(tmp_path / "alike", *repeated(1, [1, 2, 3]), *repeated(8, [1, 2, 4]))
    for name in ("one", "alike"):
        assert "*" not in write_tables(tmp_path / name)


def test_cells_of_single_runs_are_marked_with_a_reservation(tmp_path: Path) -> None:
    """The best mean is bold, none is italic, and the reader is told that it may be chance."""
    write_sweep(tmp_path, *repeated(1, [100]), *repeated(8, [101]), *repeated(32, [102]))
    markdown = write_tables(tmp_path)
    assert marked(markdown, "Throughput (samples/s)") == ["100.0", "101.0", "**102.0**"]
    assert "single runs cannot tell it apart" in markdown


def test_runs_that_do_not_count_are_never_marked(tmp_path: Path) -> None:
    """A failed cell's numbers are in no column, however good they were."""
    wrong = make_record({"batch_size": 64}, metrics={"throughput": 1e9}, status="invalid", reasons=["wrong"])
    write_sweep(tmp_path, *repeated(1, [100, 101]), *repeated(8, [200, 201]), wrong)
    values = marked(write_tables(tmp_path), "Throughput (samples/s)")
    assert values == ["100.50 ± 0.71", "**200.50 ± 0.71**", "–"]


def test_a_percentile_stands_in_the_table_where_it_is_what_a_user_waits(tmp_path: Path) -> None:
    """The highest up to p99 that all cells have; none of a burst, whose latency is the backlog."""
    percentiles = {"latency_p50": 0.1, "latency_p95": 0.2, "latency_p99": 0.3, "latency_p99_9": 0.4}
    closed = {"load.name": "closed", "load.clients": 1}
    high = make_record({"batch_size": 1, **closed}, metrics=percentiles)
    low = make_record({"batch_size": 8, **closed}, metrics={"latency_p50": 0.1, "latency_p95": 0.2})
    write_sweep(tmp_path / "p99", high)
    write_sweep(tmp_path / "p95", high, low)
    write_sweep(tmp_path / "burst", make_record(metrics=percentiles))
    assert marked(write_tables(tmp_path / "p99"), "Latency p99 (s)") == ["0.3000"]
    assert "Latency p95 (s)" in table(write_tables(tmp_path / "p95"))[0]
    assert not [text for text in table(write_tables(tmp_path / "burst"))[0] if text.startswith("Latency p")]


def test_a_promise_has_its_columns(tmp_path: Path) -> None:
    """Goodput, and the share of the requests within the SLO in percent."""
    write_sweep(tmp_path, make_record(metrics={"goodput": 90, "slo_share": 0.9}))
    markdown = write_tables(tmp_path)
    assert (marked(markdown, "Goodput within SLO (samples/s)"), marked(markdown, "Within SLO (%)")) == (
        ["90.00"],
        ["90.00"],
    )


def test_how_it_was_measured_is_told(tmp_path: Path) -> None:
    """Load, requests, runs and what was the same; a swept setting is none of these."""
    write_sweep(tmp_path, *(make_record({"batch_size": size, "warmup_iters": 5}) for size in (1, 8)))
    _, _, after = write_tables(tmp_path).partition("## How it was measured\n\n")
    load, requests, runs, same = after.partition("\n\n")[0].splitlines()
    assert load == "- load=burst: all requests at once"
    assert requests == "- In each run: 100 measured requests, after the cold first request and 5 to warm up"
    assert runs == "- 1 run of each cell, each in fresh processes"
    assert same.startswith("- The same in all runs: model=resnet18, ")
    assert "batch_size" not in same


@pytest.mark.parametrize(
    ("cells", "words"),
    [([1, 8, 1, 8, 1], "in rounds"), ([1, 1, 8, 8], "one cell after the other"), ([1, 8, 8, 8, 1], "in a mixed order")],
)
def test_the_order_of_the_runs_is_told(tmp_path: Path, cells: list[int], words: str) -> None:
    """By when they started, since a drift of the machine is spread by rounds only."""
    records = [make_record({"batch_size": size, "repeat": k}, seconds=k) for k, size in enumerate(cells)]
    write_sweep(tmp_path, *reversed(records))
    assert f"in fresh processes; {words}" in write_tables(tmp_path)


def test_details_of_a_large_sweep_are_those_of_its_best_cells(tmp_path: Path) -> None:
    """Of 60 cells the first table has all, the others those that are best in a column, and that is said."""
    records = [
        make_record({"batch_size": size}, metrics={"throughput": size}, evidence={"stage_shares": SHARES})
        for size in range(1, 61)
    ]
    write_sweep(tmp_path, *records)
    markdown = write_tables(tmp_path)
    assert len(table(markdown)) == 61
    _, _, after = markdown.partition("## The best cells in detail\n\n")
    assert "Of 60 cells those that are best in a column." in after
    stages = after.partition("## Where the latency goes (%)\n\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split("|")[2].strip() for row in stages[2:]] == ["60"]


def test_the_sentence_is_escaped(tmp_path: Path) -> None:
    """A model's name is itself in Markdown, too."""
    write_sweep(tmp_path, *(make_record({"model.name": name}) for name in ("<b>*x*</b>", "y")))
    assert "model \\<b>\\*x\\*\\</b>" in write_tables(tmp_path).splitlines()[2]
