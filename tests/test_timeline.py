"""A run's timeline is a legal Chrome trace that says what the stamps say. No run is needed for it."""

import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_records import make_record

from bench.clock import MARK
from bench.errors import BenchError
from bench.results.metrics import Stamps
from bench.results.raw import read_workers
from bench.results.record import write_record, write_requests
from bench.results.slices import PID, STAGES
from bench.results.timeline import chosen, timeline, write_timeline
from bench.stamps import COMPLETED, COMPUTE_END, COMPUTE_START, D2H_START, H2D_START, INTENDED, RECEIVED, SENT, STAMPS

Event = dict[str, Any]
START = 11_652_603_918_183  # of the stamps, ns: some machine was started 3 hours before


def make_stamps(count: int, workers: int = 2, seed: int = 0, interval: int = 1_000_000) -> Stamps:
    """Stamps of a cold request and `count` others, through one copy thread each way and some workers."""
    rng = np.random.default_rng(seed)
    stamps = np.zeros((1 + count, len(STAMPS)), dtype=np.int64)
    stamps[0, [INTENDED, SENT, RECEIVED, -2, COMPLETED]] = START + np.array([0, 0, 5, 900, 950]) * 1000
    free: dict[Any, int] = {"in": START, "out": START, **dict.fromkeys(range(workers), START)}
    for k in range(1, count + 1):
        intended = START + 2_000_000 + k * interval
        sent = intended + int(rng.integers(0, 50_000))
        received = sent + int(rng.integers(1, 90_000))
        h2d = max(received, int(free["in"]))
        free["in"] = h2d + int(rng.integers(1, 200_000))
        worker = min(range(workers), key=lambda w: free[w])
        compute = max(int(free["in"]), int(free[worker]))
        free[worker] = compute + int(rng.integers(1, 4_000_000))
        d2h = max(int(free[worker]), int(free["out"]))
        d2h_end = d2h + int(rng.integers(1, 100_000))
        free["out"] = replied = d2h_end + 700
        row = (intended, sent, received, h2d, free["in"], compute, free[worker], d2h, d2h_end, replied)
        stamps[k] = (*row, replied + int(rng.integers(1, 50_000)))
    return stamps


def made(
    stamps: Stamps,
    most: int = 100,
    profile: list[Event] | None = None,
    workers: Sequence[int] | None = None,
    **record: Any,
) -> list[Event]:
    """The events of a run with these stamps, checked for what makes a trace legal."""
    if workers is None:
        workers = [-1] * len(stamps)
    trace = timeline(make_record(**record), stamps, np.array(workers, np.int16), [], profile or [], most)
    events: list[Event] = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    assert_legal(events)
    return events


def assert_legal(events: list[Event]) -> None:
    """By the rules of the format: pairs, no partial overlap on a thread, arrows between slices, names, order."""
    timed = [event for event in events if event["ph"] != "M"]
    assert {event["ph"] for event in timed} <= set("bXeC")
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all(event["ts"] >= 0 for event in timed)
    begun: dict[tuple[Any, ...], float] = {}
    for event in timed:
        if event["ph"] in "be":
            key = (event["pid"], event["cat"], event["id2"]["local"], event["name"])
            if event["ph"] == "b":
                assert key not in begun
                begun[key] = event["ts"]
            else:
                assert begun.pop(key) <= event["ts"]
    assert not begun
    for (_, tid), track in by(timed, "X", "pid", "tid").items():
        assert any(event["ph"] == "M" and event["name"] == "thread_name" and event["tid"] == tid for event in events)
        open_until: list[int] = []
        for start, end in sorted(
            ((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in track), key=lambda s: (s[0], -s[1])
        ):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], f"{start} to {end} overlaps another and is not within it"
            open_until.append(end)
    for (bound,), chain in by(timed, "Xb", "bind_id").items():
        assert [("flow_in" in e, "flow_out" in e) for e in chain] == [
            (k > 0, k < len(chain) - 1) for k in range(len(chain))
        ]
        assert len(chain) > 1
        assert {hex(e["args"]["request"] + 1) for e in chain} == {bound}
    assert all(value >= 0 for event in timed if event["ph"] == "C" for value in event["args"].values())


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def by(events: list[Event], phases: str, *keys: str) -> dict[tuple[Any, ...], list[Event]]:
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in phases and all(key in event for key in keys):
            groups[tuple(event[key] for key in keys)].append(event)
    return groups


