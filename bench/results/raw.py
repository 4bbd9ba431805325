"""What a run leaves beside its record: every request's stamps, and the samples of GPU and host."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.results.metrics import Stamps
from bench.results.record import REQUESTS_FILE
from bench.stamps import STAMPS

TELEMETRY_FILE = "telemetry.csv"

Sample = dict[str, float]  # `time_ns`, and the numbers that were known then


def read_stamps(directory: Path) -> Stamps:
    """The stamps of all requests, in their order: the cold first, warm-up, measured. Raises OSError, ValueError."""
    import pyarrow
    import pyarrow.parquet

    # Not read_table, which imports all that data sets of many files need, for 0.2 s.
    try:
        with pyarrow.parquet.ParquetFile(directory / REQUESTS_FILE) as file:
            table = file.read([f"{name}_ns" for name in STAMPS])
    except pyarrow.ArrowException as error:  # not all of them are ValueErrors
        raise ValueError(f"{directory / REQUESTS_FILE}: {error}") from error
    if table.num_columns != len(STAMPS):
        raise ValueError(f"{directory / REQUESTS_FILE}: has {table.num_columns} of the {len(STAMPS)} stamps")
    # Not to_numpy, which imports pandas.
    return np.stack([np.from_dlpack(column.combine_chunks()) for column in table.columns], axis=1)


def read_workers(directory: Path) -> npt.NDArray[np.int16]:
    """Which worker computed each request; -1 where none of them did, or where the file is older than that column.

    Raises OSError, ValueError.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(directory / REQUESTS_FILE) as file:
            if "worker" not in file.schema_arrow.names:
                return np.full(file.metadata.num_rows, -1, np.int16)
            (column,) = file.read(["worker"]).columns
    except pyarrow.ArrowException as error:
        raise ValueError(f"{directory / REQUESTS_FILE}: {error}") from error
    return np.asarray(np.from_dlpack(column.combine_chunks()), dtype=np.int16)


def read_telemetry(directory: Path) -> list[Sample]:
    """The samples, oldest first; none where nothing was sampled. Raises OSError, ValueError."""
    file = directory / TELEMETRY_FILE
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        try:
            samples = [dict(_numbers(row)) for row in csv.DictReader(lines)]
        except csv.Error as error:
            raise ValueError(f"{file}: {error}") from error
    return [sample for sample in samples if "time_ns" in sample]


def _numbers(row: dict[str, str]) -> Iterator[tuple[str, float]]:
    """The columns that hold a number; lists and what was unknown are left out."""
    for key, text in row.items():
        try:
            yield key, int(text) if key == "time_ns" else float(text)
        except (ValueError, TypeError):
            continue
