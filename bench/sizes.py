"""What only a forward pass tells of a cell: found by the preflight, left in the sweep's directory for its runs.

A file, since a launcher may start the runs in other processes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.results.files import read_object, write_text

SIZES_FILE = "preflight.json"


@dataclass(frozen=True)
class Sizes:
    """What the preflight found out about a cell's model.

    Attributes:
        device: where it will run.
        parameter_bytes: size of its parameters and buffers.
        output_bytes: size of one request's answer; None where it was not tried to the end.
        device_bytes: memory that was free on the device; None on the CPU.
    """

    device: str
    parameter_bytes: int
    output_bytes: int | None
    device_bytes: int | None


def write_sizes(directory: Path, sizes: Mapping[str, Sizes]) -> None:
    """Leave the sizes of cells, by their identity, beside those that an earlier command left."""
    directory.mkdir(parents=True, exist_ok=True)
    known = read_object(directory / SIZES_FILE) | {cell: asdict(found) for cell, found in sizes.items()}
    write_text(directory / SIZES_FILE, json.dumps(known, indent=1))


def read_sizes(directory: Path, cell: str) -> Sizes | None:
    """The sizes of one cell; None where no preflight has left them."""
    try:
        return Sizes(**read_object(directory / SIZES_FILE)[cell])
    except (KeyError, TypeError):
        return None