def slices(events: list[Event]) -> dict[int, dict[str, tuple[int, int]]]:
    """Of each request, start and end of each stage in ns from the first stamp."""
    found: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    ends = {(e["cat"], e["id2"]["local"]): e["ts"] for e in events if e["ph"] == "e"}
    for event in events:
        if event["ph"] in "Xb" and event["pid"] == PID:
            start = ns(event["ts"])
            end = ns(ends[event["cat"], event["id2"]["local"]]) if event["ph"] == "b" else start + ns(event["dur"])
            found[event["args"]["request"]][event["cat"]] = (start, end)
    return found


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0, 10_000, 3_000_000]))
@settings(max_examples=40, deadline=None)
def test_slices_are_the_stamps_and_lie_end_to_end(count: int, workers: int, seed: int, interval: int) -> None:
    """Every measured request has every stage to the nanosecond, and they add up to its latency."""
    stamps = make_stamps(count, workers, seed, interval)
    events = made(stamps)
    found = slices(events)
    assert sorted(found) == list(range(1, count + 1))
    origin = int(stamps[1:].min())
    for request, stages in found.items():
        row = stamps[request] - origin
        assert stages == {stage.name: (row[stage.start], row[stage.end]) for stage in STAGES}
        assert sum(end - start for start, end in stages.values()) == row[COMPLETED] - row[INTENDED]
    assert len(by(events, "X", "tid")) <= 4 + workers


def tracks_of(events: list[Event]) -> tuple[list[str], dict[int, str]]:
    """The names of all tracks in their order, and of the one on which each request was computed."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    computed = {e["args"]["request"]: names[e["tid"]] for e in events if e.get("cat") == "compute"}
    return [names[tid] for tid in sorted(names)], computed


def overlapping() -> Stamps:
    """Three requests: computed from 0 to 10 ns, 5 to 20 and 10 to 30."""
    stamps = make_stamps(3)
    for k, (start, end) in enumerate([(0, 10), (5, 20), (10, 30)], 1):
        stamps[k, COMPUTE_START], stamps[k, COMPUTE_END] = START + 10**9 + start, START + 10**9 + end
    return stamps


def test_each_worker_has_a_track_of_its_own() -> None:
    """What a worker computed lies on its track, whoever was busy meanwhile; tracks are in the workers' order."""
    names, computed = tracks_of(made(overlapping(), workers=[-1, 11, 2, 11]))
    assert computed == {1: "worker-11", 2: "worker-2", 3: "worker-11"}
    assert names == ["sender", "h2d", "worker-2", "worker-11", "d2h", "receiver"]


@pytest.mark.parametrize(("worker", "track"), [(0, "worker-0"), (-1, "compute")])
def test_what_overlaps_on_one_track_lies_on_lanes(worker: int, track: str) -> None:
    """A device's times may overlap by their error, and an old record names no worker: no slice covers another."""
    names, computed = tracks_of(made(overlapping(), workers=[worker] * 4))
    assert computed == {1: f"{track} lane 1", 2: f"{track} lane 2", 3: f"{track} lane 1"}
    assert names == ["sender", "h2d", f"{track} lane 1", f"{track} lane 2", "d2h", "receiver"]


def test_the_workers_are_read_from_the_file(tmp_path: Path) -> None:
    """A file that is older than the column names none."""
    columns = {f"{name}_ns": make_stamps(2)[:, k] for k, name in enumerate(STAMPS)}
    write_requests(tmp_path, columns)
    assert read_workers(tmp_path).tolist() == [-1, -1, -1]
    write_requests(tmp_path, {**columns, "worker": np.array([-1, 3, 0], np.int16)})
    assert read_workers(tmp_path).tolist() == [-1, 3, 0]


@given(st.integers(1, 80), st.integers(0, 10**6), st.integers(1, 100))
@settings(max_examples=40, deadline=None)
def test_requests_in_flight_are_those_that_the_stamps_say(count: int, seed: int, most: int) -> None:
    """At each point of the counter: sent by then and not completed, of all requests and not only the drawn."""
    stamps = make_stamps(count, seed=seed)
    events = made(stamps, most)
    drawn = chosen(stamps, 0, most)
    origin = int(stamps[drawn].min())
    counts = {ns(e["ts"]) + origin: e["args"]["requests"] for e in events if e["name"] == "in flight"}
    for time, in_flight in counts.items():
        assert in_flight == int(((stamps[:, SENT] <= time) & (stamps[:, COMPLETED] > time)).sum())
    for request in drawn:
        assert {int(stamps[request, SENT]), int(stamps[request, COMPLETED])} <= set(counts)


