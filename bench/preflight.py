"""All that stands against a sweep, before its first run: each problem once, with the cells that have it."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bench import supervisor
from bench.cell_names import CellNames
from bench.config import Settings
from bench.device_claim import DeviceBusy, claimed, identify
from bench.errors import BenchError, RunFailed
from bench.frontend.load import plan
from bench.limits import grouped, needs, shortages
from bench.room import room, unwritable
from bench.setup import Checked

_SILENCE_S = 600.0  # of the process that tries the models; a download reports as it goes


def preflight(
    cells: Sequence[Settings], runs: int, directory: Path, on_message: Callable[[str, Any], None]
) -> tuple[dict[str, Checked], list[str]]:
    """What was found out about each cell without a fault of its own, by its identity, and a line a problem.

    Args:
        runs: how many there will be of all cells together.
        directory: where their records will go.
        on_message: hears what the process says that fetches and tries the models.

    Raises:
        DeviceBusy: when other commands had a device for longer than `device_wait_s`.
    """
    with ExitStack() as stack:
        problems = _claim(stack, cells, directory)
        faults, checked = _ask(cells, on_message)
    names = CellNames(cells)
    problems += [
        names.problem(text + _without_compiler(text, cells, chosen), chosen) for text, chosen in faults.items()
    ]
    if (fault := unwritable(directory)) is not None:
        place = f"output_dir={cells[0].output_dir}: {directory}"
        return checked, [*problems, f"{place} cannot be written ({fault}). Set output_dir to another directory"]
    return checked, problems + _shortages(cells, runs, directory, checked)


def _claim(stack: ExitStack, cells: Sequence[Settings], directory: Path) -> list[str]:
    """Hold the cells' devices until `stack` is left, since trying a model disturbs whoever measures there."""
    devices: dict[str, Settings] = {}
    for device in dict.fromkeys(cell.device for cell in cells):
        with suppress(RunFailed):  # there is no such device: who tries the models says so, and for which cells
            devices[identify(device)] = next(cell for cell in cells if cell.device == device)
    for _, cell in sorted(devices.items()):  # in the same order in all commands, so that no two wait for each other
        try:
            stack.enter_context(claimed(cell, directory))
        except DeviceBusy:
            raise
        except BenchError as error:
            return [str(error)]
    return []


def _ask(
    cells: Sequence[Settings], on_message: Callable[[str, Any], None]
) -> tuple[dict[str, list[str]], dict[str, Checked]]:
    """What a process with torch finds: faults with the cells that have them, and what it found of the others."""
    trying: list[str] = []

    def heard(kind: str, content: Any) -> None:
        on_message(kind, content)
        if kind == "trying":
            trying.append(content)

    body = "bench.backend.preflight:preflight"
    try:
        found: tuple[dict[str, list[str]], dict[str, Checked]] = supervisor.call(
            "preflight", body, list(cells), timeout_s=_SILENCE_S, on_message=heard
        )
    except RunFailed as failure:
        what = f" while it tried model {trying[-1]}" if trying else ""
        raise BenchError(f"{failure}{what}\n{failure.traceback}".strip()) from failure
    return found


def _shortages(cells: Sequence[Settings], runs: int, directory: Path, checked: Mapping[str, Checked]) -> list[str]:
    """What there is too little of."""
    names, found = CellNames(cells), {}
    for cell in cells:
        requests = 1 + cell.warmup_iters + plan(cell).count
        sizes = checked[cell.cell].sizes if cell.cell in checked else None
        repeats = max(1, runs // len(cells))
        found[cell.cell] = shortages(needs(cell, requests, sizes), room(cell, directory), sizes, runs=repeats)
    everything = f"each of {len(cells)} cells" if len(cells) > 1 else f"batch_size={cells[0].batch_size}"
    return [f"{names.name(chosen) or everything}: {text}" for text, chosen in grouped(found)]


def _without_compiler(text: str, cells: Sequence[Settings], chosen: Sequence[str]) -> str:
    """The command that runs the cells which need none, where there are any."""
    if not text.startswith("compile=true") or len(chosen) == len(cells):
        return ""
    kept = [argument for argument in sys.argv[1:] if argument.lstrip("+").partition("=")[0] != "compile"]
    start = "python -m bench" if os.path.basename(sys.argv[0]) == "__main__.py" else sys.argv[0]
    return f": {start} {shlex.join([*kept, 'compile=false'])}"
