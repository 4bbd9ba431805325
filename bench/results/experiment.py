"""The records of a directory that is a run, a sweep, or an experiment with all of its sweeps."""

from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.results.notes import runs
from bench.results.record import RECORD_FILE, Record
from bench.results.records import read_records, subdirectories


@dataclass(frozen=True)
class Measured:
    """What was measured, and where it lies.

    Attributes:
        sweeps: how many sweeps of an experiment the records come from; 0 for a sweep or a run itself.
        problems: a line for each record that could not be read.
    """

    directory: Path
    records: list[Record]
    sweeps: int
    problems: list[str]

    def __str__(self) -> str:
        count = runs(len(self.records))
        if not self.sweeps:
            return f"{self.directory} ({count})"
        sweeps = "1 sweep" if self.sweeps == 1 else f"{self.sweeps} sweeps pooled"
        return f"{self.directory} (experiment: {sweeps}, {count})"


def read_experiment(directory: Path) -> Measured:
    """The records in and below `directory`, oldest first.

    The sweeps of an experiment are pooled: repeats of one cell in several of them are that many more repeats.

    Raises:
        BenchError: where there is none.
    """
    records, problems = read_records(directory)
    sweeps = 0
    for below in subdirectories(directory):
        if (below / RECORD_FILE).exists():  # a run of a sweep, or a single run of an experiment
            continue
        found, unread = read_records(below)
        records += found
        problems += [problem for problem in unread if problem not in problems]
        sweeps += bool(found)
    if not records:
        advice = "Give the directory of a run, a sweep or an experiment"
        raise BenchError("\n".join([f"{directory}: no records there or up to two levels below. {advice}", *problems]))
    records.sort(key=lambda record: (record.started, str(record.directory)))
    return Measured(directory, records, sweeps, problems)
