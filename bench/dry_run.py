"""dry_run=true: what would run, and what it takes."""

from collections.abc import Mapping, Sequence

from bench.cell_names import CellNames
from bench.config import Settings
from bench.frontend.load import plan
from bench.limits import needs
from bench.results.text import markdown_table
from bench.sizes import Sizes


def describe(cells: Sequence[Settings], sizes: Mapping[str, Sizes], total: int) -> str:
    """A table of the cells with what each run takes at least."""
    names = CellNames(cells)
    model = ["model"] * ("model" not in names.axes)
    header = [*names.axes, *model, "runs on", "requests"]
    header += [f"{what} (MiB)" for what in ("memory", "shared memory", "/dev/shm", "device memory", "disk")]
    rows = []
    for cell in cells:
        requests, found = 1 + cell.warmup_iters + plan(cell).count, sizes[cell.cell]
        need = needs(cell, requests, found)
        amounts = (need.memory, need.shared, need.shm, need.device, need.output)
        rows.append(
            [
                *names.values(cell.cell).values(),
                *[cell.model.name] * len(model),
                found.device,
                str(requests),
                *(f"{amount / 2**20:.1f}" for amount in amounts),
            ]
        )
    return (
        f"{total} runs of {len(cells)} cells. What a run takes at least: activations and the compiler are left out.\n\n"
        + markdown_table(header, rows)
    )
