"""What a run takes and what there is: figures, words, and control groups that are made of files."""

import dataclasses
import functools
import resource
from pathlib import Path
from typing import Any

import pytest
from write_files import write_files

from bench.cell_names import CellNames
from bench.config import Settings
from bench.errors import RunFailed
from bench.job import compose
from bench.killed import explained
from bench.limits import Shortage, grouped, in_flight, needs, shortages
from bench.queues.memory import Board
from bench.room import Room, existing, oom_kills, room, unwritable
from bench.sizes import Sizes, read_sizes, write_sizes

MIB = 2**20
PLENTY = Room(2**40, None, 2**40, 2**20, None, 2**40, 2**40, "/out", "/tmp")
SIZES = Sizes("cpu", 45 * MIB, 4000, None)


@functools.cache
def settings(*overrides: str) -> Settings:
    return compose("model.input_shape=[3,128,128]", "compile=false", *overrides)  # 192 KiB a sample


def words(settings: Settings, room: Room, sizes: Sizes | None = SIZES, requests: int = 100) -> str:
    return "\n".join(map(str, shortages(needs(settings, requests, sizes), room, sizes)))


def test_shared_memory_is_the_board_and_the_output_slots() -> None:
    """Each payload once, each request its rings and stamps, and as many slots as the backend makes."""
    asked = settings("batch_size=64")
    board = Board(100, asked.payloads, asked.payload_bytes)
    slots = 1024  # small answers
    assert needs(asked, 100, SIZES).shared == board.size + slots * 4000
    assert needs(asked, 100, None).shared == board.size
    more = needs(asked, 1_000_100, SIZES)
    assert more.shared - needs(asked, 100, SIZES).shared == pytest.approx(146 * 1_000_000, abs=8192)
    assert (more.shm, more.device) == (0, 0)


def test_memory_holds_parameters_on_the_cpu_only() -> None:
    """On a GPU they are the device's, with the buffers of what is in flight there."""
    asked = settings("batch_size=64")
    cpu, cuda = needs(asked, 100, SIZES), needs(asked, 100, dataclasses.replace(SIZES, device="cuda:0"))
    assert cpu.memory - cuda.memory == SIZES.parameter_bytes
    assert cuda.device == SIZES.parameter_bytes + asked.buffers * (asked.payload_bytes + 4000)


def test_torch_queue_needs_dev_shm_for_two_requests_and_as_much_again() -> None:
    """The words of a refusal name the need, what is free, and three ways out."""
    asked = settings("queue=torch", "batch_size=512")  # 96 MiB a request
    said = words(asked, dataclasses.replace(PLENTY, shm=64 * MIB))
    assert said == (
        "needs 384 MiB of shared memory, 64 MiB are free in /dev/shm: lower batch_size, mount a larger /dev/shm "
        "(docker run --shm-size=1g), or set queue=shared_memory"
    )
    assert words(settings("batch_size=512"), dataclasses.replace(PLENTY, shm=0)) == ""


@pytest.mark.parametrize(
    ("change", "overrides", "expected"),
    [
        ({"memory": 100 * MIB}, ["batch_size=256"], "MiB of it shared), 100 MiB are available: lower batch_size"),
        (
            {"memory": 100 * MIB, "memory_limit": 512 * MIB},
            ["batch_size=256"],
            "100 MiB are left of the limit of 512 MiB: lower batch_size, payloads or num_iters, or give it more",
        ),
        ({"descriptors": 50}, [], "needs 64 open files a process, 50 are allowed: raise the hard limit (ulimit -Hn"),
        ({"descriptors": 66}, ["queue=torch"], "needs 68 open files a process, 66 are allowed"),
        ({"tasks": 3}, ["num_workers=4"], "needs 24 processes and threads, 3 are left of the control group's limit"),
        ({"output": 1000}, [], "needs 1 MiB of disk for 1 run, 0 MiB are free in /out: free some, or set output_dir"),
        ({"compile": MIB}, ["compile=true"], "needs 16 MiB of disk for the compiler, 1 MiB are free in /tmp: free"),
    ],
)
def test_each_shortage_is_said_with_need_room_and_next_step(
    change: dict[str, Any], overrides: list[str], expected: str
) -> None:
    """One kind at a time; with plenty of everything nothing is said."""
    asked = settings(*overrides)
    said = words(asked, dataclasses.replace(PLENTY, **change))
    assert expected in said
    assert said.count("needs") == 1
    assert words(asked, PLENTY) == ""


