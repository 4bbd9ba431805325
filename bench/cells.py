"""The runs that a multirun command asks for, composed and checked as Hydra will compose them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench.config import Settings
from bench.errors import ConfigError
from bench.frontend.load import plan, unused
from bench.hydra_glue import in_words
from bench.job import settings_of

Overrides = tuple[str, ...]  # of one run, as the sweeper gives them to the launcher

_REPEAT = "repeat="
_USES_REPEAT = re.compile(r"\$\{[^}]*\brepeat\b")


@dataclass(frozen=True)
class AskedRun:
    """One run that a command asks for."""

    overrides: Overrides
    settings: Settings


def asked_runs(config: DictConfig) -> list[AskedRun]:
    """All runs of a multirun command, in the order of Hydra's own sweeper.

    Composing takes 50 ms, so it is done once a cell, unless a setting is made from `repeat`.

    Raises:
        ConfigError: with the problems of all of them.
    """
    combinations = _combinations(config)
    texts = [OmegaConf.to_yaml(config), *(item for combination in combinations for item in combination)]
    each = any(_USES_REPEAT.search(text) for text in texts)
    composed: dict[Overrides, Settings | None] = {}
    problems: dict[str, None] = {}
    runs = []
    for combination in combinations:
        key = combination if each else tuple(item for item in combination if not item.startswith(_REPEAT))
        try:
            if key not in composed:
                composed[key] = None
                composed[key] = _settings(config, combination)
            if (settings := composed[key]) is not None:
                runs.append(AskedRun(combination, _with_repeat(settings, combination)))
        except ConfigError as error:
            problems.update(dict.fromkeys(error.problems))
        except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
            problems[f"{' '.join(combination)}: {in_words(error)}"] = None
    problems.update(dict.fromkeys(unused(cells_of(runs))))
    if problems:
        raise ConfigError(list(problems))
    return runs


def cells_of(runs: Sequence[AskedRun]) -> list[Settings]:
    """The settings of each cell, with the first repeat that it has."""
    cells: dict[str, Settings] = {}
    for run in runs:
        cells.setdefault(run.settings.cell, run.settings)
    return list(cells.values())


def _combinations(config: DictConfig) -> list[Overrides]:
    given = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(config_loader=_loader())
    parsed = parser.parse_overrides([*given, *config.hydra.overrides.task])
    return [tuple(run) for batch in BasicSweeper.split_arguments(parsed, None) for run in batch]


def _settings(config: DictConfig, combination: Overrides) -> Settings:
    """The settings of one run. Raises ConfigError, or what Hydra and OmegaConf raise."""
    composed = _loader().load_sweep_config(config, list(combination))
    settings = settings_of(composed)
    if composed.hydra.sweep.dir != config.hydra.sweep.dir:
        raise ConfigError(["experiment, output_dir, resume: name the sweep's place, cannot be swept. Set one value"])
    plan(settings)
    return settings


def _with_repeat(settings: Settings, combination: Overrides) -> Settings:
    """The same with the repeat that `combination` names. Raises ConfigError for one that cannot be."""
    repeat = next((item.removeprefix(_REPEAT) for item in combination if item.startswith(_REPEAT)), None)
    if repeat is None or repeat == str(settings.repeat):
        return settings
    value = int(repeat) if re.fullmatch(r"[+-]?\d+", repeat) else repeat
    return Settings.from_mapping(settings.as_mapping() | {"repeat": value})


def _loader() -> ConfigLoader:
    return GlobalHydra.instance().config_loader()
