"""A run's claim to its device: one run at a time on each, in turn, unless it says that it shares."""

import functools
import os
import pwd
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import supervisor
from bench.config import Device, Settings
from bench.device_lock import Entry, Holder, now
from bench.errors import RunFailed
from bench.hydra_glue import command_id
from bench.results.text import printable
from bench.telemetry.environment import command_line

_POLL_S = 0.2  # how often a waiting run looks; short beside a run, and a look takes microseconds
_IDENTIFY_S = 120.0
WAITING = "waiting for the device"

_told: set[str] = set()  # commands for which this process has said that it waits
# By device, how long this process has waited for each command since it last got it: the next run of a sweep does not
# wait again for what the last one has waited for in vain.
_waited_s: dict[str, defaultdict[str, float]] = {}


class DeviceBusy(RunFailed):
    """Other commands used the device for longer than `device_wait_s`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, process="supervisor", phase=WAITING)


class Claim:
    """A device as long as a run has it.

    Attributes:
        device: `cpu`, or the UUID of a CUDA device.
        waited_s: how long the run waited for it.
        shared_with: other runs that were seen at it meanwhile.
    """

    def __init__(self, device: str, waited_s: float, entry: Entry) -> None:
        self.device = device
        self.waited_s = waited_s
        self.shared_with: list[str] = []
        self._entry = entry

    def as_mapping(self) -> dict[str, Any]:
        """For the record."""
        return {"name": self.device, "waited_s": self.waited_s, "shared_with": self.shared_with}

    def look(self) -> None:
        """Note who else is at the device now."""
        self.shared_with += [text for text in map(str, self._entry.at_the_device()) if text not in self.shared_with]


@contextmanager
def claimed(settings: Settings, directory: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[Claim]:
    """Hold the device of `settings`; no other run has it meanwhile, unless one of them allows sharing.

    Args:
        directory: the run's, to be shown to those who wait for it.
        on_wait: called again and again while another run has it.

    Raises:
        DeviceBusy: when other commands had it for longer than `device_wait_s`.
        BenchError: when there is no such device, or no lock can be taken.
    """
    device = identify(settings.device)
    began = time.monotonic()
    with Entry(device, _me(directory)) as entry:
        if settings.allow_shared_device:
            entry.start()
        else:
            _wait(entry, device, settings.device_wait_s, on_wait)
        claim = Claim(device, time.monotonic() - began, entry)
        claim.look()
        yield claim
        claim.look()


@functools.cache
def identify(device: Device) -> str:
    """`cpu`, or the UUID of the CUDA device that is meant: an index means another one where fewer are visible.

    Raises RunFailed where it is not there.
    """
    if device.name == "cpu":
        return "cpu"
    name: str = supervisor.call("device", "bench.backend.device:identify", device, timeout_s=_IDENTIFY_S)
    return name


def _wait(entry: Entry, device: str, limit_s: float, on_wait: Callable[[], None]) -> None:
    """Wait for the device. What runs of the same command take of it is no part of `limit_s`."""
    waited_s, last = 0.0, time.monotonic()
    known_s = _waited_s.setdefault(device, defaultdict(float))
    while (holder := entry.try_start()) is not None:
        is_other = holder.sweep != command_id()
        if is_other and max(waited_s, known_s[holder.sweep]) >= limit_s:
            raise DeviceBusy(
                f"{_named(device)} is in use: waited {max(waited_s, known_s[holder.sweep]):.0f} s "
                f"(device_wait_s={limit_s:g}) for {holder}. "
                "Raise device_wait_s, or measure beside it with allow_shared_device=true"
            )
        if is_other:
            _tell(device, holder, limit_s)
        on_wait()
        time.sleep(min(_POLL_S, max(0.01, limit_s - waited_s)))
        step_s, last = time.monotonic() - last, time.monotonic()
        if is_other:
            waited_s += step_s
            known_s[holder.sweep] += step_s
    known_s.clear()


def _tell(device: str, holder: Holder, limit_s: float) -> None:
    """Say who is waited for, once for each command."""
    if holder.sweep in _told:
        return
    _told.add(holder.sweep)
    text = f"bench: waiting up to {limit_s:g} s (device_wait_s) for {_named(device)}, in use by {holder}"
    print(printable(text, sys.stderr.encoding), file=sys.stderr, flush=True)


def _named(device: str) -> str:
    return "the CPU" if device == "cpu" else f"the GPU {device}"


def _me(directory: Path) -> Holder:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may have no name for its user
        user = f"user {os.getuid()}"
    place = str(directory.absolute())
    return Holder(os.getpid(), user, command_line(sys.argv), place, command_id(), now(), running=False)
