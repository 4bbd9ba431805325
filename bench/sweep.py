"""All runs of one command: checked before the first, tabulated after each, judged after the last."""

import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.agenda import Agenda
from bench.backend.checkpoints import Prepared, discard
from bench.config import Settings
from bench.ending import Ending, again, disk_may_be_full, say
from bench.errors import ConfigError
from bench.follower import Follower
from bench.hydra_glue import first_run
from bench.launcher import end_workers
from bench.progress import Progress
from bench.results.manifest import lock, write_manifest

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
            say(f"{self.directory}: {words}")
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
            with disk_may_be_full(self.directory):
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

        if self._follower is not None:
            self._follower.end()
        refine(self)
        self._close()
        return Ending(self.agenda, self.total).complete()

    def broken(self, how: str, why: str) -> None:
        """The sweep did not come to its end: write the tables of what there is, and say what finishes it."""
        end_workers()
        if self._follower is not None:
            self._follower.end()
        self._close()
        if why:
            say(why)
        if self._begun:
            Ending(self.agenda, self.total).cut_short(how)
        elif how == "interrupted":
            say(f"{how} before the first run. {again(self.agenda)}")

    def _close(self) -> None:
        self.progress.close()
        self._remove_fetched()

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


def _result(record: "Record") -> str:
    """A run's result in a few words."""
    if record.verdict.status != "valid":
        return f"{record.verdict.status.upper()}: {record.reasons[0]}"
    metrics = record.metrics
    return f"{metrics['throughput']:.4g} samples/s, average latency {metrics['average_latency']:.4g} s"
