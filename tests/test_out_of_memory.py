"""Memory that runs out, of the device, of the host and by the kernel: named in words, and larger runs skipped."""

import errno
import functools
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Done, wait_until
from conftest import Start
from make_records import make_record

from bench.backend.out_of_memory import batch_size_that_fits, explained, tried_bytes
from bench.config import Settings
from bench.errors import OutOfMemory
from bench.job import compose as compose_anew
from bench.results.out_of_memory import ran_out_of_memory
from bench.results.record import Record

GIB = 2**30

compose = functools.cache(compose_anew)


@pytest.mark.parametrize(
    ("needed", "parameters", "capacity", "expected"),
    [
        (9, 1, 5, 32),  # 8 of 64 samples' activations, room for 4
        (9, 1, 1, 0),  # room for the parameters only
        (9, 4, 2, 0),  # not even for them
        (9, 1, 100, 63),  # it has been seen not to fit, whatever the figures say
        (1, 1, 5, 63),
    ],
)
def test_batch_size_that_fits_is_linear(needed: int, parameters: int, capacity: int, expected: int) -> None:
    """Parameters and a part in proportion to the batch; of a batch of 64 that did not fit."""
    assert batch_size_that_fits(64, needed * GIB, parameters * GIB, capacity * GIB) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB", 5 * GIB // 2),
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity", 20 * 2**20),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 123456 bytes. Error code 12", 123456),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
    ],
)
def test_what_was_asked_for_is_read_from_torchs_message(message: str, expected: int | None) -> None:
    assert tried_bytes(message) == expected


CAUSES: list[tuple[BaseException, str]] = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "cpu"),
    (RuntimeError("CUDA error: out of memory"), "cpu"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "cpu"),
    (MemoryError(), "host"),
    (
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you …"),
        "host",
    ),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "host"),
]


@pytest.mark.parametrize(("cause", "of"), CAUSES)
def test_every_kind_of_lack_of_memory_is_known(cause: BaseException, of: str) -> None:
    """By itself, and behind what a compiler makes of it; the record's figures say whose memory it was."""
    wrapped = RuntimeError("backend='inductor' raised")
    wrapped.__cause__ = cause
    for error in (cause, wrapped):
        found = explained(error, compose("batch_size=32"), torch.device("cpu"), torch.nn.Linear(4, 4))
        assert isinstance(found, OutOfMemory)
        assert (found.memory["of"], found.memory["parameter_bytes"]) == (of, 80)
        assert "at batch_size=32" in str(found)
        assert found.__cause__ is error


@pytest.mark.parametrize("error", [RuntimeError("no kernel image"), OSError(errno.ENOSPC, "no space"), KeyError("x")])
def test_other_errors_stay_what_they_are(error: BaseException) -> None:
    assert explained(error, compose(), torch.device("cpu"), None) is error


def test_figures_of_a_device_and_their_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an allocator's account: 10 GiB of 16 are ours to have, 2 are reserved; half of the batch would fit."""
    figures = {
        "mem_get_info": (8 * GIB, 16 * GIB),
        "memory_allocated": 2 * GIB,
        "memory_reserved": 2 * GIB,
        "max_memory_allocated": 2 * GIB,
    }
    for name, value in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda _device, value=value: value)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 18.00 GiB. GPU 0 has a total")
    found = explained(error, compose("batch_size=128"), torch.device("cuda:0"), torch.nn.Linear(1, 1))
    assert isinstance(found, OutOfMemory)
    assert found.memory["batch_size_that_fits"] == 63  # 64, but for the 8 bytes of parameters
    assert str(found).startswith(
        "out of memory on cuda:0 at batch_size=128; 2,048 MiB allocated, peak 2,048 MiB, 2,048 MiB reserved, "
        "8,192 MiB of 16,384 MiB free; 18,432 MiB more were asked for. By a linear estimate (parameters 0 MiB, "
        "the rest in proportion to batch_size) at most batch_size=63 fits. Lower batch_size"
    )


def out_of_memory(changes: dict[str, Any], **others: Any) -> Record:
    return make_record(changes, status="failed", reasons=["no room"], error={"memory": {"of": "cpu"}}, **others)


def wanted(batch_size: int, *overrides: str) -> Settings:
    return compose("skip_larger=true", f"batch_size={batch_size}", *overrides)


def test_larger_batches_of_a_row_are_skipped() -> None:
    """The same settings but for batch size, repeat and what changes no number; a smaller batch is tried."""
    records = [out_of_memory({"batch_size": 64}), out_of_memory({"batch_size": 128}), make_record({"batch_size": 8})]
    assert ran_out_of_memory(wanted(256), records) == 64
    assert ran_out_of_memory(wanted(64, "repeat=1", "progress=false"), records) == 64
    assert ran_out_of_memory(wanted(32), records) is None
    assert ran_out_of_memory(wanted(256, "compile=false"), records) is None
    assert ran_out_of_memory(wanted(256), records[2:]) is None


def test_run_that_is_made_anew_is_not_skipped_for_its_own_sake() -> None:
    """Its own old record does not count, nor does one that was itself skipped: so a retry tries."""
    skipped = make_record({"batch_size": 64, "repeat": 1}, status="failed", error={"memory": None, "reason": "skipped"})
    assert ran_out_of_memory(wanted(64), [out_of_memory({"batch_size": 64}), skipped]) is None


