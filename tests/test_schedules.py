"""Schedules of the open-loop load patterns, and the rule that says when the client fell behind."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from bench.errors import ConfigError
from bench.frontend.schedules import Step, behind, constant, poisson, ramp, replay, steps_of

S = 1_000_000_000
MS = 1_000_000

rates = st.floats(0.01, 1e6)
counts = st.integers(1, 2000)
seeds = st.integers(0, 2**63)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(rate=rates, count=counts)
def test_constant_is_on_the_grid_of_its_rate(rate: float, count: int) -> None:
    """Request k is due at k/rate, to the nanosecond, and there are as many as were asked."""
    offsets = constant(rate, num_iters=count)
    assert len(offsets) == count
    assert np.abs(offsets - np.arange(count) / rate * 1e9).max() <= 0.5 + 1e-12 * count / rate * 1e9


def test_constant_ends_before_its_duration() -> None:
    """At 4 requests/s one second holds those at 0, 250, 500 and 750 ms: the one at 1 s is out."""
    assert constant(4, duration_s=1).tolist() == [0, 250 * MS, 500 * MS, 750 * MS]
    assert constant(4, duration_s=1.001).tolist()[-1] == S


@given(rate=rates, count=counts, seed=seeds)
def test_poisson_is_monotone_and_starts_with_an_interval(rate: float, count: int, seed: int) -> None:
    """The times never go back, none is before the start, and there are as many as were asked."""
    offsets = poisson(rate, rng(seed), num_iters=count)
    assert (offsets.dtype, len(offsets)) == (np.dtype(np.int64), count)
    assert offsets[0] >= 0
    assert (np.diff(offsets) >= 0).all()


@given(rate=st.floats(1, 1e4), count=counts, more=counts, seed=seeds)
def test_poisson_is_given_by_its_seed(rate: float, count: int, more: int, seed: int) -> None:
    """The same seed gives the same times, and a longer run begins with the times of a shorter one."""
    short, long = poisson(rate, rng(seed), num_iters=count), poisson(rate, rng(seed), num_iters=count + more)
    assert (long[:count] == short).all()
    assert (poisson(rate, rng(seed + 1), num_iters=count) != short).any()


def test_poisson_does_not_show_its_chunks() -> None:
    """More requests than are drawn at once are the cumulated intervals of one generator."""
    whole = np.rint(np.cumsum(rng(5).exponential(S / 1000, 150_000))).astype(np.int64)
    assert (poisson(1000, rng(5), num_iters=150_000) == whole).all()
    assert (poisson(1000, rng(5), duration_s=140) == whole[whole < 140 * S]).all()


def test_poisson_intervals_are_exponential_and_independent() -> None:
    """Kolmogorov and Smirnov do not tell 20,000 intervals from exponential ones; constant ones fail the same test."""
    intervals = np.diff(poisson(20_000, rng(1), num_iters=20_001)) / S
    assert kstest(intervals, "expon", args=(0, 1 / 20_000)).pvalue > 0.05
    assert abs(np.corrcoef(intervals[1:], intervals[:-1])[0, 1]) < 3 / np.sqrt(len(intervals))
    assert kstest(np.diff(constant(20_000, num_iters=1000)) / S, "expon", args=(0, 1 / 20_000)).pvalue < 1e-6


@given(rate=st.floats(100, 1e5), seed=seeds)
def test_poisson_counts_are_those_of_its_rate(rate: float, seed: int) -> None:
    """In a window with 400 requests expected there are 400, within 6 of its standard deviations (20)."""
    offsets = poisson(rate, rng(seed), duration_s=400 / rate)
    assert offsets[-1] < 400 / rate * 1e9
    assert 280 < len(offsets) < 520


@given(rate=st.floats(1, 1e4), count=counts, duration_s=st.floats(0.01, 1), seed=seeds)
def test_the_first_reached_end_counts(rate: float, count: int, duration_s: float, seed: int) -> None:
    """With both ends set there are the requests that either end alone would leave."""
    both = constant(rate, num_iters=count, duration_s=duration_s)
    either = constant(rate, num_iters=count)
    assert (both == either[either < duration_s * 1e9]).all()
    drawn = poisson(rate, rng(seed), num_iters=count)
    if (kept := drawn[drawn < duration_s * 1e9]).size:
        assert (poisson(rate, rng(seed), num_iters=count, duration_s=duration_s) == kept).all()


def test_ramp_steps_follow_each_other() -> None:
    """A step ends at its time or with its requests, the next begins there, and each request knows its step."""
    offsets, steps = ramp([Step(2, duration_s=1), Step(10, requests=3), Step(4, duration_s=0.5, requests=9)])
    assert (offsets / MS).tolist() == [0, 500, 1000, 1100, 1200, 1300, 1550]
    assert steps.tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_ramp_ends_where_the_run_ends() -> None:
    """`num_iters` and `duration_s` cut a ramp like any other schedule."""
    steps = [Step(2, duration_s=1), Step(10, requests=3)]
    assert [part.tolist() for part in ramp(steps, num_iters=3)] == [[0, S // 2, S], [0, 0, 1]]
    assert [len(part) for part in ramp(steps, duration_s=1)] == [2, 2]


def test_ramp_with_random_intervals_keeps_each_rate() -> None:
    """Poisson steps of 100, 1000, 100 and 1 requests/s have such counts, and each begins where the last ends."""
    steps = [Step(100, duration_s=10), Step(1000, duration_s=10), Step(100, requests=1000), Step(1, requests=2)]
    offsets, index = ramp(steps, rng(3))
    assert (np.diff(offsets) >= 0).all()
    assert np.bincount(index).tolist() == pytest.approx([1000, 10_000, 1000, 2], rel=0.1)
    assert [int(offsets[index == k][0] // S) for k in range(3)] == [0, 10, 20]
    assert np.ptp(offsets[index == 2]) == pytest.approx(10 * S, rel=0.1)


def test_steps_from_yaml() -> None:
    """Mappings become steps; a misspelled key or a bare number is named with its place."""
    assert steps_of([{"rate": 5, "duration_s": 2}, {"rate": 7, "requests": 3}]) == [Step(5, 2), Step(7, requests=3)]
    with pytest.raises(ConfigError, match=r"load.steps\[1\].*seconds.*\n?load.steps\[2\]=7") as caught:
        steps_of([{"rate": 5}, {"rate": 5, "seconds": 2}, 7])
    assert len(caught.value.problems) == 2


def test_replay_gives_the_file_in_nanoseconds(tmp_path: Path) -> None:
    """With a heading or none, blank lines and spaces, Windows ends and a byte-order mark, the offsets are the same."""
    for k, text in enumerate(
        ["0\n0.5\n0.5\n1.25\n", "offset_s\n0\n\n 0.5 \n5e-1\n1.25", '\ufeff"t"\r\n0\r\n.5\r\n.5\r\n1.25\r\n']
    ):
        file = tmp_path / f"{k}.csv"
        file.write_text(text, newline="")
        assert replay(file).tolist() == [0, S // 2, S // 2, S * 5 // 4]
        assert replay(file, num_iters=2).tolist() == [0, S // 2]
        assert replay(file, duration_s=1.25).tolist() == [0, S // 2, S // 2]


@given(offsets=st.lists(st.integers(0, 10**15), min_size=1, max_size=50))
def test_replay_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, offsets: list[int]) -> None:
    """Sorted nanoseconds written as decimal seconds come back, up to 11 days, exactly."""
    file = tmp_path_factory.mktemp("replay") / "offsets.csv"
    file.write_text("".join(f"{ns // S}.{ns % S:09d}\n" for ns in sorted(offsets)))
    assert replay(file).tolist() == sorted(offsets)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n-0.5\n", "line 2: '-0.5' is not from 0 s"),
        ("s\n1\n0.5\n", "line 3: '0.5' is earlier than the line before"),
        ("0\n\nnan\n", "line 3: 'nan' is not from"),
        ("nan\n", "line 1: 'nan' is not from"),
        ("0\ninf\n", "line 2: 'inf' is not from"),
        ("1753000000.5\n", "line 1: '1753000000.5' is not from"),
        ("offset_s,size\n0,3\n", "line 1: 'offset_s,size' is more than one column"),
        ("0;3\n", "line 1: '0;3' is more than one column"),
        ("s\n0\none\n", "line 3: 'one' is not a number"),
        ("", "no offsets in it"),
        ("offset_s\n\n", "no offsets in it"),
    ],
)
def test_replay_names_the_line_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """Negative, unsorted, not finite, too late, more columns, words, nothing: each is called what it is."""
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        replay(file)
    assert str(caught.value).startswith(f"load.file={file}: {message}")


def test_replay_of_what_is_no_text_file(tmp_path: Path) -> None:
    """A missing file, a directory and a picture are named."""
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    for name, message in (("none", "No such file"), (".", "Is a directory"), ("picture", "not text in UTF-8")):
        with pytest.raises(ConfigError, match=message):
            replay(tmp_path / name)


@pytest.mark.parametrize(
    ("rate", "num_iters", "duration_s", "message"),
    [
        (0, 1, None, "load.rate=0: must be"),
        (-1, 1, None, "load.rate=-1: must be"),
        (float("nan"), 1, None, "load.rate=nan: must be"),
        (float("inf"), 1, None, "load.rate=inf: must be"),
        (True, 1, None, "load.rate=True: must be"),
        (1, None, None, "num_iters=null, duration_s=null: nothing ends"),
        (1, 0, None, "num_iters=0: must be"),
        (1, 1, -1, "duration_s=-1: must be"),
        (1, 1, float("nan"), "duration_s=nan: must be"),
        (0.001, 10**8, None, "load.rate=0.001: 100000000 requests take over a year"),
        (1e6, None, 1e6, "duration_s=1000000.0: more than 100000000 requests"),
    ],
)
def test_values_that_make_no_schedule(
    rate: float, num_iters: int | None, duration_s: float | None, message: str
) -> None:
    """Each wrong value is named with its key by every pattern that has it, before memory is taken."""
    with pytest.raises(ConfigError, match="^" + message):
        constant(rate, num_iters=num_iters, duration_s=duration_s)
    with pytest.raises(ConfigError, match="^" + message):
        poisson(rate, rng(), num_iters=num_iters, duration_s=duration_s)


def test_ramp_names_its_wrong_step() -> None:
    """A wrong value in a step, a step without an end, no step at all, and steps too long together."""
    for steps, message in (
        ([Step(1, 1), Step(0, 1)], r"load.steps\[1\].rate=0: must be"),
        ([Step(1)], r"load.steps\[0\].requests=null, load.steps\[0\].duration_s=null: nothing ends"),
        ([], r"load.steps=\[\]"),
        ([Step(0.001, 3e7), Step(0.001, 3e7)], "load.steps: .*a year"),
    ):
        with pytest.raises(ConfigError, match=message):
            ramp(steps)


def test_a_window_without_requests_is_refused() -> None:
    """Poisson requests once in 1000 s leave nothing to send within a millisecond."""
    with pytest.raises(ConfigError, match="before the first request"):
        poisson(0.001, rng(), duration_s=0.001)


def test_a_client_on_time_is_not_behind() -> None:
    """Sent 0.1 ms late each: the delay is reported, the rate is delivered, nobody is late."""
    due = constant(1000, num_iters=1001)
    pace = behind(due, due + MS // 10)
    assert (pace.late_share, pace.fell_behind) == (0, False)
    assert (pace.asked_rate, pace.delivered_rate) == pytest.approx((1000, 1000))
    assert pace.delay == dict.fromkeys(("p50", "p90", "p95", "p99", "max"), 0.0001)


@pytest.mark.parametrize(("late", "fell_behind"), [(10, False), (11, True)])
def test_more_than_one_request_in_a_hundred_may_not_be_late(late: int, fell_behind: bool) -> None:
    """Of 1000 requests 10 may come 3 ms late, not 11."""
    due = constant(1000, num_iters=1000)
    pace = behind(due, due + np.where(np.arange(1000) < late, 3 * MS, 0))
    assert (pace.late_share, pace.fell_behind) == (late / 1000, fell_behind)


@pytest.mark.parametrize(
    ("rate", "delay_ms", "late"),
    [(20_000, 1.0, False), (20_000, 1.001, True), (10, 99, False), (10, 101, True)],
)
def test_late_is_later_than_an_interval_and_a_millisecond(rate: float, delay_ms: float, late: bool) -> None:
    """At 20,000 requests/s the millisecond decides, at 10 requests/s the interval of 100 ms."""
    due = constant(rate, num_iters=100)
    assert behind(due, due + round(delay_ms * MS)).fell_behind is late


def test_a_client_that_is_too_slow_delivers_its_own_rate() -> None:
    """Asked for 2000 requests/s and able to send 1000, it falls behind and the delivered rate says so."""
    pace = behind(constant(2000, num_iters=1000), constant(1000, num_iters=1000))
    assert pace.fell_behind
    assert (pace.asked_rate, pace.delivered_rate) == pytest.approx((2000, 1000))


def test_of_a_burst_and_of_one_request_there_is_no_rate() -> None:
    """All at one time and sent at once: no rate that means anything, no request late."""
    for due in (np.zeros(9, dtype=np.int64), np.zeros(1, dtype=np.int64)):
        pace = behind(due, due)
        assert (pace.asked_rate, pace.delivered_rate, pace.fell_behind) == (None, None, False)


def test_twenty_thousand_a_second_cost_little() -> None:
    """A minute at 20,000 requests/s is 1.2 million offsets of 8 bytes, in order."""
    offsets = poisson(20_000, rng(), duration_s=60)
    assert offsets.nbytes == 8 * len(offsets)
    assert len(offsets) == pytest.approx(1_200_000, rel=0.01)
    assert (np.diff(offsets) >= 0).all()
