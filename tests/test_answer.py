"""The sentence on top: which cell is best, what pays, and when neither can be said."""

import itertools
from typing import Any

import pytest
from make_records import ENVIRONMENT, make_record

from bench.results.answer import answer
from bench.results.record import Record
from bench.results.summary import summarize

NOISE = (-0.01, 0.0, 0.01)  # of three runs, relative
EAGER = {1: 300.0, 8: 400.0, 32: 420.0, 64: 425.0}  # samples/s by batch size


def runs(
    throughput: float,
    *,
    noise: tuple[float, ...] = NOISE,
    latency: float = 0.0,
    record: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Record]:
    """Runs of one cell, its settings with `__` for a dot; with a latency p50 and p99 of it, too."""
    found = []
    for repeat, shift in enumerate(noise):
        metrics = {"throughput": throughput * (1 + shift), "average_latency": 1.0}
        if latency:
            metrics |= {"latency_p50": latency * (1 + shift) / 2, "latency_p99": latency * (1 + shift)}
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        found.append(make_record({"repeat": repeat, **dotted}, metrics=metrics, **(record or {})))
    return found


def compiled(ratios: dict[int, float], **others: Any) -> list[Record]:
    """Eager and compiled at each batch size, compiled so many times as fast."""
    found = []
    for size, ratio in ratios.items():
        found += runs(EAGER[size], batch_size=size, compile=False, **others)
        found += runs(EAGER[size] * ratio, batch_size=size, compile=True, **others)
    return found


def said(*groups: list[Record]) -> str:
    return answer(summarize(list(itertools.chain(*groups))))


def test_main_question_is_answered_in_words() -> None:
    """Best cell with its figure; compile pays from batch 32 up, by so much, and costs below."""
    text = said(compiled({1: 0.9, 8: 1.0, 32: 1.14, 64: 1.14}))
    assert text == (
        "Highest throughput: batch 64, compiled: 484.5 ± 4.8 samples/s, not told apart from batch 32. "
        "Compile pays from batch 32 up: +14 % [12, 16], costs at batch 1: -10 % [-12, -8], unsure at batch 8."
    )


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ({1: 1.2, 8: 1.2, 32: 1.2}, "Compile pays throughout: +20 % [19, 21]."),
        ({1: 1.2, 8: 1.2, 32: 0.8}, "Compile pays up to batch 8: +20 % [18, 22], costs at batch 32: -20 % [-22, -18]."),
        ({1: 1.2, 8: 0.8, 32: 1.2}, "Compile pays at batch 1 and batch 32: +20 % [18, 22], costs at batch 8: "),
        ({1: 0.8, 8: 0.8, 32: 0.8}, "Compile pays nowhere, costs throughout: -20.0 % [-20.8, -19.2]."),
        ({1: 3.0, 8: 3.0}, "Compile pays throughout: ×3.00 [2.96, 3.04];"),
        ({1: 1.01, 8: 1.01}, "Whether compile pays is unsure: +1 % [0, 2];"),
        ({1: 1.01, 8: 1.0}, "Compile makes no difference on average, within 2 %: +0 % [-1, 2];"),
        ({1: 1.022, 8: 1.022, 32: 1.022}, "Compile pays on average: +2 % [1, 3], unsure where"),
        ({32: 1.2}, "Compile pays: +20 % [17, 23]."),
    ],
)
def test_where_an_axis_pays(ratios: dict[int, float], told: str) -> None:
    """Everywhere, up to or from a value, here and there, nowhere, or who knows."""
    assert told in said(compiled(ratios))


def test_equal_within_the_margin_pays_nowhere() -> None:
    """Intervals within ±2 % are the same, which is known and not unsure."""
    text = said(compiled({1: 1.001, 8: 1.0}, noise=(-0.002, -0.001, 0.0, 0.001, 0.002)))
    assert "Compile pays nowhere: +0.0 % [-0.1, 0.2]" in text


