"""A Hydra sweeper that runs the whole matrix in a seeded random order: `hydra/sweeper=random_order`.

Hydra finds plugins in the top-level package `hydra_plugins` only.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override


@dataclass
class RandomOrderConf:
    """What `hydra.sweeper` may hold."""

    _target_: str = "hydra_plugins.bench_order.RandomOrderSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default_factory=dict)
    seed: int = 0


ConfigStore.instance().store(group="hydra/sweeper", name="random_order", node=RandomOrderConf, provider="bench")


class RandomOrderSweeper(BasicSweeper):
    """The same runs as Hydra's own sweeper, shuffled: a drift of the machine then favours no cell and no repeat."""

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None = None, seed: int = 0) -> None:
        super().__init__(max_batch_size, params)
        self._seed = seed

    def split_arguments(  # type: ignore[override]  # there a static method, called on the instance
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """All combinations in random order, in the launcher's batches."""
        (runs,) = BasicSweeper.split_arguments(overrides, None)
        random.Random(self._seed).shuffle(runs)
        chunks: Any = BasicSweeper.split_overrides_to_chunks(runs, max_batch_size)
        return list(chunks)
