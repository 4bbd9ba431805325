"""What single runs left on disk: their requests' times and their telemetry."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.results.record import REQUESTS_FILE, Record
from bench.results.summary import Cell

TELEMETRY_FILE = "telemetry.csv"

Times = npt.NDArray[np.int64]  # nanoseconds
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """The measured requests of a run that were answered, at least one; times in nanoseconds."""

    record: Record
    intended: Times
    sent: Times
    completed: Times

    @property
    def start(self) -> int:
        """When the first was sent."""
        return int(self.sent.min())

    @cached_property
    def latency_s(self) -> Floats:
        """From the intended send to the answer, in seconds."""
        return (self.completed - self.intended) / 1e9

    @cached_property
    def answered_s(self) -> Floats:
        """When each was answered, in seconds from `start`."""
        return (self.completed - self.start) / 1e9


class Runs:
    """Reads the files of the runs that pictures are made of, each at most once."""

    def __init__(self) -> None:
        self.problems: list[str] = []  # a line for each file that is there and cannot be read
        self._windows: dict[Path, Window | None] = {}

    def window(self, cell: Cell) -> Window | None:
        """Of the cell's middle run by average latency, of the valid ones where there are any; None without data."""
        valid = [record for record in cell.records if record.verdict.status == "valid"]
        known = [record for record in valid or cell.records if "average_latency" in record.metrics]
        ordered = sorted(known, key=lambda record: record.metrics["average_latency"])
        return self._window(ordered[(len(ordered) - 1) // 2]) if ordered else None

    def telemetry(self, record: Record) -> dict[str, Floats]:
        """The columns of numbers in telemetry.csv, NaN where blank; empty where there is none."""
        file = record.directory / TELEMETRY_FILE
        try:
            with file.open(encoding="utf-8", newline="") as lines:
                rows = list(csv.DictReader(lines))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, csv.Error) as error:
            self.problems.append(f"{file}: {error}")
            return {}
        columns = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else {})}
        return {name: found for name, texts in columns.items() if (found := _numbers(texts)) is not None}

    def _window(self, record: Record) -> Window | None:
        file = record.directory / REQUESTS_FILE
        if file not in self._windows:
            self._windows[file] = self._read(file, record)
        return self._windows[file]

    def _read(self, file: Path, record: Record) -> Window | None:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet

        columns = ("intended_ns", "sent_ns", "completed_ns")
        try:
            table = pyarrow.parquet.read_table(file, columns=["phase", *columns])
            table = table.filter(pyarrow.compute.equal(table["phase"], "measured"))
            intended, sent, completed = (table[name].to_numpy().astype(np.int64) for name in columns)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
            self.problems.append(f"{file}: {error}")
            return None
        done = (sent > 0) & (completed > 0)
        return Window(record, intended[done], sent[done], completed[done]) if done.any() else None


def _numbers(texts: list[str | None]) -> Floats | None:
    """The texts as numbers, NaN where blank; None where one is no number or all are blank."""
    try:
        values = np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return None
    return None if np.isnan(values).all() else values
