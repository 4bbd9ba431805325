"""Pictures show what the records say: every value is read back from the figure's own artists."""

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_records import make_record, write_run
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bench.results.metrics import PERCENTILES
from bench.results.plots.arrangement import best_cells, curves, frontier
from bench.results.plots.by_axis import by_axis
from bench.results.plots.course import course
from bench.results.plots.distribution import distribution
from bench.results.plots.order import runs_in_order
from bench.results.plots.runs import Runs
from bench.results.plots.stages import stages
from bench.results.plots.style import drawing, grouped, plain, scale, time_unit
from bench.results.plots.tradeoff import tradeoff
from bench.results.plots.utilization import utilization
from bench.results.record import Record, Verdict
from bench.results.summary import Summary, summarize


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    """Figures are made in the style of all pictures, as write_plots makes them."""
    with drawing():
        yield


def sweep(
    axes: Mapping[str, Sequence[Any]],
    metrics: Callable[..., Mapping[str, float]],
    repeats: int = 1,
    **fixed: Any,
) -> Summary:
    """A summary of all combinations of `axes`, whose `metrics` depend on the axes' values and the repeat."""
    records: list[Record] = []
    for repeat, values in itertools.product(range(repeats), itertools.product(*axes.values())):
        changes = {
            **{key.replace("__", "."): value for key, value in fixed.items()},
            **dict(zip(axes, values, strict=True)),
        }
        records.append(
            make_record({**changes, "repeat": repeat}, metrics=metrics(*values, repeat), seconds=len(records))
        )
    return summarize(records)


def drawn(figure: Figure | None) -> Figure:
    """The figure, laid out and drawn once."""
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def errorbars(axes: Axes) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """x, y and half the length of the error bar of each point, by the line's label."""
    found = {}
    for bars in axes.containers:
        assert isinstance(bars, ErrorbarContainer)
        line, _, (ends,) = bars.lines
        assert isinstance(ends, LineCollection)
        halves = [float(np.ptp(segment[:, 1])) / 2 for segment in ends.get_segments() if len(segment)]
        found[str(bars.get_label())] = (*points(line), halves)
    return found


def points(line: Any) -> tuple[list[float], list[float]]:
    """x and y of a line."""
    return [*line.get_xdata()], [*line.get_ydata()]


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts(figure: Figure) -> str:
    """The heading: title and notes."""
    return "\n".join(text.get_text() for text in figure.texts)


def ticks(axes: Axes, which: str) -> list[str]:
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    labels = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label.get_text() for place, label in labels if low <= place <= high and label.get_text()]


def two_axes(batch_size: int, compiled: bool, repeat: int) -> dict[str, float]:
    return {"throughput": 100.0 * batch_size + 50 * compiled + repeat, "average_latency": batch_size / 1000 + repeat}