def test_device_that_is_too_small_is_named() -> None:
    """Parameters and buffers alone against what was free on it; unknown is no shortage."""
    sizes = Sizes("cuda:1", 900 * MIB, 4000, 500 * MIB)
    assert "needs 904 MiB of memory on cuda:1 without activations, 500 MiB are free there" in words(
        settings("batch_size=1", "num_workers=8"), PLENTY, sizes
    )
    assert words(settings(), PLENTY, dataclasses.replace(sizes, device_bytes=None)) == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shm": 4 * MIB}, 2),
        ({"shm": 40 * MIB}, 20),
        ({}, 256),
        ({"memory": 40 * MIB}, 10),
        ({"descriptors": 148}, 10),
        ({"shm": 0}, 2),
    ],
)
def test_requests_in_flight_follow_from_what_is_free(change: dict[str, Any], expected: int) -> None:
    """Half of /dev/shm, a quarter of the memory, two descriptors each; at least 2, at most 256; 1 MiB a request."""
    asked = compose("queue=torch", "model.input_shape=[1,512,512]", "batch_size=1")
    assert in_flight(asked, SIZES, dataclasses.replace(PLENTY, **change)) == expected


def test_large_answers_lower_the_requests_in_flight() -> None:
    """Answers of 4 MiB to requests of 1 MiB: a fourth of them."""
    asked = compose("queue=torch", "model.input_shape=[1,512,512]", "batch_size=1")
    free = dataclasses.replace(PLENTY, shm=80 * MIB)
    assert in_flight(asked, dataclasses.replace(SIZES, output_bytes=4 * MIB), free) == 10


def test_shortages_of_many_cells_are_one_line_a_kind() -> None:
    """The largest need is told, and all cells that have it."""

    def short(need: int, where: str = "are free in /dev/shm") -> Shortage:
        return Shortage("of shared memory", need * MIB, MIB, where, "lower it")

    (text, cells), (other, _) = grouped({"a": [short(5)], "b": [], "c": [short(9)], "d": [short(3, "elsewhere")]})
    assert text == "needs up to 9 MiB of shared memory, 1 MiB are free in /dev/shm: lower it"
    assert cells == ["a", "c"]
    assert other == "needs 3 MiB of shared memory, 1 MiB elsewhere: lower it"


CELLS = [settings(f"batch_size={b}", f"compile={c}", f"queue={q}") for b in (1, 8) for c in ("true", "false") for q in
         ("torch", "shared_memory")]  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (range(8), ""),
        (range(4, 8), "batch_size=8"),
        ([0, 2, 4, 6], "queue=torch"),
        ([4, 6], "batch_size=8 queue=torch"),
        ([0, 7], "batch_size=1 compile=true queue=torch; batch_size=8 compile=false queue=shared_memory"),
        (range(7), "batch_size=1 compile=true queue=torch; batch_size=1 compile=true queue=shared_memory; batch_size=1 "
         "compile=false queue=torch; batch_size=1 compile=false queue=shared_memory; and 3 more cells"),
    ],
)  # fmt: skip
def test_cells_are_named_by_what_sets_them_apart(chosen: list[int], name: str) -> None:
    """Only the axes that matter, in the words of the command line; else one by one, and not a hundred of them."""
    assert CellNames(CELLS).name([CELLS[k].cell for k in chosen]) == name


def test_problem_that_names_its_cells_is_not_named_twice() -> None:
    """compile=true stands once in front."""
    names, compiled = CellNames(CELLS), [cell.cell for cell in CELLS if cell.compile]
    assert names.problem("compile=true: needs g++", compiled) == "compile=true: needs g++"
    assert names.problem("needs g++", compiled) == "compile=true: needs g++"


def machine(root: Path, files: dict[str, str]) -> Path:
    (root / "dev/shm").mkdir(parents=True, exist_ok=True)
    return write_files(root, files)


