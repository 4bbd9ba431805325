"""Before the first run: every problem of every cell at once, with real limits; and between runs, a disk that fills."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from commands import refused, rows
from conftest import Start

from bench.backend import toolchain

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def has_mounts() -> bool:
    """Whether a mount can be made that only one command sees."""
    try:
        code = "mount -t tmpfs -o size=64k tmpfs /mnt"
        return subprocess.run([*_NAMESPACE, "sh", "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_mounts = pytest.mark.skipif(not has_mounts(), reason="no mount can be made here")


def mounted(*mounts: tuple[str, str]) -> tuple[str, ...]:
    """What starts a command that sees a file system in memory of each size at each place."""
    lines = " && ".join(f'mount -t tmpfs -o size={size} tmpfs "{place}"' for size, place in mounts)
    return (*_NAMESPACE, "sh", "-c", f'{lines} && exec "$@"', "sh")


def test_all_problems_of_all_cells_are_said_at_once(start: Start, tmp_path: Path) -> None:
    """No compiler, no place for results, cache or locks, models that are not there: each once, with its cells."""
    (tmp_path / "file").touch()
    said = refused(
        start(
            "model._target_=toys.Net,toys.Nett",
            "compile=true,false",
            "batch_size=2,4",
            f"output_dir={tmp_path}/file/outputs",
            "device=cpu",
            "-m",
            locks=tmp_path / "file",
            PATH=str(tmp_path),
            CXX="",
        )
    ).stderr
    assert f"{tmp_path}/file: cannot be used for locks: Not a directory. Set BENCH_LOCK_DIR to" in said
    lines = [line for line in said.splitlines() if line.startswith(("bench: ", "model", "compile", "output_dir"))]
    (compiler,) = [line for line in lines if "compile=true: needs a C++ compiler" in line]
    assert "apt-get install g++" in compiler
    assert "set compile=false: python -m bench" in compiler
    assert compiler.endswith("compile=false")
    assert "compile=true,false" not in compiler
    (model,) = [line for line in lines if "model._target_=toys.Nett: " in line]
    assert "Close: Net" in model
    (place,) = [line for line in lines if line.startswith("output_dir=")]
    assert "cannot be written (Not a directory). Set output_dir to another directory" in place
    assert len(lines) == 4


def test_cells_without_compile_run_without_a_compiler(start: Start, tmp_path: Path) -> None:
    """The command that the message names works, and shows that a model for whole payloads passes the preflight."""
    done = start("compile=false", "model._target_=toys.TakesTwo", PATH=str(tmp_path), CXX="no-such-compiler").wait()
    assert done.code == 0, done.stderr


def test_cache_that_cannot_be_written_and_a_model_that_dies(start: Start, tmp_path: Path) -> None:
    """One is a line with the key; the other ends the process that tries it, and is named."""
    (tmp_path / "file").touch()
    cache = start(f"cache_dir={tmp_path}/file", "batch_size=2,4", "-m")
    dies = start("model._target_=toys.DiesWhenTried")
    assert (
        f"bench: cache_dir={tmp_path}/file: cannot be written (Not a directory). Set cache_dir" in refused(cache).stderr
    )
    assert "was killed by SIGKILL in phase preflight while it tried model toys.DiesWhenTried" in refused(dies).stderr


@needs_mounts
def test_limits_are_compared_with_what_there_is(start: Start, tmp_path: Path) -> None:
    """A /dev/shm of 1 MiB and a disk of 128 KiB: the cells that need more are named, and nothing is left."""
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    said = refused(
        start(
            "batch_size=2,1024",
            "queue=torch,shared_memory",
            "repeat=range(3)",
            f"output_dir={outputs}",
            "-m",
            prefix=mounted(("1m", "/dev/shm"), ("128k", str(outputs))),
        )
    ).stderr
    assert (
        "batch_size=1024 queue=torch: needs 12 MiB of shared memory, 1 MiB are free in /dev/shm: lower batch_size, "
        "mount a larger /dev/shm (docker run --shm-size=1g), or set queue=shared_memory\n"
    ) in said
    assert "each of 4 cells: needs 2 MiB of disk for 3 runs, 0 MiB are free in " in said
    assert len([line for line in said.splitlines() if "needs" in line]) == 2


def test_hard_limit_of_open_files_is_named_and_the_soft_one_raised(start: Start) -> None:
    """40 at most: refused in words. 40, but 1000 if asked for: 200 requests in flight on a torch queue work."""
    few = start(prefix=("sh", "-c", 'ulimit -n 40 && exec "$@"', "sh"))
    more = start(
        "queue=torch",
        "num_iters=200",
        "verify=false",
        prefix=("sh", "-c", 'ulimit -Sn 40 && ulimit -Hn 1000 && exec "$@"', "sh"),
    )
    assert "batch_size=2: needs 64 open files a process, 40 are allowed: raise the hard limit" in refused(few).stderr
    done = more.wait()
    assert done.code == 0, done.stderr


@needs_mounts
def test_full_disk_ends_the_sweep(start: Start, tmp_path: Path) -> None:
    """It fills in the second of 6 runs: no other is measured in vain, and the command that is printed does the rest.

    What was measured before stays, in a table that was written while there was room.
    """
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    script = f"""
    mount -t tmpfs -o size=16m tmpfs "{outputs}" && "$@" 2> first; echo $? > code
    cp "$(echo outputs/default/*/runs.csv)" runs.csv; rm outputs/filler
    exec sh -c "$(grep -A1 'This finishes the sweep:' first | tail -n 1)"
    """
    done = start(
        "model._target_=toys.FillsDisk",
        f"+model.args.directory={outputs}",
        f"output_dir={outputs}",
        "batch_size=2,4",
        "repeat=range(3)",
        "telemetry=false",
        "-m",
        cwd=tmp_path,
        prefix=(*_NAMESPACE, "sh", "-c", script, "sh"),
    ).wait()
    said = (tmp_path / "first").read_text()
    assert (tmp_path / "code").read_text() == "1\n", said
    assert "No space left on device" in said
    assert "bench: broke off, of 6 runs: " in said
    assert "Traceback" not in said
    assert done.code == 0, done.stderr
    assert "of 6 runs are left to do" in done.stderr
    assert [row["batch_size"] for row in rows(tmp_path / "runs.csv")] == ["2"]
    assert "run 3 of 6" not in said
    assert "This finishes the sweep:" in said.splitlines()[-2]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CXX": "no-such-compiler"}, ["a C++ compiler (no-such-compiler cannot be run; Debian: apt-get install g++"]),
        ({"CXX": f"{sys.executable} -E"}, []),
        ({"CXX": "false"}, ["a C++ compiler (false cannot be run"]),
    ],
)
def test_compiler_is_asked_as_inductor_asks(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: list[str]
) -> None:
    """CXX, with its arguments, must answer to --version."""
    import torch

    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    lacks = [lack for lack in toolchain.missing(torch.device("cpu")) if "Python.h" not in lack]
    assert [lack[: len(text)] for lack, text in zip(lacks, expected, strict=True)] == expected


def test_headers_of_python_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where this Python says they are."""
    import torch

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": os.fspath(tmp_path)})
    (lack,) = toolchain.missing(torch.device("cpu"))
    assert lack.startswith("Python.h (Debian: apt-get install python3.")
    (tmp_path / "Python.h").touch()
    assert toolchain.missing(torch.device("cpu")) == []
