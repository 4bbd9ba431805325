"""Hydra sweepers that leave out what a resumed sweep has already: the whole matrix in order, or in a random one.

Hydra finds plugins in the top-level package `hydra_plugins` only.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override


@dataclass
class InOrderConf:
    """What `hydra.sweeper` may hold."""

    _target_: str = "hydra_plugins.bench_order.InOrderSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default_factory=dict)


@dataclass
class RandomOrderConf(InOrderConf):
    """With hydra/sweeper=random_order."""

    _target_: str = "hydra_plugins.bench_order.RandomOrderSweeper"
    seed: int = 0


ConfigStore.instance().store(group="hydra/sweeper", name="in_order", node=InOrderConf, provider="bench")
ConfigStore.instance().store(group="hydra/sweeper", name="random_order", node=RandomOrderConf, provider="bench")


class InOrderSweeper(BasicSweeper):
    """Hydra's own, less the runs that are done: those get no job, no directory and no file."""

    def split_arguments(  # type: ignore[override]  # there a static method, called on the instance
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """All combinations that are missing, in the launcher's batches."""
        from bench.callbacks import missing  # here: Hydra imports every plugin for `--help`, too

        (runs,) = BasicSweeper.split_arguments(overrides, None)
        runs = missing(self._ordered(runs))
        return list(BasicSweeper.split_overrides_to_chunks(runs, max_batch_size)) if runs else []

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Nothing: each cell was composed before. Hydra's own composes every run once more, 50 to 80 ms each."""

    def _ordered(self, runs: list[list[str]]) -> list[list[str]]:
        return runs


class RandomOrderSweeper(InOrderSweeper):
    """The same runs shuffled: a drift of the machine then favours no cell and no repeat."""

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None = None, seed: int = 0) -> None:
        super().__init__(max_batch_size, params)
        self._seed = seed

    def _ordered(self, runs: list[list[str]]) -> list[list[str]]:
        random.Random(self._seed).shuffle(runs)
        return runs
