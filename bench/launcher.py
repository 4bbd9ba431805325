"""A launcher's workers: processes that run jobs with the command's environment, and end with the command.

Under Hydra's basic launcher every run takes place in the command's own process. joblib and submitit start
workers, which import `bench.job` and nothing of this program before it.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench import scratch, signals

if TYPE_CHECKING:
    from omegaconf import DictConfig

_COMMAND = "BENCH_COMMAND"  # in the environment: the command as it tells its workers of itself
_WORKERS = "workers"  # in the command's temporary directory: a file for each, named after its process id
_END_S = 2.0  # for workers to end
# What joblib sets to a share of the cores, which the backend divides itself.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "ENABLE_IPC"),
)
_DEVICES = "CUDA_VISIBLE_DEVICES"  # submitit's local launcher hides all where it was asked for none

_PROGRAMS = ("loky.backend.popen_loky", "submitit.")  # what a worker's command line names

_load: list[float] = []  # once known


def has_workers(config: "DictConfig") -> bool:
    """Whether the launcher of a sweep runs its jobs in processes of their own."""
    return not str(config.hydra.launcher.get("_target_")).endswith(".BasicLauncher")


def announce() -> None:
    """In the command, before it launches anything."""
    workers = scratch.directory() / _WORKERS
    workers.mkdir()
    told = {
        "pid": os.getpid(),
        "arguments": sys.argv,
        "variables": {name: os.environ.get(name) for name in (*_THREADS, _DEVICES)},
        "load": load_before_start(),
        "workers": str(workers),
    }
    os.environ[_COMMAND] = json.dumps(told)
    signals.at_first(end_workers)  # before the launcher ends them, with the processes that tidy up after them


def forget() -> None:
    """In a process of a run, which is no worker."""
    os.environ.pop(_COMMAND, None)


def adopt() -> None:
    """Make a worker a process of its command; does nothing in another process."""
    command = json.loads(os.environ.get(_COMMAND, "null"))
    if command is None or command["pid"] == os.getpid():
        return
    forget()
    is_joblib = multiprocessing.get_start_method(allow_none=True) == "loky"
    if is_joblib:
        # Else every child would look for that context.
        multiprocessing.set_start_method("forkserver", force=True)
        _restore({name: command["variables"][name] for name in _THREADS})
    sys.argv = command["arguments"]  # the record names the command
    _load[:] = [command["load"]]
    if is_joblib or os.environ.get("SUBMITIT_EXECUTOR") == "local":  # not on a cluster's other machine
        if os.environ.get(_DEVICES) == "":
            _restore({_DEVICES: command["variables"][_DEVICES]})
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the command
        _end_with(command["pid"], Path(command["workers"]))


def load_before_start() -> float:
    """The machine's load average of the minute before the command; later it is our own."""
    if not _load:
        _load.append(os.getloadavg()[0])
    return _load[0]


def end_workers() -> None:
    """In the command: end its workers, and so their runs. What they leave their own processes remove."""
    if _COMMAND not in os.environ:
        return
    workers = []
    for file in (scratch.directory() / _WORKERS).iterdir():
        with suppress(psutil.Error):
            worker = psutil.Process(int(file.name))
            if os.getpid() in [parent.pid for parent in worker.parents()]:
                worker.kill()
                workers.append(worker)
    psutil.wait_procs(workers, _END_S)


def end_orphans() -> None:
    """In the command's fork server, when the command is gone: end workers that have had no job, and so know of nothing.

    One of joblib's would wait five minutes for its first.
    """
    command = os.environ.get(_COMMAND)
    for process in psutil.process_iter() if command is not None else ():
        with suppress(psutil.Error):
            if process.environ().get(_COMMAND) == command and any(
                program in argument for argument in process.cmdline() for program in _PROGRAMS
            ):
                process.kill()


def _restore(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _end_with(command: int, workers: Path) -> None:
    """End this process when the command is gone, which may have been killed."""
    try:
        watched = os.pidfd_open(command)
        (workers / str(os.getpid())).touch()
    except (ProcessLookupError, FileNotFoundError):
        watched = -1
    if watched < 0 or command not in [parent.pid for parent in psutil.Process().parents()]:
        os._exit(1)  # it is gone already

    def watch() -> None:
        wait([watched])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="command-watch", daemon=True).start()
