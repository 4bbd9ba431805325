"""precision.relative_ci: a sweep goes on, in its own directory, until every cell's mean is certain enough."""

import dataclasses
import time
from typing import TYPE_CHECKING

from bench.config import Settings
from bench.hydra_glue import run_name
from bench.results.precision import widest
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.summary import summarize
from bench.resume import next_number
from bench.run import Job, run

if TYPE_CHECKING:
    from bench.sweep import Sweep


def refine(sweep: "Sweep") -> None:
    """Repeat the cell whose interval is widest, until all are within or the budget is spent."""
    wanted = sweep.cells[0].precision
    settings = {cell.cell: cell for cell in sweep.cells}
    for record in sweep.agenda.there.again:
        _repeat(sweep, dataclasses.replace(settings[record.cell], repeat=record.settings["repeat"]), record)
    if sweep.is_single or wanted.relative_ci is None:
        return
    deadline = None if wanted.max_minutes is None else time.monotonic() + 60 * wanted.max_minutes
    while deadline is None or time.monotonic() < deadline:
        records, _ = read_records(sweep.directory)
        cell = widest(summarize(records), wanted)
        if cell is None:
            break
        repeat = 1 + max(record.settings["repeat"] for record in cell.records)
        one = cell.records[0]
        words = " ".join(f"{axis}={value}" for axis, value in cell.axes.items())
        _repeat(sweep, dataclasses.replace(settings[one.cell], repeat=repeat), one, words)


def _repeat(sweep: "Sweep", settings: Settings, like: Record, words: str = "") -> None:
    """Run once more, in a directory of its own, with the groups chosen as in `like`."""
    number, place = sweep.add_run(), next_number(sweep.directory)
    directory = sweep.directory / run_name(place)
    directory.mkdir()
    sweep.run_started(number, f"repeat={settings.repeat} {words}".rstrip())
    run(settings, directory, Job(place, like.choices), sweep.progress.update)
    sweep.run_ended(number, directory)
