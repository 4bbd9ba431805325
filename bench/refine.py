"""precision.relative_ci: a sweep goes on, in its own directory, until every cell's mean is certain enough."""

import dataclasses
import time
from typing import TYPE_CHECKING

from bench.hydra_glue import run_name
from bench.results.precision import widest
from bench.results.record import read_records
from bench.results.summary import summarize
from bench.resume import next_number
from bench.run import Job, run

if TYPE_CHECKING:
    from bench.sweep import Sweep


def refine(sweep: "Sweep") -> None:
    """Repeat the cell whose interval is widest, until all are within or the budget is spent."""
    wanted = sweep.cells[0].precision
    if sweep.is_single or wanted.relative_ci is None:
        return
    deadline = None if wanted.max_minutes is None else time.monotonic() + 60 * wanted.max_minutes
    settings = {cell.cell: cell for cell in sweep.cells}
    while deadline is None or time.monotonic() < deadline:
        records, _ = read_records(sweep.directory)
        cell = widest(summarize(records), wanted)
        if cell is None:
            break
        repeat = 1 + max(record.settings["repeat"] for record in cell.records)
        again = dataclasses.replace(settings[cell.records[0].cell], repeat=repeat)
        number, place = sweep.add_run(), next_number(sweep.directory)
        directory = sweep.directory / run_name(place)
        directory.mkdir()
        axes = " ".join(f"{axis}={value}" for axis, value in cell.axes.items())
        sweep.run_started(number, f"repeat={repeat} {axes}")
        run(again, directory, Job(place, cell.records[0].choices), sweep.progress.update)
        sweep.run_ended(number, directory)