GROUPS = {
    "v2": {
        "proc/self/cgroup": "0::/pod/job",
        "sys/fs/cgroup/pod/job/memory.max": "max",
        "sys/fs/cgroup/pod/job/pids.max": "max",
        "sys/fs/cgroup/pod/memory.max": str(100 * MIB),
        "sys/fs/cgroup/pod/memory.current": str(80 * MIB),
        "sys/fs/cgroup/pod/memory.stat": f"inactive_file {10 * MIB}\nactive_file {20 * MIB}\n",
        "sys/fs/cgroup/pod/pids.max": "40",
        "sys/fs/cgroup/pod/pids.current": "33",
        "sys/fs/cgroup/pod/job/memory.events": "low 0\nhigh 0\nmax 9\noom 5\noom_kill 3\noom_group_kill 0\n",
        "proc/vmstat": "oom_kill 77\n",
    },
    "v1": {
        "proc/self/cgroup": "4:memory:/pod/job\n8:pids:/pod/job\n0::/",
        "sys/fs/cgroup/memory/pod/job/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/pod/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": str(100 * MIB),
        "sys/fs/cgroup/memory/pod/memory.usage_in_bytes": str(80 * MIB),
        "sys/fs/cgroup/memory/pod/memory.stat": f"total_inactive_file {10 * MIB}\ntotal_active_file {20 * MIB}\n",
        "sys/fs/cgroup/pids/pod/job/pids.max": "max",
        "sys/fs/cgroup/pids/pod/pids.max": "40",
        "sys/fs/cgroup/pids/pod/pids.current": "33",
    },
}


@pytest.mark.parametrize("version", GROUPS)
def test_limits_of_control_groups_above_count(tmp_path: Path, version: str) -> None:
    """Memory and tasks of the group above ours, which has none of its own; cached files can be given up."""
    root = machine(tmp_path, GROUPS[version])
    found = room(settings(), tmp_path, root)
    assert (found.memory, found.memory_limit, found.tasks) == (50 * MIB, 100 * MIB, 7)
    assert oom_kills(root) == 3


def test_without_control_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    """And the kernel's own count of kills is the only one."""
    root = machine(tmp_path, {"proc/self/cgroup": "", "proc/vmstat": "pgfault 1\noom_kill 77\n"})
    found = room(settings(), tmp_path, root)
    assert (found.memory_limit, found.tasks, oom_kills(root)) == (None, None, 77)
    assert found.memory > 100 * MIB
    assert found.descriptors == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert oom_kills(tmp_path / "nothing") == 0


def test_kernels_kill_is_told_from_another_one() -> None:
    """SIGKILL is out of memory only where the counter rose meanwhile; SIGBUS is shared memory that was not there."""
    tight = dataclasses.replace(PLENTY, memory=50 * MIB, memory_limit=100 * MIB, shm=3 * MIB)

    def said(reason: str, kills: int) -> RunFailed:
        return explained(RunFailed(reason, process="backend", phase="load"), kills, tight)

    killed = said("the backend was killed by SIGKILL in phase load", 1)
    assert "memory ran out (50 MiB of a limit of 100 MiB were free before the run)" in str(killed)
    assert (killed.process, killed.phase) == ("backend", "load")
    assert killed.memory is not None
    assert said("the backend was killed by SIGKILL in phase load", 0).memory is None
    assert said("backend: KeyError", 1).memory is None
    bus = said("the backend was killed by SIGBUS in phase warm-up", 0)
    assert "shared memory ran out (3 MiB of /dev/shm were free before the run)" in str(bus)


def test_directory_that_cannot_be_written_is_found_out_before_it_is_made(tmp_path: Path) -> None:
    """A file in its place or above it, and a file system that takes none; a good one is left as it was."""
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / "file" / "below") == "Not a directory"
    assert unwritable(tmp_path / "file") == "Not a directory"
    assert unwritable(Path("/proc/nowhere")) is not None
    assert unwritable(tmp_path / "new" / "below") is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert existing(tmp_path / "new" / "below") == tmp_path


def test_sizes_travel_through_the_sweeps_directory(tmp_path: Path) -> None:
    """What is not there, or is broken, is not known."""
    write_sizes(tmp_path / "sweep", {"a": SIZES})
    assert read_sizes(tmp_path / "sweep", "a") == SIZES
    assert read_sizes(tmp_path / "sweep", "b") is None
    assert read_sizes(tmp_path, "a") is None
    (tmp_path / "sweep" / "preflight.json").write_text('{"a": {"device"')
    assert read_sizes(tmp_path / "sweep", "a") is None
