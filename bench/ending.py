"""The end of a command's runs: tables, pictures and page of all there is, and the command that finishes the rest."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.agenda import Agenda
from bench.errors import BenchError
from bench.results.text import printable

if TYPE_CHECKING:
    from bench.results.record import Record


@dataclass(frozen=True)
class Ending:
    """Of the runs of `agenda`; with those of earlier commands and those that were added there should be `total`."""

    agenda: Agenda
    total: int

    def complete(self) -> int:
        """Write and print everything; the exit code is 1 when a run failed, is invalid or is missing."""
        has_room = self._write(interrupted=False)
        records = self._records()
        if self.agenda.is_single and records:
            _print_metrics(records[0])
        good = sum(record.verdict.status == "valid" for record in records)
        if good < self.total and (lacking := self._lacking(records)):
            say(lacking)
        if has_room:
            self._write_cumulative()
        return 0 if good >= self.total else 1

    def cut_short(self, how: str) -> None:
        """Write the tables of what there is, and say what finishes it. `how` it ended stands before that."""
        records = self._records()
        has_room = bool(records) and self._write(interrupted=True)
        lacking = self._lacking(records)
        if not lacking and self.agenda.settings.precision.relative_ci is not None and not self.agenda.is_single:
            command = self.agenda.manifest.invocation.finishing(self.agenda.directory, [])
            lacking = f"maybe before all means are certain. This finishes the sweep:\n    {command}"
        say(", ".join(filter(None, [how, lacking])))
        if has_room:
            try:
                self._write_cumulative()
            except BenchError as error:
                say(str(error))

    def _records(self) -> "list[Record]":
        from bench.results.records import read_records

        return read_records(self.agenda.directory)[0]

    def _lacking(self, records: "list[Record]") -> str:
        """What is missing or does not count, and the command that finishes it; a single run can lack nothing."""
        return "" if self.agenda.is_single else self.agenda.manifest.unfinished(self.agenda.directory, records)

    def _write(self, *, interrupted: bool) -> bool:
        """Write and print the summary and all that stands beside it; whether there was room for it."""
        from bench.report import show
        from bench.results.page.write import write_page
        from bench.results.plots.write import add_pictures
        from bench.results.tables import TABLES, write_tables

        directory = self.agenda.directory
        with disk_may_be_full(directory):
            show(write_tables(directory, interrupted=interrupted, expected=self.total))
            # Not after a signal, since they take seconds: `bench.report` draws them.
            if self.agenda.settings.plots and not interrupted and (pictures := add_pictures(directory)):
                show(pictures)
            page = write_page(directory, "interrupted" if interrupted else "ended", self.total)
            show("\n".join(str(file) for file in (*(directory / name for name in TABLES), page) if file is not None))
            return True
        return False

    def _write_cumulative(self) -> None:
        from bench.results.cumulative import write_cumulative

        with disk_may_be_full(self.agenda.directory):
            write_cumulative(Path(self.agenda.settings.output_dir))


@contextmanager
def disk_may_be_full(directory: Path) -> Iterator[None]:
    """Go on where the tables cannot be written: the old ones stay whole, and the records make new ones."""
    try:
        yield
    except OSError as error:
        command = f"python -m bench.report {shlex.quote(str(directory))}"
        say(f"the tables could not be written: {error}. Free some space, then: {command}")


def again(agenda: Agenda) -> str:
    """How a command that had not begun is started once more, in words."""
    settings, invocation = agenda.settings, agenda.manifest.invocation
    if settings.resume is not None:
        return f"To go on:\n    {invocation.finishing(agenda.directory, settings.retry or [])}"
    return f"To start again:\n    {invocation.again()}"


def say(words: str) -> None:
    """Tell the user, on any terminal."""
    print(printable(f"bench: {words}", sys.stderr.encoding), file=sys.stderr)


def _print_metrics(record: "Record") -> None:
    """What a single run measured; the percentiles of its stages are in the record only."""
    from bench.report import show
    from bench.results.metrics import STAGES
    from bench.results.text import significant

    left_out = tuple(f"{stage}_p" for stage in (*STAGES, "service_latency"))
    lines = [f"{name:<32}{significant(value, 6)}" for name, value in record.metrics.items()]
    show("\n".join(["", *(line for line in lines if not line.startswith(left_out))]))
