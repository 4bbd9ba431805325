"""Each warning provoked, and not provoked by what is just short of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bench.config import Settings
from bench.job import compose
from bench.results.cautions import cautions
from bench.results.metrics import Stamps
from bench.stamps import COMPLETED, INTENDED, SENT, WIDTH

MS = 1_000_000
START = 10**12
LOADS: dict[str, tuple[str, ...]] = {
    "burst": (),
    "closed": ("load=closed",),
    "constant": ("load=constant", "load.rate=100"),
    "poisson": ("load=poisson", "load.rate=100"),
    "replay": ("load=replay", "load.file=times.csv"),
    "ramp": ("load=ramp", "load.steps=[{rate: 100, requests: 300}]"),
}
SETTINGS = {name: compose(*overrides) for name, overrides in LOADS.items()}


def requests(intervals_ms: Sequence[float], latency_ms: float | Sequence[float] = 1.0) -> Stamps:
    """Answered requests, each sent so long after the one before, each answered so long after it was sent."""
    sent = START + np.cumsum([0, *intervals_ms[1:]]) * MS
    rows = np.zeros((len(sent), WIDTH), dtype=np.int64)
    rows[:, INTENDED] = rows[:, SENT] = sent
    rows[:, COMPLETED] = sent + np.asarray(latency_ms) * MS
    return rows


def warned(
    measured: Stamps | None = None,
    settings: Settings = SETTINGS["burst"],
    environment: dict[str, Any] | None = None,
    samples: list[dict[str, Any]] | None = None,
    overhead_us: float | None = None,
) -> list[str]:
    """The warnings of a run that has none but for what is given."""
    rows = requests([20] * 100) if measured is None else measured
    return cautions(settings, rows, environment or {}, samples or [], overhead_us)


@pytest.mark.parametrize("load", LOADS)
def test_a_good_run_has_no_warning(load: str) -> None:
    """100 requests in 2 s, evenly spread, on a quiet machine that is known, whatever the load."""
    environment = {
        "load_before_start": 0.5,
        "cpu": {"cores": 2, "quota": None, "governor": "performance"},
        "battery": {"percent": 100.0, "plugged_in": True},
    }
    sample = {"time_ns": START + MS, "gpu_throttle_reasons": [], "other_processes": []}
    assert warned(settings=SETTINGS[load], environment=environment, samples=[sample], overhead_us=1.0) == []


def test_a_run_without_answers_is_not_warned_of() -> None:
    """It is invalid, and nothing can be said of its window."""
    unanswered = requests([20] * 100)
    unanswered[:, COMPLETED] = 0
    for rows in (unanswered, unanswered[:0]):
        assert warned(rows, overhead_us=1e9) == []


@pytest.mark.parametrize(
    ("count", "every_ms", "warnings"),
    [
        (30, 100, []),
        (101, 10, []),
        (100, 10, ["short: the measured window took less than 1 s"]),
        (29, 100, ["short: fewer than 30 measured requests"]),
        (4, 1, ["short: the measured window took less than 1 s", "short: fewer than 30 measured requests"]),
    ],
)
def test_short_window_and_few_requests_are_warned_of_apart(count: int, every_ms: int, warnings: list[str]) -> None:
    """The window is that from the first sent to the last completed: 101 requests take 1.001 s, 100 take 0.991 s."""
    assert warned(requests([every_ms] * count)) == warnings


def test_only_answered_requests_count() -> None:
    """Of 40 requests 11 were never answered, so that 29 were measured."""
    rows = requests([100] * 40)
    rows[29:, COMPLETED] = 0
    assert warned(rows) == ["short: fewer than 30 measured requests"]


@pytest.mark.parametrize(("overhead_us", "is_warned"), [(None, False), (990.0, False), (1010.0, True)])
def test_run_that_measures_the_harness_is_warned_of(overhead_us: float | None, is_warned: bool) -> None:
    """A request every 20 ms is not 20 times 1010 µs, and is 20 times 990 µs; an unknown overhead says nothing."""
    warnings = warned(requests([20] * 1000, 20), overhead_us=overhead_us)
    assert [warning.split(":")[0] for warning in warnings] == ["measures the harness"] * is_warned
    assert all("took 2e+04 µs" in warning and "1.01e+03 µs" in warning for warning in warnings)


@pytest.mark.parametrize(("load", "is_warned"), [(load, load in ("burst", "closed", "constant")) for load in LOADS])
def test_window_that_changes_is_warned_of_unless_the_load_changes(load: str, is_warned: bool) -> None:
    """100 requests/s, then 50: unsteady, but for loads whose own rate is not the same throughout."""
    rows = requests([10] * 150 + [20] * 150)
    warnings = warned(rows, SETTINGS[load])
    assert [warning.split(":")[0] for warning in warnings] == ["unsteady"] * is_warned


@pytest.mark.parametrize(("load", "is_warned"), [(load, load not in ("burst", "closed")) for load in LOADS])
def test_backlog_that_grows_is_warned_of_under_open_loads(load: str, is_warned: bool) -> None:
    """100 requests/s against a backend of 80: saturated; a burst's backlog and a closed loop's are no news."""
    rows = requests([10] * 300, [1 + 2.5 * k for k in range(300)])
    warnings = warned(rows, SETTINGS[load])
    assert [warning.split(":")[0] for warning in warnings] == ["saturated"] * is_warned


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({"load_before_start": 2.0, "cpu": {"cores": 2}}, None),
        ({"load_before_start": 2.1, "cpu": {"cores": 2}}, "other load: 2.1 processes ran on 2 cores"),
        ({"load_before_start": 2.1}, None),
        ({"cpu": {"cores": 2}}, None),
        ({"load_before_start": None, "cpu": {"cores": None}}, None),
        ({"cpu": {"quota": 1.5}}, "CPU quota: this container may use 1.5 cores"),
        ({"cpu": {"quota": None}}, None),
        ({"cpu": {"governor": "powersave"}}, "CPU governor: powersave"),
        ({"cpu": {"governor": "performance, powersave"}}, "CPU governor: performance, powersave"),
        ({"cpu": {"governor": "performance"}}, None),
        ({"cpu": {"governor": None}}, None),
        ({"cpu": None}, None),
        ({"battery": {"percent": 50.0, "plugged_in": False}}, "battery: the machine was not plugged in"),
        ({"battery": {"percent": 50.0, "plugged_in": True}}, None),
        ({"battery": {"percent": 50.0, "plugged_in": None}}, None),
        ({"battery": None}, None),
        (
            {"device": {"name": "cpu", "waited_s": 3.0, "shared_with": ["process 1"]}},
            "shared device: other runs",
        ),
        ({"device": {"name": "cpu", "waited_s": 3.0, "shared_with": []}}, None),
        ({}, None),
    ],
)
def test_machine_that_was_held_back_is_warned_of(environment: dict[str, Any], warning: str | None) -> None:
    """Other work, a quota, a governor and a battery each have their words; what is unknown has none."""
    warnings = warned(environment=environment)
    assert len(warnings) == (warning is not None)
    assert warning is None or warnings[0].startswith(warning)


@pytest.mark.parametrize(
    ("column", "found", "warning"),
    [
        ("other_processes", [[7], [7, 8], []], "other load: 2 other processes were on the GPU"),
        ("other_processes", [[], []], None),
        ("gpu_throttle_reasons", [["power"], [], ["heat", "power"]], "throttled: heat, power"),
        ("gpu_throttle_reasons", [[]], None),
    ],
)
def test_gpu_that_was_shared_or_slowed_down_is_warned_of(column: str, found: list[Any], warning: str | None) -> None:
    """All that was seen in the window is named once, in order."""
    samples = [{"time_ns": START + 100 * k * MS, column: items} for k, items in enumerate(found)]
    assert warned(samples=samples) == ([] if warning is None else [warning])


def test_gpu_before_and_after_the_window_does_not_count() -> None:
    """The window ends at the last answer, 1981 ms after the first request was sent."""
    what = {"other_processes": [7], "gpu_throttle_reasons": ["heat"]}
    outside = [{"time_ns": START - 1, **what}, {"time_ns": START + 1981 * MS + 1, **what}]
    assert warned(samples=outside) == []
    assert len(warned(samples=[{"time_ns": START + 1981 * MS, **what}])) == 2


def test_all_warnings_are_told_at_once() -> None:
    """Few requests, the harness, a quota and a stranger on the GPU: four warnings."""
    rows = requests([100] * 20)
    samples = [{"time_ns": START, "other_processes": [7]}]
    warnings = warned(rows, environment={"cpu": {"quota": 1.0}}, samples=samples, overhead_us=1e6)
    assert [warning.split(":")[0] for warning in warnings] == [
        "short",
        "measures the harness",
        "CPU quota",
        "other load",
    ]
