"""The task function of Hydra: one job is one run."""

import logging
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench import hydra_glue, launcher
from bench.config import Settings
from bench.errors import ConfigError, NotRecorded

logging.raiseExceptions = False  # Hydra's log of a run lies on a disk that may be full
# Here, since a launcher's worker imports this module and nothing before it.
hydra_glue.register()
launcher.adopt()


def settings_of(config: DictConfig) -> Settings:
    """The typed settings of a composed config. Raises ConfigError."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        values: Any = OmegaConf.to_container(own, resolve=True)
    except OmegaConfBaseException as error:  # an interpolation of what is not there
        raise ConfigError([f"{error.full_key}: {str(error).splitlines()[0]}"]) from error
    return Settings.from_mapping(values)


def compose(*overrides: str) -> Settings:
    """Settings as the command line would make them, for tools and tests. Raises ConfigError."""
    with hydra.initialize_config_dir(str(hydra_glue.conf_directory()), version_base="1.3"):
        return settings_of(hydra.compose("config", hydra_glue.added(overrides)))


def job(config: DictConfig) -> float | None:
    """Run once; returns the throughput, for sweepers that optimize, or None for a run that does not count."""
    from bench.callbacks import progress_of_run
    from bench.run import Job, run

    settings = settings_of(config)
    own = HydraConfig.get()
    number = hydra_glue.run_number(own.job.num) if own.mode == RunMode.MULTIRUN else None
    choices = {key: value for key, value in own.runtime.choices.items() if not key.startswith("hydra")}
    try:
        record = run(settings, Path(own.runtime.output_dir), Job(number, choices), progress_of_run())
    except NotRecorded as error:
        sys.exit(str(error))  # the sweep ends: it passes Hydra, which would go on after any other exception
    return record.metrics.get("throughput") if record.verdict.status == "valid" else None