def test_false_alarms_are_corrected_for_the_number_of_batch_sizes() -> None:
    """A difference with p = 0.03 pays where it is the only one, and is unsure among four."""
    one = runs(100, noise=(-0.02, 0, 0.02), batch_size=1, compile=True)
    other = runs(95.6, noise=(-0.01, 0, 0.01), batch_size=1, compile=False)
    assert "Compile pays: +" in said(one, other)
    assert "unsure at batch 1 and batch 64." in said(one, other, compiled({8: 1.2, 32: 0.8, 64: 1.0}))


def test_words_go_towards_the_better_one_and_numbers_upwards() -> None:
    """Which layout to take is said, not which to leave; fewer workers are told as what more of them cost."""
    layouts = [runs(t, stream_layout__name=name) for name, t in (("pipelined", 120), ("serial", 100))]
    assert said(*layouts).endswith("Going from layout serial to layout pipelined pays: +20 % [17, 23].")
    workers = [runs(t, num_workers=n) for n, t in ((1, 120), (4, 100))]
    assert said(*workers).endswith("Going from 1 worker to 4 workers pays nowhere, costs: -17 % [-19, -15].")


def test_what_cannot_be_told_apart_is_not_passed_over() -> None:
    """One is named by what sets it apart, many are counted, and where all are alike no cell stands out."""
    cells = [runs(t, batch_size=size) for size, t in ((1, 50), (2, 100), (4, 100.1), (8, 100.2), (16, 100.3))]
    assert "batch 16: 100.3 ± 1.0 samples/s, not told apart from 3 of the other 4 cells." in said(*cells)
    assert "batch 4: 100.1 ± 1.0 samples/s, not told apart from batch 2." in said(*cells[:3])
    assert "batch 4: 100.1 ± 1.0 samples/s, not told apart from the other cell." in said(*cells[1:3])
    assert "batch 8: 100.2 ± 1.0 samples/s, not told apart from any other cell." in said(*cells[1:4])


def test_single_runs_say_that_nothing_is_tested() -> None:
    """The best is named, with a reservation, and whether compile pays is unsure."""
    text = said(compiled({1: 1.2, 8: 1.2}, noise=(0.0,)))
    assert text == (
        "Highest throughput: batch 8, compiled: 480.0 samples/s. Whether compile pays is unsure, from single runs: "
        "+20 %; whether going from batch 1 to batch 8 pays is unsure, from single runs: +33 %. "
        "Each cell has a single run, so no difference is tested."
    )


def test_one_cell_is_told_by_its_figures() -> None:
    """No comparison where there is nothing to compare; a single run says so."""
    assert said(runs(100)) == "Batch 32, compiled: throughput 100.0 ± 1.0 samples/s."
    assert said(runs(100, noise=(0.0,))) == (
        "Batch 32, compiled: throughput 100.0 samples/s. It is a single run, so nothing is known of its spread."
    )


def closed(throughput: float, latency: float, **others: Any) -> list[Record]:
    return runs(throughput, latency=latency, load__name="closed", load__clients=4, **others)


def test_latency_is_named_where_it_is_what_a_user_waits() -> None:
    """Of a closed load the lowest p99 is told, in milliseconds; of a burst it holds the backlog and is not."""
    cells = ((1, 100.0, 0.010), (8, 300.0, 0.060))
    assert "; lowest p99: batch 1: 10.00 ± 0.10 ms." in said(*(closed(t, p, batch_size=n) for n, t, p in cells))
    assert "p99" not in said(*(runs(t, latency=p, batch_size=n) for n, t, p in cells))


def test_percentile_is_one_that_all_cells_support() -> None:
    """A cell with too few requests for p99 is not left out of the comparison."""
    few = closed(300.0, 0.060, batch_size=8)
    for record in few:
        del record.metrics["latency_p99"]
    assert "; lowest p50: batch 1: 5.000 ± 0.050 ms." in said(closed(100.0, 0.010, batch_size=1), few)