def test_a_long_run_shows_its_beginning_and_its_slowest_request() -> None:
    """Of 5000 requests twenty are drawn, ten from the start and ten around the slowest; the file stays small."""
    stamps = make_stamps(5000, workers=4)
    stamps[3000:, COMPLETED] += 1
    stamps[3000, COMPLETED] += 10**10
    assert chosen(stamps, 0, 20) == [*range(1, 11), *range(2995, 3005)]
    events = made(stamps, 20)
    assert sorted(slices(events)) == chosen(stamps, 0, 20)
    assert len(json.dumps(made(stamps, 100))) < 500_000


@pytest.mark.parametrize(("slowest", "drawn"), [(1, [1, 2, 3, 4, 5]), (9, [1, 2, 7, 8, 9]), (4, [1, 2, 3, 4, 5])])
def test_the_stretches_stay_within_the_window_and_apart(slowest: int, drawn: list[int]) -> None:
    """Wherever the slowest request lies, as many are drawn as may be, each once."""
    stamps = make_stamps(9)
    stamps[slowest, COMPLETED] += 10**9
    assert chosen(stamps, 0, 5) == drawn


def test_warm_up_is_not_drawn_unless_there_is_nothing_else() -> None:
    """Measured requests only; of a run that failed before them, the last of what it sent."""
    stamps = make_stamps(10)
    assert chosen(stamps, 4, 100) == [5, 6, 7, 8, 9, 10]
    stamps[5:] = 0
    assert chosen(stamps, 4, 3) == [2, 3, 4]


def test_the_cold_request_is_one_slice_from_its_receipt_to_its_answer() -> None:
    """Its stages are not told apart."""
    found = slices(made(make_stamps(0)))
    assert list(found) == [0]
    assert list(found[0]) == [
        *("schedule delay", "sent", "request queue", "load, compile, compute", "response queue", "completed")
    ]
    assert found[0]["load, compile, compute"] == (5_000, 900_000)


def test_a_request_that_never_came_back_ends_with_the_run_and_says_so() -> None:
    """The stage in which it hung is drawn to the run's last time; it counts as the slowest and stays in flight."""
    stamps = make_stamps(9)
    stamps[6, D2H_START:] = 0
    stamps[6, COMPUTE_END] = 0
    assert 6 in chosen(stamps, 0, 4)
    events = made(stamps)
    (hung,) = [event for event in events if event.get("args", {}).get("unfinished")]
    assert hung["name"] == "#6 compute"
    last = max(event["ts"] for event in events if event["ph"] != "M")
    assert hung["ts"] + hung["dur"] == pytest.approx(last)
    assert [e["args"]["requests"] for e in events if e["name"] == "in flight"][-1] == 1


def test_stamps_out_of_order_make_no_negative_slice() -> None:
    """An invalid run's picture is still a legal trace."""
    stamps = make_stamps(5)
    stamps[3, H2D_START] = stamps[3, COMPLETED] + 10**6
    made(stamps)


def profile_of(stamps: Stamps, clock: int) -> list[Event]:
    """A profile whose clock is `clock` ns ahead: its marks, of which one is late, and an operation a forward pass."""
    at = [(int(stamps[1, SENT]) - 10**6 + k * 1000, late) for k, late in enumerate((400_000, 2_000, 0))]
    marks = [
        {"ph": "X", "name": f"{MARK}{time}", "pid": 7, "tid": 7, "ts": (time + clock + late) / 1000, "dur": 1}
        for time, late in at
    ]
    names = [
        {"ph": "M", "name": name, "pid": 7, "tid": 7, "ts": clock, "args": {"name": "python"}}
        for name in ("process_name", "thread_name")
    ]
    operations = [
        {"ph": "X", "name": "aten::conv2d", "pid": 7, "tid": k, "ts": (row[COMPUTE_START] + clock) / 1000, "dur": 1.0}
        for k, row in enumerate(stamps[1:].tolist())
    ]
    named = [{"ph": "M", "name": "thread_name", "pid": 7, "tid": k, "args": {}} for k in range(len(operations))]
    return [*names, *named, *marks, *operations]


