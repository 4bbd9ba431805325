"""Adaptive stopping chooses the cell that is known least, and stops."""

import dataclasses

import pytest
from make_records import make_record

from bench.config import Precision
from bench.results.precision import widest
from bench.results.record import Record, Status
from bench.results.summary import summarize

WANTED = Precision(relative_ci=0.05, metric="throughput", max_repeats=4, max_minutes=None)


def runs(batch_size: int, *throughputs: float, status: Status = "valid") -> list[Record]:
    """The repeats of a cell."""
    return [
        make_record(
            {"batch_size": batch_size, "repeat": repeat},
            metrics={"throughput": value, "average_latency": 1.0 + repeat},
            status=status,
            reasons=[] if status == "valid" else ["for a test"],
        )
        for repeat, value in enumerate(throughputs)
    ]


def chosen(*cells: list[Record], wanted: Precision = WANTED) -> int | None:
    """The batch size of the cell that needs another repeat."""
    cell = widest(summarize([record for cell in cells for record in cell]), wanted)
    return None if cell is None else int(cell.axes["batch_size"])


# Half widths over the mean, t(2) = 4.303: 101 ± 2.48 is 2.5 %; 110 ± 24.8 is 23 %; 120 ± 49.7 is 41 %.
CERTAIN, WIDE, WIDER = (100.0, 101.0, 102.0), (100.0, 110.0, 120.0), (100.0, 120.0, 140.0)


def test_the_widest_interval_is_next() -> None:
    """Relative to its mean, wherever it stands."""
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        cells = dict(zip(order, (CERTAIN, WIDER, WIDE), strict=True))
        assert chosen(*(runs(size, *values) for size, values in cells.items())) == order[1]
    assert chosen(runs(1, *WIDE), runs(2, *(1000 * value for value in CERTAIN))) == 1


def test_nothing_is_next_when_all_are_certain() -> None:
    """Every cell's interval is within what was asked."""
    assert chosen(runs(1, *CERTAIN), runs(2, *CERTAIN)) is None


@pytest.mark.parametrize(("relative_ci", "is_next"), [(0.0245, True), (0.0247, False)])
def test_within_is_half_the_interval_over_the_mean(relative_ci: float, is_next: bool) -> None:
    """4.3027 / √3 over 101 is 0.02460."""
    wanted = dataclasses.replace(WANTED, relative_ci=relative_ci)
    assert (chosen(runs(1, *CERTAIN), wanted=wanted) is not None) is is_next


def test_a_single_run_is_the_least_certain() -> None:
    """It has no interval, so it comes before the widest that is known."""
    assert chosen(runs(1, 1.0, 1000.0), runs(2, 50.0)) == 2


def test_no_cell_has_more_runs_than_allowed() -> None:
    """The widest has its 4 runs, so the next one is chosen, and none at last."""
    full = runs(1, 1.0, 500.0, 1000.0, 2000.0)
    assert chosen(full, runs(2, *WIDE)) == 2
    assert chosen(full, runs(2, *CERTAIN)) is None
    assert chosen(full, wanted=dataclasses.replace(WANTED, max_repeats=5)) == 1


def test_runs_that_do_not_count_are_runs_all_the_same() -> None:
    """A cell that fails now and then must not be repeated for ever: 2 valid and 2 failed runs are 4."""
    flaky = [*runs(1, 1.0, 1000.0), *runs(1, 1.0, 1.0, status="failed")]
    assert chosen(flaky) is None
    assert chosen(flaky[:3]) == 1


@pytest.mark.parametrize("status", ["failed", "invalid"])
def test_a_cell_without_a_valid_run_is_passed_over(status: Status) -> None:
    """Repeating it would not make it valid, and hides no other cell."""
    broken = runs(1, 100.0, status=status)
    assert chosen(broken) is None
    assert chosen(broken, runs(2, *WIDE)) == 2


def test_the_metric_is_the_one_that_was_asked_for() -> None:
    """Certain in its throughput, and not in its latencies of 1, 2 and 3 s; one it lacks asks for nothing."""
    cell = runs(1, *CERTAIN)
    assert chosen(cell, wanted=dataclasses.replace(WANTED, metric="average_latency")) == 1
    assert chosen(cell, wanted=dataclasses.replace(WANTED, metric="gpu_util")) is None


def test_without_a_wish_nothing_is_repeated() -> None:
    """precision.relative_ci=null, the default."""
    assert chosen(runs(1, *WIDER), wanted=dataclasses.replace(WANTED, relative_ci=None)) is None
