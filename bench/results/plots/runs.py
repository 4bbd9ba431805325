"""What single runs left on disk, as the pictures need it: their measured requests and their telemetry."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.results.metrics import Stamps, answered
from bench.results.raw import TELEMETRY_FILE, read_stamps, read_telemetry
from bench.results.record import REQUESTS_FILE, Record
from bench.results.summary import Cell
from bench.stamps import COMPLETED, INTENDED, SENT

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """The measured requests of a run that were answered, at least one. Times are seconds from the first send."""

    record: Record
    stamps: Stamps

    @property
    def start_ns(self) -> int:
        """When the first was sent."""
        return int(self.stamps[:, SENT].min())

    @cached_property
    def latency_s(self) -> Floats:
        """From the intended send to the answer."""
        return (self.stamps[:, COMPLETED] - self.stamps[:, INTENDED]) / 1e9

    @property
    def median_s(self) -> float:
        """Of the latencies."""
        return float(np.median(self.latency_s))

    @cached_property
    def intended_s(self) -> Floats:
        """When each was to be sent."""
        return (self.stamps[:, INTENDED] - self.start_ns) / 1e9

    @cached_property
    def answered_s(self) -> Floats:
        """When each was answered."""
        return (self.stamps[:, COMPLETED] - self.start_ns) / 1e9


class Runs:
    """Reads the files of the runs that pictures are made of, each at most once."""

    def __init__(self) -> None:
        self.problems: list[str] = []  # a line for each file that is there and cannot be read
        self._windows: dict[Path, Window | None] = {}

    def window(self, cell: Cell) -> Window | None:
        """Of the cell's middle run by average latency, of the valid ones where there are any; None without data."""
        known = [record for record in cell.valid or cell.records if "average_latency" in record.metrics]
        ordered = sorted(known, key=lambda record: record.metrics["average_latency"])
        return self._window(ordered[(len(ordered) - 1) // 2]) if ordered else None

    def telemetry(self, window: Window) -> dict[str, Floats]:
        """The columns of the run's telemetry, NaN where unknown, and `time_s`; empty where there is none."""
        directory = window.record.directory
        try:
            samples = read_telemetry(directory)
        except (OSError, ValueError, KeyError, csv.Error) as error:
            self.problems.append(f"{directory / TELEMETRY_FILE}: {error}")
            return {}
        names = dict.fromkeys(name for sample in samples for name in sample)
        columns = {name: np.array([sample.get(name, np.nan) for sample in samples]) for name in names}
        if "time_ns" not in columns:
            return {}
        return columns | {"time_s": (columns["time_ns"] - window.start_ns) / 1e9}

    def _window(self, record: Record) -> Window | None:
        if record.directory not in self._windows:
            self._windows[record.directory] = self._read(record)
        return self._windows[record.directory]

    def _read(self, record: Record) -> Window | None:
        try:
            stamps = read_stamps(record.directory)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:  # pyarrow's own are of these
            self.problems.append(f"{record.directory / REQUESTS_FILE}: {error}")
            return None
        measured = answered(stamps[1 + record.settings.get("warmup_iters", 0) :])
        return Window(record, measured) if len(measured) else None
