"""What a command has to do: the runs that it asks for, less those that its sweep has already."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from bench.cells import AskedRun, asked_runs, cells_of
from bench.config import Settings
from bench.errors import ConfigError
from bench.frontend.load import plan, unused
from bench.invocation import Invocation
from bench.job import settings_of
from bench.results.manifest import Manifest, lock
from bench.resume import NOTHING, Standing, is_sweep, standing

if TYPE_CHECKING:
    from filelock import FileLock

# What resuming relies on: directories that no earlier run has had, and a sweeper that leaves out what is done.
_OWN = (("sweep", "subdir", "run_name:"), ("sweeper", "_target_", "bench_order."))


@dataclass(frozen=True)
class Agenda:
    """The runs of one command, of which a single run is the smallest.

    Attributes:
        directory: where their records go.
        runs: all that are asked for.
        is_single: whether `directory` is the run's own.
        there: which of them are there already.
        lock: held on a directory that is there already.
    """

    directory: Path
    runs: list[AskedRun]
    is_single: bool = False
    there: Standing = NOTHING
    lock: "FileLock | None" = None

    @classmethod
    def single(cls, config: DictConfig) -> "Agenda":
        """Of a command without -m. Raises ConfigError."""
        settings = settings_of(config)
        if settings.resume is not None:
            key = f"resume={settings.resume}"
            raise ConfigError([f"{key}: finishes a sweep, and this is a single run. Add -m, or leave {key} out"])
        plan(settings)
        if problems := unused([settings]):
            raise ConfigError(problems)
        return cls(Path(config.hydra.run.dir), [AskedRun((), settings)], is_single=True)

    @classmethod
    def multiple(cls, config: DictConfig) -> "Agenda":
        """Of a command with -m.

        Raises:
            ConfigError: with the problems of all its cells, or what keeps it from going on with a sweep.
            BenchError: when another command is running that sweep.
        """
        runs = asked_runs(config)
        directory = Path(config.hydra.sweep.dir)
        if runs[0].settings.resume is None:
            if is_sweep(directory):
                raise ConfigError([f"hydra.sweep.dir={directory}: holds a sweep. Add resume={directory} to finish it"])
            return cls(directory, runs)
        _check_resumable(config)
        # Held before anything is read: the command that had it may just have measured more.
        held = lock(directory) if is_sweep(directory) else None
        return cls(directory, runs, there=standing(directory, runs), lock=held)

    @property
    def settings(self) -> Settings:
        """Of the first run: for the keys that are the same in all."""
        return self.runs[0].settings

    @cached_property
    def cells(self) -> list[Settings]:
        """The settings of each cell."""
        return cells_of(self.runs)

    @property
    def done(self) -> int:
        """How many runs are there already."""
        return self.there.done.total() + self.there.extra

    @property
    def total(self) -> int:
        """How many runs the sweep will have."""
        return len(self.runs) + self.there.extra

    @cached_property
    def left(self) -> list[AskedRun]:
        """The runs that are to be done."""
        done, left = Counter(self.there.done), []
        for run in self.runs:
            if done[run.settings.fingerprint] > 0:
                done[run.settings.fingerprint] -= 1
            else:
                left.append(run)
        return left

    @property
    def to_check(self) -> list[Settings]:
        """The cells of which a run will be done."""
        if self.there.again or (self.settings.precision.relative_ci is not None and not self.is_single):
            return self.cells  # any of them may be repeated
        return cells_of(self.left)

    @cached_property
    def manifest(self) -> Manifest:
        """What the sweep's directory is to hold, and the command."""
        return Manifest.of(Invocation.current(), [run.settings for run in self.runs])

    def missing(self, runs: list[list[str]]) -> list[list[str]]:
        """Those of a sweeper's `runs` that are to be done; of several that are alike, as many as are left."""
        there = Counter(run.overrides for run in self.runs)
        there.subtract(run.overrides for run in self.left)
        missing = []
        for run in runs:
            if there[tuple(run)] > 0:
                there[tuple(run)] -= 1
            else:
                missing.append(run)
        return missing


def _check_resumable(config: DictConfig) -> None:
    """Refuse Hydra settings of the user's own with which finished runs would be done again, or written over."""
    problems = []
    for group, key, wanted in _OWN:
        given = OmegaConf.to_container(config.hydra[group], resolve=False)
        value = given.get(key) if isinstance(given, dict) else given
        if wanted not in str(value):
            problems.append(f"hydra.{group}.{key}={value}: resume cannot work with it. Leave it out")
    if problems:
        raise ConfigError(problems)
