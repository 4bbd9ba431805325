"""The sampler's readings are right or absent, its schedule holds, and its means are exact."""

import csv
import itertools
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.telemetry.gpu import GpuReader, list_gpus, load_nvml, throttle_reasons
from bench.telemetry.host import HostReader
from bench.telemetry.sampler import Row, means, run_sampler, sample, seen, write_telemetry

UUID = "3f5c2c4e-0000-1111-2222-333344445555"


class FakeNvml:
    """NVML with one GPU. A function named in `missing` raises as NVML does where it is not supported."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, *missing: str, uuid: str = f"GPU-{UUID}", **values: Any) -> None:
        self.users = 0
        self._missing = missing
        self._uuid = uuid
        self._values = {
            "UtilizationRates": SimpleNamespace(gpu=80, memory=30),
            "MemoryInfo": SimpleNamespace(used=2**30, total=2**34),
            "PowerUsage": 250_500,
            "TotalEnergyConsumption": 4_000_250,
            "ClockInfo": 1980,
            "Temperature": 61,
            "CurrentClocksThrottleReasons": 0x1 | 0x4,
            "ComputeRunningProcesses": [SimpleNamespace(pid=10), SimpleNamespace(pid=99)],
            "Name": "Some GPU",
            "UUID": uuid,
        } | values

    def nvmlInit(self) -> None:
        if "Init" in self._missing:
            raise self.NVMLError
        self.users += 1

    def nvmlShutdown(self) -> None:
        self.users -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self._uuid:
            raise self.NVMLError
        return "handle 0"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def __getattr__(self, name: str) -> Callable[..., Any]:
        key = name.removeprefix("nvmlDeviceGet")

        def read(handle: str, *_: int) -> Any:
            assert handle == "handle 0"
            if key in self._missing:
                raise self.NVMLError
            return self._values[key]

        return read


def reader(nvml: FakeNvml) -> GpuReader:
    found = GpuReader.find(UUID, [10], nvml)
    assert found is not None
    return found


def test_gpu_values_have_their_units() -> None:
    assert reader(FakeNvml()).read() == {
        "gpu_util": 80,
        "gpu_memory_util": 30,
        "gpu_memory_used_bytes": 2**30,
        "gpu_power_w": 250.5,
        "gpu_energy_j": 4000.25,
        "gpu_sm_clock_mhz": 1980,
        "gpu_temperature_c": 61,
        "gpu_throttle_reasons": ["sw_power_cap"],
        "other_processes": [99],
    }


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        ("UtilizationRates", {"gpu_util", "gpu_memory_util"}),
        ("MemoryInfo", {"gpu_memory_used_bytes"}),
        ("PowerUsage", {"gpu_power_w"}),
        ("TotalEnergyConsumption", {"gpu_energy_j"}),
        ("ClockInfo", {"gpu_sm_clock_mhz"}),
        ("Temperature", {"gpu_temperature_c"}),
        ("CurrentClocksThrottleReasons", {"gpu_throttle_reasons"}),
        ("ComputeRunningProcesses", {"other_processes"}),
    ],
)
def test_what_nvml_does_not_support_is_absent_and_costs_nothing_else(call: str, columns: set[str]) -> None:
    complete = reader(FakeNvml()).read()
    assert reader(FakeNvml(call)).read() == {k: v for k, v in complete.items() if k not in columns}


def test_nvmls_mark_of_an_unavailable_value_is_absent() -> None:
    nvml = FakeNvml(PowerUsage=2**32 - 1, MemoryInfo=SimpleNamespace(used=2**64 - 1))
    values = reader(nvml).read()
    assert "gpu_power_w" not in values
    assert "gpu_memory_used_bytes" not in values


def test_a_measured_zero_stays_a_zero() -> None:
    assert reader(FakeNvml(UtilizationRates=SimpleNamespace(gpu=0, memory=0))).read()["gpu_util"] == 0


@pytest.mark.parametrize("asked", [UUID, f"GPU-{UUID}"])
def test_the_gpu_is_found_with_and_without_the_prefix(asked: str) -> None:
    assert GpuReader.find(asked, nvml=FakeNvml()) is not None


def test_a_slice_of_a_gpu_is_found_by_its_own_uuid() -> None:
    assert GpuReader.find(UUID, nvml=FakeNvml(uuid=f"MIG-{UUID}")) is not None


def test_another_gpu_is_not_taken_for_ours_and_nvml_is_let_go() -> None:
    nvml = FakeNvml(uuid="GPU-of-another")
    assert GpuReader.find(UUID, nvml=nvml) is None
    assert nvml.users == 0


def test_without_a_driver_there_is_no_reader_and_no_list() -> None:
    assert GpuReader.find(UUID, nvml=FakeNvml("Init")) is None
    assert list_gpus(FakeNvml("Init")) is None


def test_the_real_library_without_such_a_gpu_gives_no_reader() -> None:
    assert GpuReader.find(UUID) is None


def test_the_real_library_has_every_function_and_constant_that_is_used() -> None:
    nvml = load_nvml()
    used = [f"nvmlDeviceGet{name}" for name in FakeNvml()._values]
    used += [name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in used if not hasattr(nvml, name)] == []


def test_strangers_are_unknown_where_our_own_process_is_not_seen() -> None:
    """In a container NVML may count in the host's process ids."""
    nvml = FakeNvml(ComputeRunningProcesses=[SimpleNamespace(pid=4_000_010)])
    assert "other_processes" not in reader(nvml).read()