def test_runs_that_are_tried_again_are_not_skipped_for_each_others_sake() -> None:
    """retry=failed: of the old records that will be replaced none counts; one of this command does."""
    old = [replace(out_of_memory({"batch_size": 64, "repeat": repeat}), job=repeat) for repeat in (0, 1)]
    retried = wanted(64, "repeat=1", "retry=[failed]", "resume=last")
    assert ran_out_of_memory(retried, old, 2) is None
    assert ran_out_of_memory(wanted(64, "repeat=2", "resume=last"), old, 2) == 64
    assert ran_out_of_memory(retried, [*old, replace(old[0], job=2)], 2) == 64


@pytest.fixture(scope="module")
def sweep(start: Start) -> Done:
    """Device and host run out of memory, in the first pass and in a thread; the larger batch is skipped."""
    targets = "toys.OutOfMemory,toys.OutOfMemoryInThread,toys.AsksForTooMuch"
    return start(f"model._target_={targets}", "batch_size=2,8,16", "skip_larger=true", "repeat=range(1)", "-m").wait()


def of(sweep: Done, toy: str, batch_size: int) -> Record:
    (found,) = [
        record
        for record in sweep.records
        if record.settings["model"]["_target_"] == f"toys.{toy}" and record.settings["batch_size"] == batch_size
    ]
    return found


def test_out_of_memory_is_a_failed_cell_and_the_sweep_goes_on(sweep: Done) -> None:
    """All nine cells are recorded; what fits is valid, and the exit code tells that not all are."""
    assert sweep.code == 1
    assert len(sweep.records) == 9
    assert of(sweep, "OutOfMemory", 2).verdict.status == "valid"


@pytest.mark.parametrize(
    ("toy", "batch_size", "of_what", "phase", "asked"),
    [
        ("OutOfMemory", 8, "cpu", "load", 2 * GIB),
        ("OutOfMemoryInThread", 2, "cpu", "measuring", 20 * 2**20),
        ("AsksForTooMuch", 2, "host", "load", 2 * 2**50),
    ],
)
def test_figures_are_in_the_record(
    sweep: Done, toy: str, batch_size: int, of_what: str, phase: str, asked: int
) -> None:
    """Whose memory, in which phase, how much was asked for, with the traceback down to the model."""
    record = of(sweep, toy, batch_size)
    assert record.error is not None
    assert (record.error["process"], record.error["phase"]) == ("backend", phase)
    memory = record.error["memory"]
    assert (memory["of"], memory["tried_bytes"]) == (of_what, asked)
    assert memory["parameter_bytes"] == 4 * (8 * 3 * 9 + 8 + 10 * 8 * 14 * 14 + 10)
    assert "toys.py" in record.error["traceback"]
    assert f"at batch_size={batch_size}" in record.reasons[0]
    if of_what == "host":
        assert memory["batch_size_that_fits"] in (0, 1)
        assert 0 < memory["allocated_bytes"] <= memory["peak_allocated_bytes"]


def test_larger_batches_are_skipped_in_no_time_and_named(sweep: Done) -> None:
    """Each after the smallest that failed, with a failed record and in the table."""
    for toy, first, larger in (("OutOfMemory", 8, [16]), ("AsksForTooMuch", 2, [8, 16])):
        for batch_size in larger:
            record = of(sweep, toy, batch_size)
            assert record.reasons == [f"skipped: batch_size={first} ran out of memory (skip_larger=true)"]
            assert record.environment["phases_s"] == {}
            assert record.error is not None
            assert record.error["memory"] is None
            assert not (record.directory / "backend.log").exists()
    assert "FAILED (skipped: batch_size=8 ran out of memory (skip_larger=true))" in sweep.stdout


def removed(group: Path) -> bool:
    """Whether a control group is gone; it takes a moment to be empty."""
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 1 GiB of memory below our own, where the system lets us make one."""
    own = {
        controller: path
        for _, controllers, path in (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
        for controller in controllers.split(",")
    }
    base = Path("/sys/fs/cgroup/memory") if "memory" in own else Path("/sys/fs/cgroup")
    made = base / own.get("memory", own.get("", "/")).lstrip("/") / f"bench-test-{secrets.token_hex(4)}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        limit = made / ("memory.limit_in_bytes" if "memory" in own else "memory.max")
        if not limit.exists():
            pytest.skip("no memory controller")
        limit.write_text(str(GIB))
        swap = made / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")
        yield made
    finally:
        wait_until(lambda: removed(made), 5.0)


def test_kernels_kill_for_memory_is_named(start: Start, group: Path) -> None:
    """In a control group of 1 GiB one run takes 4 and fails, the larger is skipped, the last two are good."""
    enter = ("sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh")
    command = start(
        "model._target_=toys.Greedy,toys.Net",
        "batch_size=64,65",
        "skip_larger=true",
        "repeat=range(1)",
        "-m",
        prefix=enter,
    )
    done = command.wait()
    command.assert_all_gone()
    killed, skipped = of(done, "Greedy", 64), of(done, "Greedy", 65)
    assert (
        "the backend was killed by SIGKILL in phase load: the kernel killed it since memory ran out"
        in killed.reasons[0]
    )
    assert "of a limit of 1024 MiB were free" in killed.reasons[0]
    assert skipped.reasons == ["skipped: batch_size=64 ran out of memory (skip_larger=true)"]
    assert of(done, "Net", 64).verdict.status == "valid"
