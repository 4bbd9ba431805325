"""dry_run=true: what would run, and how much memory it would take."""

from collections.abc import Sequence
from typing import Any

from bench.config import Settings, flatten
from bench.frontend.load import plan
from bench.queues.memory import Board
from bench.results.summary import varying
from bench.results.text import markdown_table, shown


def describe(cells: Sequence[Settings], checked: Sequence[Any], total: int) -> str:
    """A table of the cells; `checked` is the preflight's `Checked` of each."""
    flat = [flatten(cell.as_mapping()) for cell in cells]
    axes = varying(flat)
    model = ["model"] * ("model" not in axes)
    header = [*axes, *model, "runs on", "requests", "shared memory (MiB)", "model and buffers (MiB)"]
    rows = []
    for cell, values, found in zip(cells, flat, checked, strict=True):
        requests = 1 + cell.warmup_iters + plan(cell).count
        shared = Board(requests, cell.payloads, cell.payload_bytes).size
        frames = cell.buffers if found.device != "cpu" else 0
        own = found.parameter_bytes + frames * cell.payload_bytes
        rows.append(
            [
                *(shown(values.get(key)) for key in axes.values()),
                *[cell.model.name] * len(model),
                found.device,
                str(requests),
                f"{shared / 2**20:.1f}",
                f"{own / 2**20:.1f}",
            ]
        )
    return f"{total} runs of {len(cells)} cells. Memory is estimated without activations.\n\n" + markdown_table(
        header, rows
    )
