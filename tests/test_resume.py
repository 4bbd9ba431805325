"""A broken sweep is finished in its own directory: what is missing is run, what is there is not touched."""

import os
import signal
from pathlib import Path

import pytest
from commands import Command, Done, call, rows, wait_until
from conftest import Start

from bench.results.records import read_records

Files = dict[str, tuple[int, int]]


def shell(line: str, cwd: Path) -> Done:
    """A line as a user pastes it."""
    command = Command(cwd, ("-c", line), program=("sh",))
    return command.wait()


def printed_command(text: str) -> str:
    """The command that a message gives, on the line below it."""
    lines = text.splitlines()
    (at,) = [k for k, line in enumerate(lines) if line.endswith("This finishes the sweep:")]
    assert lines[at + 1].startswith("    ")
    return lines[at + 1].strip()


def files(directory: Path) -> Files:
    """Size and time of change of every file of a run, but for the one that `bench.report` makes again."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "timeline.json":
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    assert found
    return found


def numbers(done: Done) -> list[str]:
    """The names of the runs' directories."""
    return sorted(path.name for path in done.directory.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def failed(start: Start) -> Done:
    """Three runs, of two cells, of which the one with batch_size=2 fails."""
    return start("model._target_=toys.NeedsFile", "batch_size=1,2,1", "-m", "repeat=range(1)").wait()


def test_failed_run_is_tried_again_by_the_command_that_the_error_gives(failed: Done) -> None:
    """Pasted into a shell, it runs the failed one only, whose new record counts; nothing that was there changes."""
    assert failed.code == 1
    assert "bench: of 3 runs: 1 failed. This finishes the sweep:" in failed.stderr
    line = printed_command(failed.stderr)
    before = files(failed.directory / "0000") | files(failed.directory / "0001") | files(failed.directory / "0002")
    (failed.outputs.parent / "mended").touch()
    done = shell(line, failed.outputs.parent)
    assert done.code == 0, done.stderr
    assert numbers(done) == ["0000", "0001", "0002", "0003"]
    assert [row["directory"] for row in rows(done.directory / "runs.csv")] == ["0000", "0002", "0003"]
    assert [(row["n"], row["verdict"][:5]) for row in rows(done.directory / "summary.csv")] == [
        ("2", "valid"),
        ("1", "valid"),
    ]
    assert before.items() <= files(done.directory).items()
    assert "1 of 3 runs are left to do" in done.stderr
    assert "run 3 of 3: " in done.stderr


def test_complete_sweep_says_so_and_runs_nothing(failed: Done) -> None:
    """The command once more: the tables, exit code 0, and neither a process nor a directory more."""
    began = files(failed.directory / "0003")
    command = Command(failed.outputs.parent, ("-c", printed_command(failed.stderr)), program=("sh",))
    done = command.wait()
    assert done.code == 0, done.stderr
    assert f"bench: {done.directory.relative_to(failed.outputs.parent)}: no run is missing" in done.stderr
    assert (done.directory / "summary.md").read_text("utf-8") in done.stdout
    assert files(done.directory / "0003") == began
    assert len(numbers(done)) == 4


def resumed(start: Start, done: Done, *overrides: str) -> Done:
    """The sweep's command with other overrides."""
    given = {override.partition("=")[0] for override in overrides}
    usual = ["model._target_=toys.NeedsFile", "batch_size=1,2,1", "repeat=range(1)", "resume=last"]
    kept = [override for override in usual if override.partition("=")[0] not in given]
    return start(*kept, "-m", *overrides, cwd=done.outputs.parent).wait()


REFUSED = {
    "num_iters=9": "num_iters=8 in the sweep, num_iters=9 in this command",
    "batch_size=1,2": "repeat=0: 1 more in the sweep than in this command",
    "resume=nowhere": "resume=nowhere: no such directory. Give a sweep's directory, or resume=last",
    "experiment=other": "resume=last: no sweep of experiment other in outputs/other. Leave it out to start one",
    "retry=lost,failed": "retry[0]=lost: must be one of failed, invalid",
    "hydra/sweeper=basic": "resume cannot work with it",
}


@pytest.mark.parametrize(("override", "words"), REFUSED.items())
def test_what_is_no_part_of_the_sweep_is_refused_in_words(
    start: Start, failed: Done, override: str, words: str
) -> None:
    """Exit code 2 before anything starts, the difference by name, and the sweep as it was."""
    before = files(failed.directory)
    done = resumed(start, failed, override)
    assert done.code == 2, done.stderr
    assert words in done.stderr
    assert files(failed.directory) == before


def test_sweep_that_is_being_run_is_not_run_twice(start: Start, failed: Done) -> None:
    """Two commands in one directory would measure the same runs: the second is refused."""
    from bench.results.manifest import lock

    held = lock(failed.directory)
    done = resumed(start, failed)
    held.release()
    assert done.code == 2
    assert "another command is running this sweep" in done.stderr


def test_single_run_is_not_resumed(start: Start, tmp_path: Path) -> None:
    """Without -m, and with retry alone, it is said what to do."""
    for override, words in (("resume=last", "this is a single run. Add -m"), ("retry=failed", "of which sweep?")):
        done = start(override, cwd=tmp_path).wait()
        assert done.code == 2
        assert words in done.stderr


def kill_in_run(command: Command, cwd: Path, after: int) -> None:
    """SIGKILL in the middle of the run after `after` finished ones."""
    wait_until(lambda: len(list(cwd.glob("backend-*"))) > after, 120)
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    command.assert_all_gone()


def test_killed_sweep_is_finished_in_three_goes(start: Start, tmp_path: Path) -> None:
    """Random order, killed in its 2nd run, resumed, killed again in its 3rd, resumed: 4 runs, each once."""
    command = start(
        "model._target_=toys.Slow",
        "num_iters=20",
        "batch_size=1,2",
        "hydra/sweeper=random_order",
        "-m",
        "repeat=range(2)",
        cwd=tmp_path,
    )
    kill_in_run(command, tmp_path, 1)
    directory = command.wait().directory
    line = printed_command(call(tmp_path, str(directory), module="bench.report").stdout)
    assert "**Interrupted after 1 of 4 runs.**" in (directory / "summary.md").read_text("utf-8")
    before = files(directory / "0000")
    again = Command(tmp_path, ("-c", f"exec {line}"), program=("sh",))
    kill_in_run(again, tmp_path, 3)  # one was killed
    # From another directory the command changes to the sweep's own first.
    (tmp_path / "elsewhere").mkdir()
    line = printed_command(call(tmp_path / "elsewhere", str(directory), module="bench.report").stdout)
    assert line.startswith(f"cd {tmp_path} && ")
    done = shell(line, tmp_path / "elsewhere")
    assert done.code == 0, done.stderr
    records, problems = read_records(directory)
    assert problems == []
    assert sorted((r.settings["batch_size"], r.settings["repeat"]) for r in records) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert before == files(directory / "0000")
    assert "missing" not in call(tmp_path, str(directory), module="bench.report").stdout
