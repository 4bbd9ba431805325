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

from bench.errors import BenchError
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
        _begin(Sweep.single(config))

    @_strict
    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """A sweep: check all its cells before the first run."""
        _begin(Sweep.multiple(config))

    @_strict
    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Show which run it is."""
        if _current is not None:
            _current.run_started(_number(config), " ".join(config.hydra.overrides.task) or "the defaults")

    @_strict
    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """Write the tables of what there is."""
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


def interrupted(code: int) -> int:
    """Write the tables of what was measured before a signal; returns `code`."""
    if _current is not None:
        _current.interrupted()
    return code


def _number(config: DictConfig) -> int:
    """Which run of the sweep it is, from 1."""
    return 1 + int(config.hydra.job.get("num") or 0) if config.hydra.mode == RunMode.MULTIRUN else 1


def _begin(sweep: Sweep) -> None:
    global _current
    _current = sweep
    sweep.begin()


def _end() -> None:
    global _current
    sweep, _current = _current, None
    if sweep is not None and (code := sweep.end()):
        sys.exit(code)
