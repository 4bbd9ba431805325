"""One run at a time on a device: real commands beside each other, and the line that they stand in."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from commands import Command, Done, stamps, wait_until
from conftest import Start

from bench import device_claim
from bench.config import Settings
from bench.device_claim import DeviceBusy, claimed
from bench.device_lock import Entry, Holder, directory
from bench.errors import BenchError
from bench.hydra_glue import command_id
from bench.job import compose

SHARED = "shared device: other runs used it at the same time (allow_shared_device=true)"


def window(done: Done) -> tuple[int, int]:
    """First and last stamp of a single run, on the clock that all processes share."""
    (record,) = done.records
    columns = stamps(record.directory)
    return columns["sent_ns"][0], columns["completed_ns"][-1]


@pytest.fixture(scope="module")
def holder(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A command that measures for minutes."""
    locks = tmp_path_factory.mktemp("locks")
    command = start("model._target_=toys.Slow", "num_iters=9999", "queue=torch", locks=locks)
    try:
        wait_until(lambda: any(command.cwd.glob("backend-*")), 120)
        yield command
    finally:
        command.process.kill()
    command.assert_all_gone()


def test_others_at_a_device_in_use(start: Start, holder: Command) -> None:
    """Beside a run of minutes: one ends at once, one after a second, a third shares, a fourth waits for its end."""
    given = {
        "at once": ("device_wait_s=0",),
        "a second": ("device_wait_s=1", "repeat=range(2)", "-m"),
        "shares": ("allow_shared_device=true",),
        "waits": (),
    }
    commands = {name: start(*overrides, locks=holder.locks) for name, overrides in given.items()}
    named = f"process {holder.process.pid} of "
    at_once, a_second, shares = (commands[name].wait() for name in ("at once", "a second", "shares"))
    for done, waited in ((at_once, "0 s (device_wait_s=0)"), (a_second, "1 s (device_wait_s=1)")):
        assert done.code == 2
        assert not done.outputs.exists()
        assert "bench: the CPU is in use: waited " in done.stderr
        for words in (named, "python -m bench ", str(holder.cwd), "allow_shared_device=true", f"waited {waited}"):
            assert words in done.stderr
    (record,) = shares.records
    assert (shares.code, record.verdict.status) == (0, "valid"), shares.stderr
    assert SHARED in record.verdict.warnings
    assert named in record.environment["device"]["shared_with"][0]

    assert commands["waits"].process.poll() is None
    os.kill(holder.process.pid, signal.SIGKILL)
    waits = commands["waits"].wait(60)
    assert waits.code == 0, waits.stderr
    assert f"bench: waiting up to 3600 s (device_wait_s) for the CPU, in use by {named}" in waits.stderr
    assert waits.stderr.count("bench: waiting") == 1
    (record,) = waits.records
    assert SHARED not in record.verdict.warnings
    assert window(waits)[0] > window(shares)[1]


# The line itself.


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a run that waits 0.3 s for its device, in a line of its own."""
    monkeypatch.setenv("BENCH_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr(device_claim, "_told", set())
    monkeypatch.setattr(device_claim, "_waited_s", {})
    return compose("device=cpu", "device_wait_s=0.3", f"output_dir={tmp_path}")


def other(**changes: object) -> Holder:
    """A run of another command."""
    known = Holder(4242, "ada", "python -m bench", "/somewhere", "another command", "noon", running=False)
    return replace(known, **changes)  # type: ignore[arg-type]  # a test's keywords


@pytest.mark.usefixtures("settings")
def test_first_come_first_served() -> None:
    """The device goes to who has waited longest, and not to another before him, even while it is free."""
    with Entry("cpu", other()) as first, Entry("cpu", other(pid=2)) as second, Entry("gpu", other()) as elsewhere:
        assert second.try_start() == other()
        assert first.try_start() is None
        assert elsewhere.try_start() is None
        ahead = second.try_start()
        assert ahead is not None
        assert ahead.running
    assert list(directory().iterdir()) == []


def test_one_that_shares_does_not_wait_but_is_waited_for(settings: Settings, tmp_path: Path) -> None:
    """It starts beside another at once; both learn of it; a third that does not share waits for both."""
    with claimed(settings, tmp_path) as alone:
        with claimed(replace(settings, allow_shared_device=True), tmp_path) as sharing:
            alone.look()
            assert len(sharing.shared_with) == len(alone.shared_with) == 1
        alone.look()
        assert len(alone.shared_with) == 1
    with Entry("cpu", other()) as late, claimed(replace(settings, allow_shared_device=True), tmp_path):
        assert late.try_start() is not None


def test_runs_of_the_same_command_do_not_use_up_the_wait(settings: Settings, tmp_path: Path) -> None:
    """A launcher may start all runs of a sweep at once: they take turns, however long that takes."""
    looks = 0

    def on_wait() -> None:
        nonlocal looks
        looks += 1
        if looks == 8:  # 1.6 s
            sibling.__exit__()

    sibling = Entry("cpu", other(sweep=command_id()))
    sibling.start()
    with claimed(settings, tmp_path, on_wait):
        assert looks == 8


def test_a_holder_given_up_is_not_waited_for_again(settings: Settings, tmp_path: Path) -> None:
    """The second run fails at once while the same command has the device; without it the third one runs."""
    looks: list[int] = []

    def claim() -> None:
        with claimed(settings, tmp_path, lambda: looks.append(1)):
            pass

    with Entry("cpu", other()) as entry:
        entry.start()
        with pytest.raises(DeviceBusy, match=r"^the CPU is in use: waited 0 s \(device_wait_s=0.3\) for process 4242"):
            claim()
        first = len(looks)
        with pytest.raises(DeviceBusy):
            claim()
        assert len(looks) == first > 0
    claim()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": "x"}', "null", "\x1b[2J" * 10_000, "\xff", "[" * 4000])
def test_entry_of_a_stranger_may_hold_anything(settings: Settings, tmp_path: Path, text: str) -> None:
    """What another user wrote is no error and moves no cursor; without a living process it is no holder."""
    with Entry("cpu", other()):
        (entry,) = directory().iterdir()
        entry.write_text(text)
        with pytest.raises(DeviceBusy) as caught, claimed(replace(settings, device_wait_s=0.0), tmp_path):
            pass
        assert str(caught.value).isprintable()
    (directory() / "cpu.7").write_text(text)
    os.mkfifo(directory() / "cpu.8")
    (directory() / "cpu.9").symlink_to("/dev/zero")
    with claimed(settings, tmp_path):
        assert not (directory() / "cpu.7").exists()


def test_cursor_is_not_moved_by_a_name() -> None:
    """Control characters in an entry are replaced."""
    text = json.dumps(asdict(other(user="\x1b[2J")))
    assert "of ?[2J since" in str(Holder.parse(text))


@pytest.mark.usefixtures("settings")
def test_directory_is_for_all_users(tmp_path: Path) -> None:
    """All may add entries and read them whatever the umask, each removes only his own, and no link is followed."""
    before = os.umask(0o077)
    try:
        with Entry("cpu", other()):
            assert stat.S_IMODE(directory().stat().st_mode) == 0o1777
            (entry,) = directory().iterdir()
            assert stat.S_IMODE(entry.stat().st_mode) == 0o644
    finally:
        os.umask(before)
    directory().rmdir()
    directory().symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(BenchError, match=r"locks: cannot be used for locks: .*Set BENCH_LOCK_DIR"):
        Entry("cpu", other())
