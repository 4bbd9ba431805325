"""dry_run=true: what would run, and how much memory it would take."""

from collections.abc import Sequence
from typing import Any

from bench.config import Settings, flatten
from bench.frontend.load import plan
from bench.queues.memory import Board
from bench.results.text import markdown_table, shown


def describe(cells: Sequence[Settings], checked: Sequence[Any], total: int) -> str:
    """A table of the cells; `checked` is the preflight's `Checked` of each."""
    flat = [flatten(cell.as_mapping()) for cell in cells]
    differing = [key for key in flat[0] if any(other.get(key) != flat[0][key] for other in flat)]
    axes = [key for key in differing if key != "repeat"] or ["batch_size", "compile"]
    header = [*axes, "model", "device", "requests", "shared memory (MiB)", "model and buffers (MiB)"]
    rows = []
    for cell, values, found in zip(cells, flat, checked, strict=True):
        requests = 1 + cell.warmup_iters + plan(cell).count
        shared = Board(requests, cell.payloads, cell.payload_bytes).size
        frames = cell.buffers if found.device != "cpu" else 0
        own = found.parameter_bytes + frames * cell.payload_bytes
        rows.append(
            [
                *(shown(values.get(axis)) for axis in axes),
                cell.model.name,
                found.device,
                str(requests),
                f"{shared / 2**20:.1f}",
                f"{own / 2**20:.1f}",
            ]
        )
    return f"{total} runs of {len(cells)} cells. Memory is estimated without activations.\n\n" + markdown_table(
        header, rows
    )
