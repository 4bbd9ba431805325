"""What single runs left on disk, as pictures and page need it: their measured requests and their telemetry."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.config import OPEN_LOADS
from bench.results.metrics import Stamps, answered
from bench.results.raw import TELEMETRY_FILE, read_stamps, read_telemetry
from bench.results.record import REQUESTS_FILE, Record
from bench.results.summary import Cell
from bench.stamps import COMPLETED, INTENDED, SENT

_IN_A_PART = 10  # requests, on average

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

    @property
    def is_open(self) -> bool:
        """Whether the load asks for a rate, whatever becomes of the requests before."""
        return self.record.settings["load"]["name"] in OPEN_LOADS

    def edges(self, most: int) -> Floats:
        """Of at most so many equal parts of the time to the last answer, of ten requests or more on average."""
        parts = max(1, min(most, len(self.latency_s) // _IN_A_PART))
        return np.linspace(0, float(self.answered_s.max()), 1 + parts)

    def rate(self, times_s: Floats, edges: Floats) -> Floats:
        """Samples/s between each two edges."""
        counts, _ = np.histogram(times_s, edges)
        rates: Floats = counts * self.record.settings["batch_size"] / np.diff(edges)
        return rates


def middle_run(cell: Cell) -> Record | None:
    """The cell's run with the middle average latency, of the valid ones where there are any."""
    known = [record for record in cell.valid or cell.records if "average_latency" in record.metrics]
    ordered = sorted(known, key=lambda record: record.metrics["average_latency"])
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def shape(count: int, most: int) -> npt.NDArray[np.int64]:
    """Places of the values, of so many in order, that shape a distribution: `most`, and as many again for its tail."""
    if count <= 2 * most:
        return np.arange(count)
    tail = count - np.geomspace(1, count, most)
    return np.unique(np.concatenate([np.linspace(0, count - 1, most), tail]).astype(np.int64))


class Runs:
    """Reads the files of the runs that pictures are made of, each at most once."""

    def __init__(self) -> None:
        self.problems: list[str] = []  # a line for each file that is there and cannot be read
        self._windows: dict[Path, Window | None] = {}

    def window(self, cell: Cell) -> Window | None:
        """Of the cell's middle run; None without data."""
        record = middle_run(cell)
        return None if record is None else self.of(record)

    def of(self, record: Record) -> Window | None:
        """Of this run; None without data."""
        if record.directory not in self._windows:
            self._windows[record.directory] = self._read(record)
        return self._windows[record.directory]

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
