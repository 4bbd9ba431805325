"""What the kernel says of a process: how it ended, and whether it is stopped."""

import signal
from pathlib import Path


def in_words(code: int) -> str:
    """An exit code as `multiprocessing` gives it, negative for a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # most of the real-time signals have no name
        return f"was killed by signal {-code}"


def is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped by a signal or held by a debugger."""
    return pid is not None and _status(pid)[0] in ("T", "t")


def stopped_in_group(group: int) -> int | None:
    """The id of a stopped process of the process group, should there be one."""
    for directory in Path("/proc").glob("[0-9]*"):
        state, pgrp = _status(int(directory.name))
        if pgrp == group and state in ("T", "t"):
            return int(directory.name)
    return None


def _status(pid: int) -> tuple[str, int]:
    """State and process group; nothing of one that is gone."""
    try:
        state, _parent, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return "", -1
    return state, int(group)