def test_idle_and_chosen_clocks_are_no_throttling() -> None:
    assert throttle_reasons(0x1 | 0x2 | 0x100) == []
    assert throttle_reasons(0x8 | 0x40) == ["hw_slowdown", "hw_thermal_slowdown"]


def test_gpus_are_listed_with_what_is_known_and_nvml_is_let_go() -> None:
    nvml = FakeNvml("MemoryInfo")
    assert list_gpus(nvml) == [{"name": "Some GPU", "uuid": f"GPU-{UUID}", "driver": "570.1", "cuda_driver": "12.8"}]
    assert nvml.users == 0


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose child uses a whole core, until standard input closes."""
    spin = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: pass"
    wait = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE) as process:
        deadline = time.monotonic() + 20
        while not psutil.Process(process.pid).children() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield process
        process.kill()


def test_a_processs_cpu_use_holds_its_children_and_an_idle_one_uses_little(
    busy: subprocess.Popen[bytes],
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        time.sleep(0.5)  # until it has started
        host = HostReader({"backend": busy.pid, "frontend": idle.pid})
        host.read()
        time.sleep(0.5)
        values = host.read()
        idle.kill()
    assert 20 < values["backend_cpu_util"] < 130
    assert values["frontend_cpu_util"] < 10
    assert values["backend_rss_bytes"] > 2**20
    assert 5 < values["cpu_util"] <= 100
    assert values["load1"] >= 0


def test_a_sampler_that_lost_its_core_invents_no_cpu_use(
    busy: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second between the time and the count is half a second of CPU too many: the next sample has the share."""
    host = HostReader({"backend": busy.pid})
    host.read()
    time.sleep(0.1)
    clock = time.clock_gettime

    def late(which: int) -> float:
        time.sleep(0.5)
        return clock(which)

    with monkeypatch.context() as patch:
        patch.setattr(time, "clock_gettime", late)
        values = host.read()
    assert "backend_rss_bytes" in values
    assert "backend_cpu_util" not in values
    time.sleep(0.1)
    assert host.read()["backend_cpu_util"] < 130


def test_the_machine_is_read_less_often_after_a_second() -> None:
    """Its counters are the costly ones: two reads a second have them, each over the whole time since the last."""
    host, began = HostReader({"backend": os.getpid()}), time.perf_counter()
    early: list[set[str]] = []
    late: list[set[str]] = []
    while (now := time.perf_counter() - began) < 2.4:
        time.sleep(0.06)
        (early if now < 0.8 else late if now > 1 else []).append(set(host.read()))
    assert all("cpu_util" in keys for keys in early)
    assert 1 <= sum("cpu_util" in keys for keys in late) <= 3
    assert all("backend_cpu_util" in keys for keys in (*early[1:], *late))


def test_the_first_read_invents_no_cpu_use() -> None:
    values = HostReader({"backend": os.getpid()}).read()
    assert "backend_rss_bytes" in values
    assert not {"cpu_util", "backend_cpu_util"} & set(values)


def test_a_dead_process_is_absent_reaped_or_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = HostReader({"backend": process.pid, "frontend": os.getpid()})
    assert "backend_rss_bytes" in host.read()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
    assert not [name for name in host.read() if name.startswith("backend")]
    process.communicate()
    assert not [name for name in host.read() if name.startswith("backend")]
    assert "frontend_rss_bytes" in host.read()


class Timeline:
    """A clock that moves when somebody waits or works."""

    def __init__(self, stop_ns: int, work_ns: int = 0) -> None:
        self.now = 1_000
        self._stop = self.now + stop_ns
        self._work = work_ns

    def clock(self) -> int:
        return self.now

    def stopped(self, seconds: float) -> bool:
        self.now = min(self.now + round(seconds * 1e9), self._stop)
        return self.now >= self._stop

    def read(self) -> dict[str, Any]:
        self.now += self._work
        return {"gpu_util": 1}


def sampled(timeline: Timeline, **options: int) -> list[int]:
    rows = sample(timeline.read, timeline.stopped, clock=timeline.clock, **options)
    return [row["time_ns"] - 1_000 for row in rows]


def test_samples_lie_on_a_grid_that_does_not_drift_with_the_time_of_reading() -> None:
    assert sampled(Timeline(450, work_ns=30), interval_ns=100) == [0, 100, 200, 300, 400, 450]


