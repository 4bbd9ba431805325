"""The Hydra callback: what happens around the runs. The work itself is in `sweep` and in `results`."""

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from bench import launcher, signals
from bench.agenda import Agenda
from bench.errors import BenchError, NotRecorded
from bench.sweep import Sweep

if TYPE_CHECKING:
    from bench.measure import Progress

_Hook = TypeVar("_Hook", bound=Callable[..., None])
_current: Sweep | None = None  # of this process; a launcher's workers have none


def _strict(hook: _Hook) -> _Hook:
    """Hydra makes a warning of a callback's exception and exits with 0; here it ends the command."""

    @functools.wraps(hook)
    def strict(*arguments: Any, **keywords: Any) -> None:
        try:
            hook(*arguments, **keywords)
        except NotRecorded as error:
            sys.exit(str(error))
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            sys.exit(2)
        except Exception:  # noqa: BLE001 - whatever it is, it must not pass as success
            traceback.print_exc()
            sys.exit(1)

    return strict  # type: ignore[return-value]  # functools.wraps keeps the signature


class BenchCallback(Callback):
    """Checks before the first run, tables after each, the exit code after the last."""

    @_strict
    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """A single run: check it, with what needs torch."""
        _begin(Agenda.single(config))

    @_strict
    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """A sweep: check all its cells before the first run."""
        if launcher.has_workers(config):
            launcher.announce()
        _begin(Agenda.multiple(config))
        if launcher.has_workers(config) and _current is not None:
            _current.follow()

    @_strict
    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Show which run it is."""
        signals.check()
        if _current is not None:
            _current.run_started(_number(config), " ".join(config.hydra.overrides.task) or "the defaults")

    @_strict
    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """Write the tables of what there is."""
        # The launcher keeps what every job returned until the last: the configs in it would take 1 MiB a run.
        job_return.cfg = job_return.hydra_cfg = None
        if job_return.status == JobStatus.FAILED:
            traceback.print_exception(job_return._return_value)  # its public form raises it
        if _current is not None:
            _current.run_ended(_number(config), Path(config.hydra.runtime.output_dir))

    @_strict
    def on_run_end(self, config: DictConfig, **_: Any) -> None:  # noqa: ARG002 - Hydra's signature
        """Print the metrics of the single run."""
        _end()

    @_strict
    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:  # noqa: ARG002 - Hydra's signature
        """Print the summary."""
        _end()


def progress_of_run() -> "Progress":
    """How a run tells its progress: to the sweep of this process, or to nobody."""
    from bench.measure import no_progress

    return no_progress if _current is None else _current.progress.update


def missing(runs: list[list[str]]) -> list[list[str]]:
    """Those of a sweeper's `runs` that this process's sweep has no record of."""
    return runs if _current is None else _current.agenda.missing(runs)


def broken(how: str, why: str) -> None:
    """Where the sweep of this process did not come to its end: its tables, and what finishes it."""
    if _current is not None:
        _current.broken(how, why)
    elif how == "interrupted":
        print("bench: interrupted", file=sys.stderr)


def _number(config: DictConfig) -> int:
    """Which run of this command it is, from 1."""
    return 1 + int(config.hydra.job.get("num") or 0) if config.hydra.mode == RunMode.MULTIRUN else 1


def _begin(agenda: Agenda) -> None:
    global _current
    _current = Sweep(agenda)
    _current.begin()


def _end() -> None:
    global _current
    code = 0 if _current is None else _current.end()
    _current = None  # not before: a signal may come meanwhile
    if code:
        sys.exit(code)