def test_throughput_by_batch_size_is_the_summarys() -> None:
    """A line for each value of compile through the cells' means, bars of one standard deviation, named axes."""
    summary = sweep({"batch_size": [1, 32, 64], "compile": [False, True]}, two_axes, repeats=3)
    figure = drawn(by_axis(summary, "throughput"))
    (axes,) = figure.axes
    found = errorbars(axes)
    assert set(found) == {"compile=false", "compile=true"}
    for compiled, name in ((False, "compile=false"), (True, "compile=true")):
        cells = [cell for cell in summary.cells if cell.axes["compile"] is compiled]
        xs, ys, halves = found[name]
        assert xs == [1, 32, 64]
        assert ys == [cell.metrics["throughput"].mean for cell in cells]
        assert halves == pytest.approx([cell.metrics["throughput"].std for cell in cells])
    assert legend_texts(figure) == ["compile=false", "compile=true"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Batch size (samples in a request)", "Throughput (samples/s)")
    assert ticks(axes, "x") == ["1", "32", "64"]
    assert "Highest: 6,451 samples/s at batch_size=64, compile=true (ringed)" in texts(figure)
    assert "Mean of 3 valid runs; bars: ± one standard deviation." in texts(figure)


def test_error_bars_end_within_the_picture() -> None:
    """On a logarithmic axis, too; a bar that reaches 0, or nearly, does not stretch the axis to it."""
    deviations = {1: 3.0, 8: 140.0, 64: 2.0, 512: 2.0}

    def metrics(batch_size: int, repeat: int) -> dict[str, float]:
        speed = {1: 9.0, 8: 260.0, 64: 2000.0, 512: 90000.0}[batch_size] + (2 * repeat - 1) * deviations[batch_size]
        return {"throughput": speed, "average_latency": batch_size / 9, "latency_p99": batch_size + repeat / 9}

    summary = sweep({"batch_size": [1, 8, 64, 512]}, metrics, repeats=2)
    for figure in (drawn(by_axis(summary, "throughput")), drawn(tradeoff(summary))):
        low, high = figure.axes[0].get_ylim()
        assert figure.axes[0].get_yscale() == "log"
        for cell in summary.cells:
            found = cell.metrics["throughput"]
            assert low < found.mean - (found.std or 0) < found.mean + (found.std or 0) < high
    deviations[1] = 9 / 2**0.5 - 1e-9
    figure = drawn(by_axis(sweep({"batch_size": [1, 8, 64, 512]}, metrics, repeats=2), "throughput"))
    assert figure.axes[0].get_ylim()[0] > 1


def test_latency_has_its_unit_and_says_what_a_burst_is() -> None:
    """Milliseconds where they fit, the backlog in words under burst only, no error bars of single runs."""
    axes = {"batch_size": [1, 2]}

    def metrics(batch_size: int, _repeat: int) -> dict[str, float]:
        return {"throughput": 1.0, "average_latency": 0.02 * batch_size}

    figure = drawn(by_axis(sweep(axes, metrics), "average_latency"))
    assert figure.axes[0].get_ylabel() == "Average latency (ms)"
    ((_, ys, halves),) = errorbars(figure.axes[0]).values()
    assert (ys, halves) == ([20, 40], [])
    assert "sent all at once: latency holds the backlog" in texts(figure)
    closed = drawn(by_axis(sweep(axes, metrics, load__name="closed", load__clients=1), "average_latency"))
    assert "backlog" not in texts(closed)
    repeated = sweep(axes, lambda b, r: {"throughput": 1.0, "average_latency": (0.02 + 0.01 * r) * b}, repeats=2)
    ((_, ys, halves),) = errorbars(drawn(by_axis(repeated, "average_latency")).axes[0]).values()
    assert ys == pytest.approx([25, 50])
    assert halves == pytest.approx([50**0.5, 200**0.5])


def test_null_on_an_axis_is_a_place_of_its_own() -> None:
    """null, 1 and 4 threads stand at equal distances, named as in YAML."""
    summary = sweep({"stream_layout.intraop_threads": [4, None, 1]}, lambda t, _: two_axes(t or 9, False, 0))
    figure = drawn(by_axis(summary, "throughput"))
    assert ticks(figure.axes[0], "x") == ["null", "1", "4"]
    ((xs, ys, _),) = errorbars(figure.axes[0]).values()
    assert (xs, ys) == ([0, 1, 2], [900, 100, 400])


def test_axis_of_words_becomes_bars() -> None:
    """No number is swept: a bar for each cell, as long as its mean, the first on top."""
    summary = sweep(
        {"stream_layout.name": ["serial", "async"], "queue.name": ["torch"]},
        lambda layout, _queue, _repeat: {"throughput": float(len(layout)), "average_latency": 1.0},
    )
    figure = drawn(by_axis(summary, "throughput"))
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)] == [5, 6]
    assert ticks(axes, "y") == ["stream_layout=async", "stream_layout=serial"]
    assert axes.yaxis_inverted()
    assert axes.get_xlim()[0] == 0


def test_many_cells_become_panels_of_few_lines() -> None:
    """240 cells: every one is a point of one of 6 panels with 8 lines each, whose looks mean the same in all."""
    axes: dict[str, list[Any]] = {
        "batch_size": [1, 4, 16, 64, 256],
        "compile": [False, True],
        "num_workers": [1, 2, 3, 4],
        "stream_layout.name": ["serial", "async", "pipelined"],
        "queue.name": ["torch", "shared_memory"],
    }
    summary = sweep(axes, lambda b, c, w, *_: two_axes(b, c, w))
    found = curves(summary)
    assert found is not None
    assert len(found.cells) == len(summary.cells) == 240
    assert [len(panel.lines) for panel in found.panels] == [8] * 6
    assert len({line.look for panel in found.panels for line in panel.lines}) == 8
    assert all([cell.axes["batch_size"] for cell in line.cells] == axes["batch_size"] for line in found.panels[0].lines)
    figure = drawn(by_axis(summary, "throughput"))
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    assert "stream_layout=async, queue=torch" in titles
    assert len(titles) == 6


def test_lines_beyond_all_panels_are_the_best() -> None:
    """40 worker counts fit no picture: the 6 with the highest throughput stay, and the picture says so."""
    summary = sweep({"batch_size": [1, 2, 3], "num_workers": range(1, 41)}, lambda b, w, _: two_axes(b, False, w))
    figure = drawn(by_axis(summary, "throughput"))
    assert legend_texts(figure) == [f"num_workers={count}" for count in range(35, 41)]
    assert "The 6 of 40 lines with the highest throughput" in texts(figure)


