"""`python -m bench.report DIR [DIR…]`: tables, page, pictures and timelines of sweeps and runs, from records."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.results.manifest import Manifest, is_running, read_manifest
from bench.results.page.data import State
from bench.results.page.write import write_page
from bench.results.plots.write import add_pictures, list_pictures
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.tables import TABLES, write_tables
from bench.results.text import printable
from bench.results.timeline import write_timeline


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print the tables of each directory; 2 if one of them has no records."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="Write tables again from records.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="of a sweep or of a single run")
    parser.add_argument("--no-plots", action="store_true", help="leave the pictures as they are")
    given = parser.parse_args(arguments)
    status = 0
    for directory in given.directories:
        try:
            show(report(directory, plots=not given.no_plots))
        except (BenchError, OSError) as error:
            print(printable(f"bench.report: {error}", sys.stderr.encoding), file=sys.stderr)
            status = 2
    return status


def report(directory: Path, *, plots: bool = True) -> str:
    """Write tables, pictures and page of `directory` and its runs' timelines.

    Returns the summary and where the files are.

    Raises:
        BenchError: when it does not exist or holds no record that can be read.
    """
    if not directory.is_dir():
        raise BenchError(f"{directory}: no such directory. Give the directory of a sweep or of a single run")
    records, problems = read_records(directory)
    if not records:
        raise BenchError("\n".join([f"{directory}: no records there or one level below", *problems]))
    for record in records:
        try:
            write_timeline(record.directory)
        except BenchError as error:
            problems.append(str(error))
    manifest = _manifest(directory)
    total = None if manifest is None else len(records) + manifest.missing(records).total()
    state = _state(directory, manifest, records)
    parts = [
        write_tables(directory, interrupted=state == "interrupted", expected=total),
        add_pictures(directory) if plots else list_pictures(directory),
    ]
    files = [directory / name for name in TABLES]
    if page := write_page(directory, state, total):
        files.append(page)
    parts.append("".join(f"{line}\n" for line in (*files, *problems)))
    if manifest is not None:
        parts.append(_lacking(directory, manifest, records, state))
    if state == "running" and not is_running(directory):
        return report(directory, plots=plots)  # it ended meanwhile: a page that says otherwise would wait for ever
    return "\n".join(filter(None, parts))


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except BenchError:  # it is among the problems of the tables
        return None


def _state(directory: Path, manifest: Manifest | None, records: Sequence[Record]) -> State:
    """Whether a command is at it, or left runs out; what has no manifest is a single run, or not known to lack one."""
    if manifest is None:
        return "ended"
    if is_running(directory):
        return "running"
    return "interrupted" if manifest.missing(records) else "ended"


def _lacking(directory: Path, manifest: Manifest, records: Sequence[Record], state: State) -> str:
    """What finishes an incomplete sweep, in words."""
    if state == "running":
        return "The sweep is still running.\n"
    lacking = manifest.unfinished(directory, records, here=os.getcwd())
    return f"{lacking[0].upper()}{lacking[1:]}\n" if lacking else ""


def show(text: str) -> None:
    """Print `text` on any terminal; where nobody reads any more (`| head`) nothing more is printed."""
    try:
        print(printable(text, sys.stdout.encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