def test_an_open_load_is_judged_by_latency() -> None:
    """Its throughput is what was asked, the same for all, so it is neither the best nor what pays."""
    fast, slow = (
        runs(100, latency=p, load__name="poisson", load__rate=100, compile=c) for c, p in ((True, 0.01), (False, 0.02))
    )
    assert said(fast, slow) == "Lowest p99: compiled: 10.00 ± 0.10 ms. Compile pays: p99 -50 % [-51, -49]."


def promised(throughput: float, share: float, size: int, limit: float = 50) -> list[Record]:
    records = closed(throughput, 0.01 * size, batch_size=size, slo__latency_ms=limit)
    for record in records:
        record.metrics.update(slo_share=share, goodput=share * record.metrics["throughput"])
    return records


def test_a_promise_comes_before_the_throughput() -> None:
    """The fastest cell that keeps the SLO is named; where none does, the highest goodput; not 99.96 % as 100 %."""
    kept, broken, worse = promised(100, 0.9996, 1), promised(300, 0.98, 8), promised(400, 0.1, 16)
    start = "Highest throughput with 99 % of the requests within 50 ms: batch 1: 100.0 ± 1.0 samples/s; lowest p99: "
    assert said(kept, broken, worse).startswith(start)
    none = "No cell answers 99 % of the requests within 50 ms; highest goodput: batch 8: 294.0 ± 2.9 samples/s (98 % of"
    assert said(broken, worse).startswith(none)
    assert said(kept).endswith(", 99.9 % of the requests within 50 ms.")
    assert said(promised(100, 0.0, 1), promised(200, 0.0, 8)).startswith(
        "No cell answers 99 % of the requests within 50 ms; lowest p99"
    )


def test_runs_that_do_not_count_are_never_best() -> None:
    """An invalid cell is left out and its absence told; with no valid run nothing is recommended."""
    wrong = runs(1e6, batch_size=64, record={"status": "invalid", "reasons": ["wrong answers"]})
    text = said(runs(100, batch_size=1), runs(200, batch_size=8), wrong)
    assert text.startswith("Highest throughput: batch 8: 200.0 ± 2.0 samples/s. ")
    assert text.endswith(" 1 of 3 cells has no valid run.")
    assert said(wrong) == "No run is valid, so there is nothing to choose by."
    assert said() == ""


def test_several_machines_have_no_best() -> None:
    """Their numbers do not compare."""
    other = runs(200, batch_size=8, record={"environment": ENVIRONMENT | {"hostname": "other"}})
    assert "no cell is named best" in said(runs(100, batch_size=1), other)


def test_several_experiments_are_named() -> None:
    """The best over all of them, by experiment too; what pays is an average within each."""
    both = [compiled({1: 1.2, 8: 1.2}, experiment=name) for name in ("one", "two")]
    text = said(*both)
    assert text.startswith("Highest throughput: experiment one, batch 8, compiled: 480.0 ± 4.8 samples/s, not told ")
    assert "not told apart from experiment two. Compile pays throughout: +20 % [19, 21]" in text


def test_any_users_text_stays_one_short_line() -> None:
    """A name of 300 characters does not blow up the sentence."""
    text = said(*(runs(t, model__name=name) for name, t in (("ab " * 100 + "c", 200), ("b", 100))))
    assert text.startswith("Highest throughput: model ab ab ab")
    assert len(text) < 200


def test_unknown_axes_are_told_by_key_and_value() -> None:
    """Words exist for the usual ones only."""
    cells = [runs(t, model__args={"hidden": hidden}) for hidden, t in ((512, 200), (1024, 100))]
    assert said(*cells) == "Highest throughput: model.args.hidden=512: 200.0 ± 2.0 samples/s."


def test_being_best_of_many_is_corrected_for_their_number() -> None:
    """A cell with p = 0.03 is told apart from the best alone, and not beside another that is as good."""
    first = runs(100, noise=(-0.02, 0, 0.02), batch_size=1)
    second, third = runs(95.6, batch_size=8), runs(99.9, noise=(-0.02, 0, 0.02), batch_size=32)
    assert "told apart" not in said(first, second)
    assert "not told apart from any other cell" in said(first, second, third)
