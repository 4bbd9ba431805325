"""All runs of one command: checked before the first, tabulated after each, judged after the last."""

import logging
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.agenda import Agenda
from bench.backend.checkpoints import Prepared, discard
from bench.config import Settings
from bench.errors import BenchError, ConfigError
from bench.follower import Follower
from bench.hydra_glue import first_run
from bench.launcher import end_workers
from bench.progress import Progress
from bench.results.manifest import lock, write_manifest
from bench.results.text import printable

if TYPE_CHECKING:
    from bench.results.page.write import LivePage
    from bench.results.record import Record
    from bench.sizes import Sizes

log = logging.getLogger(__name__)

_TABLES_SHARE = 0.1  # of a sweep's time, which its tables may take while it runs: those of hundreds of runs take long


class Sweep:
    """Does what an agenda holds."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.directory = agenda.directory
        self.cells = agenda.cells
        self.is_single = agenda.is_single
        self.total = agenda.total
        self.output_dir = Path(agenda.settings.output_dir)
        self.progress = Progress(self.total, enabled=agenda.settings.progress, done_before=agenda.done)
        if not self.is_single:
            self.progress.plan([" ".join(run.overrides) for run in agenda.left])
        self._prepared: list[Prepared] = []
        self._started = 0.0
        self._tables_due = 0.0
        self._lock = agenda.lock
        self._begun = False
        self._page: LivePage | None = None
        self._follower: Follower | None = None

    def begin(self) -> None:
        """Find every problem of every cell before the first run; with dry_run print the cells and end the command.

        Raises:
            ConfigError: with a line a problem, which names the cells that have it.
        """
        from bench.sizes import write_sizes

        cells, again = self.agenda.to_check, len(self.agenda.there.again)
        left = len(self.agenda.left) + again
        sizes = self._preflight(cells, left) if cells else {}
        if self.agenda.settings.dry_run:
            if not cells:
                print(f"{self.directory}: no run is missing")
            sys.exit(0)
        from bench.calibration import calibrate

        calibrate(cells)
        if not self.is_single:
            from bench.results.page.write import LivePage

            self._claim()
            self._page = LivePage(self.directory)
        write_sizes(self.directory, sizes)
        if self.agenda.settings.resume is not None:
            first_run(self.agenda.there.next_number)
            words = f"{left} of {self.total + again} runs are left to do" if left else "no run is missing"
            _say(f"{self.directory}: {words}")
        self._begun = True

    def follow(self) -> None:
        """Show how runs went that a launcher's workers do."""
        self._follower = Follower(self.directory, self._run_followed)

    def run_started(self, number: int, label: str) -> None:
        """Show which run of this command begins; numbers start from 1."""
        if self._follower is not None:
            self._follower.end()  # the launcher runs its jobs here
        self._started = time.monotonic()
        self.progress.run_started(self.agenda.done + number, label)

    def run_ended(self, number: int, directory: Path) -> None:
        """Show how it went, and write the tables of all runs so far, if it is time."""
        from bench.results.record import RecordError, read_record

        record = None
        try:
            record = read_record(directory)
            result = _result(record)
        except RecordError as error:
            result = f"LOST: {error}"
        seconds = time.monotonic() - self._started
        self.progress.run_finished(self.agenda.done + number, result, seconds, record)
        if not self.is_single:
            with self._disk_may_be_full():
                self._write_so_far()

    def _write_so_far(self) -> None:
        from bench.results.tables import write_tables

        began = time.monotonic()
        if began >= self._tables_due:
            write_tables(self.directory, expected=self.total)
            ended = time.monotonic()
            self._tables_due = ended + (ended - began) / _TABLES_SHARE
        if self._page is not None:
            self._page.run_ended(self.total)

    def _run_followed(self, directory: Path) -> None:
        """Show how a run went that took place in another process."""
        from bench.results.record import read_record

        record = read_record(directory)
        asked = (" ".join(run.overrides) for run in self.agenda.runs if run.settings.fingerprint == record.fingerprint)
        number, seconds = 1 + (record.job or 0), record.environment["wall_s"]
        self.progress.run_followed(number, next(asked, directory.name), _result(record), seconds)

    def add_run(self) -> int:
        """One run more than was asked for; returns its number within this command."""
        self.total += 1
        self.progress.expect(self.total)
        return self.total - self.agenda.done

    def end(self) -> int:
        """Write and print everything; the exit code is 1 when a run failed, is invalid or is missing."""
        from bench.refine import refine
        from bench.results.cumulative import write_cumulative
        from bench.results.records import read_records

        if self._follower is not None:
            self._follower.end()
        refine(self)
        self.progress.close()
        self._remove_fetched()
        with self._disk_may_be_full():
            self._write(interrupted=False)
        records, _ = read_records(self.directory)
        if self.is_single and records:
            _print_metrics(records[0])
        good = sum(record.verdict.status == "valid" for record in records)
        if good < self.total:
            self._tell_how_to_finish("")
        with self._disk_may_be_full():
            write_cumulative(self.output_dir)
        return 0 if good >= self.total else 1

    def broken(self, how: str) -> None:
        """The sweep did not come to its end: write the tables of what there is, and say what finishes it."""
        from bench.results.cumulative import write_cumulative
        from bench.results.records import read_records

        end_workers()
        if self._follower is not None:
            self._follower.end()
        self.progress.close()
        self._remove_fetched()
        if not self._begun:
            if how == "interrupted":
                _say(f"{how} before the first run. {self._again()}")
            return
        try:
            measured = self.directory.is_dir() and bool(read_records(self.directory)[0])
            if measured:
                self._write(interrupted=True)
            self._tell_how_to_finish(how)
            if measured:
                write_cumulative(self.output_dir)
        except (BenchError, OSError) as error:
            _say(str(error))

    def _preflight(self, cells: list[Settings], left: int) -> "dict[str, Sizes]":
        """What was found out of each cell. Raises ConfigError."""
        from bench.preflight import preflight

        self.progress.checking(len(cells))
        checked, problems = preflight(cells, left, self.directory, self._report)
        self._prepared = [found.prepared for found in checked.values()]
        sizes = {cell: found.sizes for cell, found in checked.items()}
        if self.agenda.settings.dry_run and len(sizes) == len(cells):
            from bench.dry_run import describe

            print(describe(cells, sizes, left))
        if problems:
            raise ConfigError(problems)
        return sizes

    def _claim(self) -> None:
        """Take the sweep's directory, and write down what belongs in it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock or lock(self.directory)
        write_manifest(self.directory, self.agenda.manifest)

    def _tell_how_to_finish(self, how: str) -> None:
        from bench.results.records import read_records

        lacking = ""
        if not self.is_single:
            manifest, (records, _) = self.agenda.manifest, read_records(self.directory)
            lacking = manifest.unfinished(self.directory, records)
            if how and not lacking and self.agenda.settings.precision.relative_ci is not None:
                command = manifest.invocation.finishing(self.directory, [])
                lacking = f"maybe before all means are certain. This finishes the sweep:\n    {command}"
        words = ", ".join(filter(None, [how, lacking]))
        if words:
            _say(words)

    def _again(self) -> str:
        settings, invocation = self.agenda.settings, self.agenda.manifest.invocation
        if settings.resume is not None:
            return f"To go on:\n    {invocation.finishing(self.directory, settings.retry or [])}"
        return f"To start again:\n    {invocation.again()}"

    @contextmanager
    def _disk_may_be_full(self) -> Iterator[None]:
        """Go on where the tables cannot be written: the old ones stay whole, and the records make new ones."""
        try:
            yield
        except OSError as error:
            command = f"python -m bench.report {shlex.quote(str(self.directory))}"
            _say(f"the tables could not be written: {error}. Free some space, then: {command}")

    def _write(self, *, interrupted: bool) -> None:
        from bench.report import show
        from bench.results.page.write import write_page
        from bench.results.plots.write import add_pictures
        from bench.results.tables import TABLES, write_tables

        show(write_tables(self.directory, interrupted=interrupted, expected=self.total))
        # Not after a signal, since they take seconds: `bench.report` draws them.
        if self.agenda.settings.plots and not interrupted and (pictures := add_pictures(self.directory)):
            show(pictures)
        page = write_page(self.directory, "interrupted" if interrupted else "ended", self.total)
        for file in (*(self.directory / name for name in TABLES), page):
            if file is not None:
                print(file)

    def _remove_fetched(self) -> None:
        """keep_checkpoint=false: remove what this sweep fetched, and nothing else."""
        if not self.agenda.settings.keep_checkpoint:
            for prepared in self._prepared:
                discard(prepared)

    def _report(self, kind: str, content: Any) -> None:
        if kind == "download" and self.cells[0].progress:
            name, done, total = content
            share = f" of {total / 2**20:.0f}" if total else ""
            end = "\n" if done == total else "\r" if sys.stderr.isatty() else ""
            if end:
                print(f"downloading {name}: {done / 2**20:.0f}{share} MiB", end=end, file=sys.stderr, flush=True)


def _say(words: str) -> None:
    print(printable(f"bench: {words}", sys.stderr.encoding), file=sys.stderr)


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
