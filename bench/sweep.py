"""All runs of one command: checked before the first, tabulated after each, judged after the last."""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from bench import supervisor
from bench.backend.checkpoints import Prepared, discard
from bench.config import Settings
from bench.errors import ConfigError
from bench.hydra_glue import in_words
from bench.progress import Progress

if TYPE_CHECKING:
    from bench.results.page.write import LivePage
    from bench.results.record import Record

log = logging.getLogger(__name__)

_PREFLIGHT_S = 600.0  # of silence; a download reports as it goes


class Sweep:
    """The runs of one command, of which a single run is the smallest.

    Args:
        directory: where their records go.
        cells: the settings of each cell, once whatever its repeats.
        total: how many runs there will be.
        is_single: whether `directory` is the run's own.
    """

    def __init__(self, directory: Path, cells: list[Settings], total: int, *, is_single: bool) -> None:
        self.directory = directory
        self.cells = cells
        self.total = total
        self.is_single = is_single
        first = cells[0]
        self.output_dir = Path(first.output_dir)
        self.progress = Progress(total, enabled=first.progress)
        self._prepared: list[Prepared] = []
        self._keep = first.keep_checkpoint
        self._dry_run = first.dry_run
        self._plots = first.plots
        self._started = 0.0
        self._page: LivePage | None = None

    @classmethod
    def single(cls, config: DictConfig) -> "Sweep":
        """A run without -m."""
        from bench.frontend.load import plan, unused
        from bench.job import settings_of

        settings = settings_of(config)
        plan(settings)
        if problems := unused([settings]):
            raise ConfigError(problems)
        return cls(Path(config.hydra.run.dir), [settings], 1, is_single=True)

    @classmethod
    def multiple(cls, config: DictConfig) -> "Sweep":
        """Compose every cell as the sweeper will. Raises ConfigError with the problems of all of them."""
        from bench.frontend.load import plan, unused
        from bench.job import settings_of

        overrides = _combinations(config)
        cells: dict[str, Settings] = {}
        problems: dict[str, None] = {}
        loader = GlobalHydra.instance().config_loader()
        for combination in _without_repeats(overrides):
            try:
                composed = loader.load_sweep_config(config, combination)
                settings = settings_of(composed)
                if composed.hydra.sweep.dir != config.hydra.sweep.dir:
                    problems["experiment, output_dir: name the sweep's place and cannot be swept. Set one value"] = None
                plan(settings)
                cells[settings.cell] = settings
            except ConfigError as error:
                problems.update(dict.fromkeys(error.problems))
            except (HydraException, OmegaConfBaseException) as error:
                problems[f"{' '.join(combination)}: {in_words(error)}"] = None
        problems.update(dict.fromkeys(unused(list(cells.values()))))
        if problems:
            raise ConfigError(list(problems))
        sweep = cls(Path(config.hydra.sweep.dir), list(cells.values()), len(overrides), is_single=False)
        sweep.progress.plan([" ".join(run) for run in overrides])
        return sweep

    def begin(self) -> None:
        """Check what needs torch, for all cells; with dry_run print them and end the command."""
        self.progress.checking(len(self.cells))
        problems, checked = supervisor.call(
            "preflight",
            "bench.backend.preflight:preflight",
            self.cells,
            timeout_s=_PREFLIGHT_S,
            on_message=self._report,
        )
        if problems:
            raise ConfigError(problems)
        self._prepared = [found.prepared for found in checked]
        if self._dry_run:
            from bench.dry_run import describe

            print(describe(self.cells, checked, self.total))
            sys.exit(0)
        from bench.calibration import calibrate

        calibrate(self.cells)
        if not self.is_single:
            from bench.results.page.write import LivePage

            self._page = LivePage(self.directory)

    def run_started(self, number: int, label: str) -> None:
        """Show which run begins; numbers start from 1."""
        self._started = time.monotonic()
        self.progress.run_started(number, label)

    def run_ended(self, number: int, directory: Path) -> None:
        """Show how it went, and write the tables of all runs so far."""
        from bench.results.record import RecordError, read_record
        from bench.results.tables import write_tables

        record = None
        try:
            record = read_record(directory)
            result = _result(record)
        except RecordError as error:
            result = f"LOST: {error}"
        self.progress.run_finished(number, result, time.monotonic() - self._started, record)
        if not self.is_single:
            write_tables(self.directory, expected=self.total)
        if self._page is not None:
            self._page.run_ended(self.total)

    def add_run(self) -> int:
        """One run more than was asked for; returns its number."""
        self.total += 1
        self.progress.expect(self.total)
        return self.total

    def end(self) -> int:
        """Write and print everything; the exit code is 1 when a run failed, is invalid or is missing."""
        from bench.refine import refine
        from bench.results.cumulative import write_cumulative
        from bench.results.record import read_records

        refine(self)
        self.progress.close()
        self._remove_fetched()
        self._write(interrupted=False)
        write_cumulative(self.output_dir)
        records, problems = read_records(self.directory)
        if self.is_single and records:
            _print_metrics(records[0])
        good = [record for record in records if record.verdict.status == "valid"]
        return 0 if len(good) == self.total and not problems else 1

    def interrupted(self) -> None:
        """A signal ended the sweep: write the tables of what there is."""
        from bench.results.cumulative import write_cumulative
        from bench.results.record import read_records

        self.progress.close()
        self._remove_fetched()
        if self.directory.is_dir() and read_records(self.directory)[0]:
            self._write(interrupted=True)
            write_cumulative(self.output_dir)
        print("bench: interrupted", file=sys.stderr)

    def _write(self, *, interrupted: bool) -> None:
        from bench.report import show
        from bench.results.page.write import write_page
        from bench.results.plots.write import add_pictures
        from bench.results.tables import TABLES, write_tables

        show(write_tables(self.directory, interrupted=interrupted, expected=self.total))
        if self._plots and (pictures := add_pictures(self.directory)):
            show(pictures)
        page = write_page(self.directory, "interrupted" if interrupted else "ended", self.total)
        for file in (*(self.directory / name for name in TABLES), page):
            if file is not None:
                print(file)

    def _remove_fetched(self) -> None:
        """keep_checkpoint=false: remove what this sweep fetched, and nothing else."""
        if not self._keep:
            for prepared in self._prepared:
                discard(prepared)

    def _report(self, kind: str, content: Any) -> None:
        if kind == "download" and self.cells[0].progress:
            name, done, total = content
            share = f" of {total / 2**20:.0f}" if total else ""
            end = "\n" if done == total else "\r" if sys.stderr.isatty() else ""
            if end:
                print(f"downloading {name}: {done / 2**20:.0f}{share} MiB", end=end, file=sys.stderr, flush=True)