def test_a_read_longer_than_the_interval_skips_what_it_missed() -> None:
    assert sampled(Timeline(500, work_ns=120), interval_ns=100) == [0, 200, 400, 500]


def test_a_long_run_is_thinned_evenly_and_stays_bounded() -> None:
    times = sampled(Timeline(10_000), interval_ns=10, max_rows=20)
    assert len(times) <= 20
    assert times[0] == 0
    assert times[-1] == 10_000
    assert len({b - a for a, b in itertools.pairwise(times[:-1])}) == 1


def start_sampler(pids: dict[str, int]) -> tuple[multiprocessing.Process, "Connection[Any, Any]"]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_sampler, args=(theirs, pids, 20_000_000))
    process.start()
    theirs.close()
    return process, ours  # type: ignore[return-value] # a spawn context's process is a Process


def test_the_sampler_process_samples_from_start_to_stop() -> None:
    process, connection = start_sampler({"backend": os.getpid()})
    began = time.perf_counter_ns()
    connection.send(("start", UUID))  # no such GPU: the host alone
    time.sleep(1.5)
    ended = time.perf_counter_ns()
    connection.send(("stop",))
    assert connection.poll(10)
    kind, rows = connection.recv()
    assert kind == "done"
    process.join(10)
    assert process.exitcode == 0
    assert began < rows[0]["time_ns"] < ended <= rows[-1]["time_ns"]
    assert len(rows) > 10
    values = means(rows, began, ended)
    assert {"backend_cpu_util", "backend_rss_bytes", "cpu_util", "load1"} <= set(values)
    assert "gpu_util" not in values


@pytest.mark.parametrize("started", [False, True])
def test_the_sampler_ends_when_its_connection_is_closed(started: bool) -> None:
    process, connection = start_sampler({})
    if started:
        connection.send(("start", None))
    connection.close()
    process.join(10)
    assert process.exitcode == 0


def test_means_are_over_the_window_and_absent_without_a_sample() -> None:
    rows: list[Row] = [
        {"time_ns": 0, "gpu_util": 100, "load1": 1.0},
        {"time_ns": 10, "gpu_util": 10, "gpu_throttle_reasons": ["a"]},
        {"time_ns": 20, "gpu_util": 30, "gpu_throttle_reasons": ["b", "a"]},
        {"time_ns": 30, "gpu_util": 100, "gpu_throttle_reasons": ["c"]},
    ]
    assert means(rows, 10, 20) == {"gpu_util": 20}
    assert means(rows, 11, 19) == {}
    assert means([], 0, 1) == {}
    assert seen(rows, "gpu_throttle_reasons", 10, 20) == ["a", "b"]
    assert seen(rows, "other_processes", 10, 20) is None


def energies(*points: tuple[int, float]) -> list[Row]:
    return [{"time_ns": t, "gpu_energy_j": e} for t, e in points]


def test_energy_is_what_the_counter_grew_in_the_window() -> None:
    rows = energies((0, 500), (100, 600), (200, 800), (300, 900))
    assert means(rows, 100, 200) == {"gpu_energy_j": 200}
    assert means(rows, 50, 250) == {"gpu_energy_j": 300}  # half of the outer intervals


def test_energy_is_absent_where_the_samples_do_not_cover_the_window() -> None:
    assert means(energies((0, 500)), 0, 100) == {}
    assert means(energies((0, 500), (40, 600)), 0, 100) == {}
    assert means(energies((0, 500), (60, 400)), 0, 60) == {}  # the counter was set back


@given(
    steps=st.lists(st.integers(1, 10**9), min_size=2, max_size=50),
    watts=st.integers(1, 1000),
    window=st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda w: abs(w[1] - w[0]) > 0.01),
)
def test_constant_power_gives_power_times_window_for_any_window(
    steps: list[int], watts: int, window: tuple[float, float]
) -> None:
    times = [sum(steps[:i]) for i in range(len(steps) + 1)]
    start, end = (round(times[-1] * share) for share in sorted(window))
    if end > start:
        rows = energies(*((t, watts * t / 1e9) for t in times))
        assert means(rows, start, end)["gpu_energy_j"] == pytest.approx(watts * (end - start) / 1e9)


def test_the_file_has_every_column_and_blanks_for_the_unknown(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"time_ns": 1, "load1": 0.5},
        {"time_ns": 2, "gpu_util": 0, "other_processes": [7, 8]},
    ]
    path = write_telemetry(tmp_path, rows)
    assert path == tmp_path / "telemetry.csv"
    with path.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["time_ns", "load1", "gpu_util", "other_processes"],
            ["1", "0.5", "", ""],
            ["2", "", "0", "7 8"],
        ]


def test_without_samples_there_is_no_file(tmp_path: Path) -> None:
    assert write_telemetry(tmp_path, []) is None
    assert list(tmp_path.iterdir()) == []
