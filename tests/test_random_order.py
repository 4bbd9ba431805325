"""The random order has the same runs as Hydra's own, in another order that its seed decides."""

import itertools
from typing import Any

import hydra
import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from bench.hydra_glue import conf_directory

AXES = ("repeat=range(0,4)", "batch_size=1,8,32", "compile=true,false", "num_iters=10")
COUNT = 4 * 3 * 2
Batches = list[list[list[str]]]


def random_order() -> type[Any]:
    """The sweeper as Hydra finds it."""
    (found,) = (plugin for plugin in Plugins.instance().discover(Sweeper) if plugin.__name__ == "RandomOrderSweeper")
    return found


def batches(sweeper: BasicSweeper, size: int | None = None) -> Batches:
    """What a sweeper hands to its launcher."""
    return sweeper.split_arguments(OverridesParser.create().parse_overrides(list(AXES)), size)


def shuffled(seed: int = 0, size: int | None = None) -> Batches:
    return batches(random_order()(size, {}, seed), size)


def runs(found: Batches) -> list[list[str]]:
    return [run for batch in found for run in batch]


def in_order() -> list[list[str]]:
    """The runs as Hydra's own sweeper orders them."""
    return runs(batches(BasicSweeper(None)))


def test_the_same_runs_in_another_order() -> None:
    """None is lost, none is doubled, and they are not where they were."""
    ordered, random = in_order(), runs(shuffled())
    assert len(ordered) == COUNT
    assert sorted(random) == sorted(ordered)
    assert random != ordered


def test_repeats_are_shuffled_among_the_cells() -> None:
    """Not cell by cell and not repeat by repeat: a drift of the machine favours neither."""
    repeats = [run[0] for run in runs(shuffled())]
    cells = [tuple(run[1:]) for run in runs(shuffled())]
    for names in (repeats, cells):
        changes = sum(before != after for before, after in itertools.pairwise(names))
        assert changes > len(set(names))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_seed_decides_the_order(seed: int) -> None:
    """The same seed orders the same each time, another seed otherwise."""
    assert shuffled(seed) == shuffled(seed)
    assert shuffled(seed) != shuffled(seed + 1)


@pytest.mark.parametrize(("size", "lengths"), [(None, [24]), (-1, [24]), (24, [24]), (10, [10, 10, 4]), (1, [1] * 24)])
def test_batches_cut_one_random_order(size: int | None, lengths: list[int]) -> None:
    """The launcher's batches hold the whole matrix shuffled, not each its own part of it."""
    found = shuffled(size=size)
    assert [len(batch) for batch in found] == lengths
    assert runs(found) == runs(shuffled())


def test_it_is_chosen_by_its_name() -> None:
    """`hydra/sweeper=random_order` is found, keeps the default repeats, and its seed can be set."""
    with hydra.initialize_config_dir(str(conf_directory()), version_base="1.3"):
        overrides = ["hydra/sweeper=random_order", "hydra.sweeper.seed=3"]
        sweeper = hydra.compose("config", overrides, return_hydra_config=True).hydra.sweeper
    assert sweeper.params == {"repeat": "range(0,10)"}
    made = hydra.utils.instantiate(sweeper)
    assert isinstance(made, random_order())
    assert batches(made) == shuffled(3)
