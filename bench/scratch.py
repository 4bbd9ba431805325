"""The temporary directory of a supervisor and its processes: removed at its end, however that comes.

The supervisor removes it when it ends by itself. Where it is killed, each of its processes does as it ends, and so
the last of them: that is the fork server, if it was not killed, too.
"""

import multiprocessing
import os
import shutil
from multiprocessing import util
from pathlib import Path

_NAME = "BENCH_TEMPORARY"  # in the environment, for the fork server
_owner: int | None = None  # process id


def directory() -> Path:
    """This process's own, made at the first call; multiprocessing keeps the fork server's socket in it as well."""
    global _owner
    if _owner != os.getpid():
        # A launcher's worker inherits the name of its parent's, which is not its own to remove.
        multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]  # no public name
        _owner = os.getpid()
    made = util.get_temp_dir()
    os.environ[_NAME] = made
    return Path(made)


def of_supervisor() -> str:
    """In a child: the supervisor's."""
    return os.environ[_NAME]


def remove() -> None:
    """In a child or the fork server, when the supervisor is gone: remove its directory, if it is still there."""
    shutil.rmtree(os.environ.get(_NAME, ""), ignore_errors=True)