def test_a_profile_lies_on_the_clock_of_the_stamps() -> None:
    """Each operation begins with the forward pass that it is part of, and the marks are gone."""
    stamps = make_stamps(8)
    events = made(stamps, profile=profile_of(stamps, clock=5_111_092_296_443_600))
    operations = [event for event in events if event["name"] == "aten::conv2d"]
    starts = [stages["compute"][0] for stages in slices(events).values()]
    assert [event["ts"] * 1000 for event in operations] == pytest.approx(sorted(starts), abs=1000)
    assert not [event for event in events if event["name"].startswith(MARK)]


def test_a_profile_is_bounded_by_what_is_drawn() -> None:
    """Of 200 forward passes those within the two drawn stretches remain."""
    stamps = make_stamps(200, workers=1, interval=5_000_000)
    events = made(stamps, 10, profile_of(stamps, clock=123_456_789))
    assert 10 <= len([event for event in events if event["name"] == "aten::conv2d"]) <= 14


def test_a_profile_without_marks_is_left_out() -> None:
    """Nothing says where its times lie."""
    stamps = make_stamps(3)
    events = made(stamps, profile=profile_of(stamps, 0)[-3:])
    assert not [event for event in events if event["name"] == "aten::conv2d"]


def write_run(directory: Path, stamps: Stamps, most: int | None, samples: list[Event] | None = None) -> Path:
    """A run's directory as `bench.run` leaves it."""
    columns = {f"{name}_ns": stamps[:, k] for k, name in enumerate(STAMPS)}
    write_requests(directory, {"request": range(len(stamps)), **columns})
    if samples:
        with (directory / "telemetry.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(samples[0]))
            writer.writeheader()
            writer.writerows(samples)
    write_record(directory, make_record({"timeline.max_requests": most}, status="failed", reasons=["it hung"]))
    return directory


def test_the_file_holds_counters_of_what_was_known(tmp_path: Path) -> None:
    """Utilization and power in their units; blanks, lists and samples from before the window are no points."""
    stamps = make_stamps(5)
    times = [START, *(int(stamps[1, SENT]) + k * 10**5 for k in range(3))]
    samples = [
        {"time_ns": time, "gpu_util": "", "gpu_power_w": 71.5, "gpu_memory_used_bytes": 2**20, "gpu_throttle": "a b"}
        for time in times
    ]
    samples[2]["gpu_util"] = 50
    file = write_timeline(write_run(tmp_path, stamps, 100, samples))
    assert file == tmp_path / "timeline.json"
    events = json.loads(file.read_text("utf-8"))["traceEvents"]
    assert_legal(events)
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"in flight", "GPU utilization", "GPU power", "GPU memory"}
    assert [e["args"] for e in events if e["name"] == "GPU utilization"] == [{"%": 50}]
    assert [e["args"] for e in events if e["name"] == "GPU power"] == [{"W": 71.5}] * 3
    assert {json.dumps(e["args"]) for e in events if e["name"] == "GPU memory"} == {'{"MiB": 1.0}'}


@pytest.mark.parametrize("most", [0, None])
def test_it_can_be_turned_off(tmp_path: Path, most: int | None) -> None:
    """timeline.max_requests=0 or null: no file."""
    assert write_timeline(write_run(tmp_path, make_stamps(3), most)) is None
    assert not (tmp_path / "timeline.json").exists()


def test_a_record_alone_has_none(tmp_path: Path) -> None:
    """Somebody has kept metrics.json and nothing else: that is no error."""
    write_record(tmp_path, make_record())
    assert write_timeline(tmp_path) is None


def test_a_run_that_sent_nothing_has_none(tmp_path: Path) -> None:
    """It failed at its start: stamps of zeros, no telemetry."""
    assert write_timeline(write_run(tmp_path, np.zeros((101, len(STAMPS)), dtype=np.int64), 100)) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("requests.parquet", b"x"), ("metrics.json", None), ("metrics.json", b"{")),
        *(("trace.json", b"{"), ("trace.json", b"[]"), ("trace.json", b'{"traceEvents": 3}')),
    ],
)
def test_broken_files_are_one_error_that_names_the_run(tmp_path: Path, name: str, content: bytes | None) -> None:
    """Missing, cut off or something else: no traceback, and nothing half written."""
    write_run(tmp_path, make_stamps(3), 100)
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BenchError, match=str(tmp_path)):
        write_timeline(tmp_path)
    assert not (tmp_path / "timeline.json").exists()