def test_frontier_is_what_none_beats() -> None:
    """By latency: each further point has more throughput; of equal ones the better stays."""
    points = [(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (3.0, 3.0), (4.0, 9.0), (0.5, 0.1)]
    assert frontier(points) == [5, 0, 1, 4]
    assert frontier([]) == []


def test_tradeoff_shows_every_cell_the_frontier_and_the_slo() -> None:
    """Points are (p99, throughput) of the cells; the line joins the frontier; the promise is a line at its time."""

    def metrics(batch_size: int, _repeat: int) -> dict[str, float]:
        worse = {"throughput": 1.0, "average_latency": 0.5, "latency_p99": 0.9, "latency_p99_9": 1.0}
        good = {"throughput": batch_size, "average_latency": 0.01, "latency_p99": batch_size / 100}
        return worse if batch_size == 9 else good

    figure = drawn(tradeoff(sweep({"batch_size": [2, 4, 8, 9]}, metrics, slo__latency_ms=50.0)))
    (axes,) = figure.axes
    lines = {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}
    assert points(lines["frontier"]) == ([20, 40, 80], [2, 4, 8])
    assert points(lines["other"]) == ([900], [1])
    assert points(lines["slo"])[0] == [50, 50]
    assert axes.get_xlabel() == "Latency, p99 (ms)"
    assert [text.get_text() for text in axes.texts] == ["SLO 50 ms", "1", "2", "3"]
    assert legend_texts(figure)[1] == "(2)  batch_size=4: 4 samples/s, 40 ms"
    assert "within the SLO of 50 ms: 4 samples/s at batch_size=4." in texts(figure)


def test_tradeoff_takes_the_percentile_that_all_cells_support() -> None:
    """p95 where one cell has no p99, the average where they have none in common, and it says why."""

    def metrics(batch_size: int, _repeat: int) -> dict[str, float]:
        p99 = {"latency_p99": 3.0} if batch_size == 1 else {}
        return {"throughput": 1.0 * batch_size, "average_latency": 1.0, "latency_p50": 1.0, "latency_p95": 2.0, **p99}

    figure = drawn(tradeoff(sweep({"batch_size": [1, 2]}, metrics)))
    assert figure.axes[0].get_xlabel() == "Latency, p95 (s)"
    assert "p99 needs 299 requests" in texts(figure)
    average = drawn(tradeoff(sweep({"batch_size": [1, 2]}, lambda b, _: two_axes(b, False, 0))))
    assert average.axes[0].get_xlabel() == "Latency, average (ms)"


def test_best_cells_are_the_frontier_and_then_the_fastest() -> None:
    """Of 50 cells 4: both ends of the frontier are among them, in the summary's order, and a note says which."""
    latencies = {1: 0.001, 50: 5.0}
    summary = sweep(
        {"batch_size": range(1, 51)}, lambda b, _: {"throughput": b, "average_latency": latencies.get(b, 9.0)}
    )
    cells, note = best_cells(summary, 4)
    assert [cell.axes["batch_size"] for cell in cells] == [1, 48, 49, 50]
    assert note.startswith("4 of 50 cells")
    assert best_cells(summary, 50) == (summary.cells, "")


@pytest.fixture
def run(tmp_path: Path) -> Record:
    """A run of 400 requests, one after the other, of 10 ms and, every hundredth, of 100 ms."""
    times, now = [], 1.0
    for k in range(400):
        took = 0.1 if k % 100 == 99 else 0.01
        times.append((now, now + took))
        now += took
    changes = {"batch_size": 4, "load.name": "closed", "load.clients": 1}
    return write_run(tmp_path / "0", make_record(changes, metrics={}), times)


def test_distribution_is_the_share_of_requests(run: Record) -> None:
    """The curve is the empirical distribution in milliseconds, the marks are the record's percentiles."""
    figure = drawn(distribution(summarize([run]), Runs()))
    (axes,) = figure.axes
    curve, marks = axes.lines
    xs, ys = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    assert ys[-1] == 1
    assert xs[np.searchsorted(ys, 0.98)] == pytest.approx(10)
    assert xs[-1] == pytest.approx(100)
    times, places = points(marks)
    shown = dict(zip(places, times, strict=True))
    expected = {share: 1000 * run.metrics[f"latency_{name}"] for name, share in PERCENTILES.items() if name != "p99_9"}
    assert shown == pytest.approx(expected)
    assert ticks(axes, "y") == ["0", "50", "90", "95", "99"]
    assert axes.get_xlabel() == "Latency, from the intended send to the answer (ms)"
    assert "Marked: p50, p90, p95, p99." in texts(figure)


def test_distribution_of_many_requests_keeps_its_shape(tmp_path: Path) -> None:
    """Of 20,000 requests about a thousand are drawn, the slowest among them, each at its own share."""
    times = [(1.0, 1.0 + (k + 1) / 1000) for k in range(20_000)]
    record = write_run(tmp_path / "0", make_record(metrics={}), times)
    curve = drawn(distribution(summarize([record]), Runs())).axes[0].lines[0]
    xs, ys = np.asarray(curve.get_xdata())[1:], np.asarray(curve.get_ydata())[1:]
    assert len(xs) < 1100
    assert ys == pytest.approx(xs / 20)  # a straight line, in seconds
    assert xs[-3:] == pytest.approx([19.998, 19.999, 20])


def test_over_time_shows_each_request_and_the_throughput(run: Record) -> None:
    """A point a request at its answer, rates that hold all answers, and the record's throughput as the mean."""
    above, below = drawn(course(summarize([run]), Runs())).axes
    answered_s, latencies_ms = points(above.lines[0])
    assert len(answered_s) == 400
    assert max(latencies_ms) == pytest.approx(100)
    assert above.get_ylabel() == "Latency (ms)"
    (steps,) = below.patches
    values, edges, _ = steps.get_data()  # type: ignore[attr-defined]  # a StepPatch
    assert (values * np.diff(edges)).sum() == pytest.approx(4 * 400)
    assert edges[-1] == pytest.approx(run.metrics["window"])
    assert points(below.lines[0])[1][0] == run.metrics["throughput"]


def test_over_time_thins_points_but_not_the_slowest(tmp_path: Path) -> None:
    """Of 5,000 requests at most 800 are drawn, and the picture says so; the one slow request is there."""
    times = [(1 + k / 100, 1 + k / 100 + (3.0 if k == 1234 else 0.001)) for k in range(5000)]
    record = make_record({"load.name": "closed", "load.clients": 1}, metrics={})
    figure = drawn(course(summarize([write_run(tmp_path / "0", record, times)]), Runs()))
    ys = np.asarray(figure.axes[0].lines[0].get_ydata())
    assert len(ys) <= 800
    assert ys.max() == pytest.approx(3000)
    assert "of many requests some, the slowest among them" in texts(figure)


def test_stages_are_the_evidences_shares() -> None:
    """A bar for each cell, its parts the mean shares of the cell's runs; what cannot be seen is not named."""
    shares = {"queue_wait": 0.7, "compute": 0.299, "respond": 0.001}
    whole = dict.fromkeys(("schedule_delay", "h2d", "compute_wait", "d2h_wait", "d2h"), 0.0) | shares
    other = whole | {"queue_wait": 0.5, "compute": 0.499}
    records = [
        make_record({"repeat": repeat}, evidence={"stage_shares": one}, seconds=repeat)
        for repeat, one in enumerate([whole, other])
    ]
    figure = drawn(stages(summarize(records)))
    (axes,) = figure.axes
    widths = {str(bars.get_label()): [patch.get_width() for patch in bars] for bars in axes.containers}
    assert widths["Queue wait (for the backend)"] == pytest.approx([60])
    assert widths["Compute (forward pass)"] == pytest.approx([39.9])
    assert sum(width for (width,) in widths.values()) == pytest.approx(100)
    assert legend_texts(figure) == ["Queue wait (for the backend)", "Compute (forward pass)"]
    assert "load=burst" in texts(figure)


def test_utilization_is_the_telemetry(run: Record) -> None:
    """Percent, watts and GiB at the seconds since the first send; blank is absent, what was not sampled has no row."""
    rows = [
        {"time_ns": int(2e9), "cpu_util": "", "gpu_power_w": 100, "backend_rss_bytes": 2**30, "other": "a b"},
        {"time_ns": int(2.1e9), "cpu_util": 50, "gpu_power_w": 200, "backend_rss_bytes": 2**31, "other": ""},
        {"time_ns": int(2.2e9), "cpu_util": 75, "gpu_power_w": 300, "backend_rss_bytes": 2**31, "other": ""},
    ]
    with (run.directory / "telemetry.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    figure = drawn(utilization(summarize([run]), Runs()))
    found = {axes.get_ylabel(): points(axes.lines[0]) for axes in figure.axes}
    assert list(found) == ["Busy (%)", "GPU power (W)", "Memory (GiB)"]
    assert found["GPU power (W)"][0] == pytest.approx([0, 0.1, 0.2])
    assert found["GPU power (W)"][1] == [100, 200, 300]
    assert found["Busy (%)"][1] == [50, 75]
    assert found["Busy (%)"][0] == pytest.approx([0.1, 0.2])
    assert found["Memory (GiB)"][1] == [1, 2, 2]


def test_runs_in_order_show_drift_and_what_is_not_valid() -> None:
    """Percent off the cell's mean at the run's place in the order of starts; an invalid run is a cross."""
    values = [(90.0, "valid"), (500.0, "invalid"), (110.0, "valid")]
    records = [
        make_record(
            {"repeat": k},
            metrics={"throughput": value, "average_latency": 1.0},
            status=status,  # type: ignore[arg-type]  # one of the three
            seconds=10 - k,  # they started in the opposite order
        )
        for k, (value, status) in enumerate(values)
    ]
    summary = summarize(sorted(records, key=lambda record: record.started))
    figure = drawn(runs_in_order(summary))
    throughput = figure.axes[0]
    _, changes, _, bad = throughput.lines
    assert points(changes)[0] == [1, 3]
    assert points(changes)[1] == pytest.approx([10, -10])
    assert points(bad)[0] == [2]
    assert legend_texts(figure)[-1] == "invalid or failed"
    assert ticks(figure.axes[-1], "x") == ["1", "2", "3"]


def test_run_that_is_not_valid_is_shown_alone_and_says_so(run: Record) -> None:
    """A single run is drawn whatever its verdict, which stands in the heading; beside others it is left out."""
    invalid = replace(run, verdict=Verdict("invalid", ["answers are wrong"], []))
    alone = summarize([invalid])
    for figure in (distribution(alone, Runs()), course(alone, Runs()), stages(alone)):
        assert "INVALID (answers are wrong)" in texts(drawn(figure))
    other = make_record({"batch_size": 1, "load.name": "closed", "load.clients": 1})
    assert distribution(summarize([invalid, other]), Runs()) is None


def test_pictures_without_sense_are_not_drawn() -> None:
    """One cell has no axis and no frontier, one run has no order, a run without files has no course."""
    one = summarize([make_record()])
    for figure in (by_axis(one, "throughput"), tradeoff(one), runs_in_order(one), stages(one)):
        assert figure is None
    for figure in (distribution(one, Runs()), course(one, Runs()), utilization(one, Runs())):
        assert figure is None
    failed = summarize([make_record({"batch_size": size}, metrics={}, status="failed") for size in (1, 2)])
    assert (by_axis(failed, "throughput"), tradeoff(failed), stages(failed)) == (None, None, None)
    absent = sweep({"batch_size": [1, 2]}, lambda *_: {"warmup_latency": 1.0})
    assert (by_axis(absent, "throughput"), tradeoff(absent)) == (None, None)


@pytest.mark.parametrize(
    ("values", "log_from", "expected"),
    [
        ([3, 47], None, ["0", "10", "20", "30", "40", "50"]),
        ([0.02, 30], 10, ["0.03", "0.1", "0.3", "1", "3", "10", "30"]),
        ([1000, 4e6], 10, ["1,000", "10,000", "100,000", "1,000,000"]),
        ([0, 30], 10, ["0", "10", "20", "30"]),
        ([30, 100], 3, ["30", "40", "60", "80", "100"]),
        ([], None, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ([0.0, 0.0], None, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_are_plain_numbers(values: list[float], log_from: float | None, expected: list[str]) -> None:
    """From 0, or logarithmic where values differ much; never a power of ten in the exponent."""
    figure = Figure()
    axes = figure.subplots()
    scale(axes, "y", values, log_from=log_from)
    figure.draw_without_rendering()
    assert ticks(axes, "y") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.00025, "0.00025"), (-3.5, "−3.5"), (1234, "1,234"), (1e7, "10,000,000"), (0.1 + 0.2, "0.3")],
)
def test_number_at_a_tick(value: float, expected: str) -> None:
    """As a reader writes it."""
    assert plain(value) == expected


def test_figures_in_sentences() -> None:
    """Three digits, thousands apart; a time in the unit in which it is at least 1."""
    assert [grouped(value) for value in (0.12345, 7, 99.96, 12345.6)] == ["0.123", "7", "100", "12,346"]
    assert [time_unit([value])[0] for value in (2.0, 0.05, 2e-5)] == ["s", "ms", "µs"]
    assert time_unit([0.0]) == ("s", 1.0)
