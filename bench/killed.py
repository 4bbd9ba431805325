"""Why the kernel ended a process, where its own counters tell. Pure."""

from bench.errors import RunFailed
from bench.room import Room

_MIB = 2**20


def explained(failure: RunFailed, oom_kills: int, room: Room) -> RunFailed:
    """`failure` in more words where memory ran out.

    Args:
        oom_kills: processes that the kernel killed for want of memory while the run lasted.
        room: what was free before it.
    """
    reason = str(failure)
    if "killed by SIGBUS" in reason:  # a page of shared memory that could not be had
        what = f"shared memory ran out ({room.shm // _MIB} MiB of /dev/shm were free before the run)"
        advice = "Lower batch_size, mount a larger /dev/shm, or set queue=shared_memory"
    elif oom_kills > 0 and "SIGKILL" in reason:
        limit = "" if room.memory_limit is None else f" of a limit of {room.memory_limit // _MIB} MiB"
        what = f"the kernel killed it since memory ran out ({room.memory // _MIB} MiB{limit} were free before the run)"
        advice = "Lower batch_size, num_workers or payloads, or give it more memory"
    else:
        return failure
    memory = {"of": "host", "available_bytes": room.memory, "limit_bytes": room.memory_limit, "shm_bytes": room.shm}
    return RunFailed(
        f"{reason}: {what}. {advice}",
        process=failure.process,
        phase=failure.phase,
        traceback=failure.traceback,
        memory=memory,
    )