def _combinations(config: DictConfig) -> list[list[str]]:
    """The overrides of every run, as Hydra's sweeper will make them."""
    given = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    parsed = parser.parse_overrides([*given, *config.hydra.overrides.task])
    return [list(run) for batch in BasicSweeper.split_arguments(parsed, None) for run in batch]


def _without_repeats(combinations: Sequence[Sequence[str]]) -> list[list[str]]:
    """Each distinct combination once, with the first repeat that it has."""
    distinct = {
        tuple(item for item in combination if not item.startswith("repeat=")): list(combination)
        for combination in reversed(combinations)
    }
    return list(reversed(distinct.values()))


def _result(record: "Record") -> str:
    """A run's result in a few words."""
    if record.verdict.status != "valid":
        return f"{record.verdict.status.upper()}: {record.reasons[0]}"
    metrics = record.metrics
    return f"{metrics['throughput']:.4g} samples/s, average latency {metrics['average_latency']:.4g} s"


def _print_metrics(record: "Record") -> None:
    """What a single run measured; the percentiles of its stages are in the record only."""
    from bench.results.metrics import STAGES
    from bench.results.text import significant

    print()
    for name, value in record.metrics.items():
        if not name.startswith(tuple(f"{stage}_p" for stage in (*STAGES, "service_latency"))):
            print(f"{name:<32}{significant(value, 6)}")
