"""All records of a sweep's directory. Each is read once: a sweep's tables are made of all of them again and again."""

from pathlib import Path

from bench.errors import BenchError
from bench.results.manifest import read_manifest
from bench.results.record import RECORD_FILE, Record, RecordError, read_record

_known: dict[Path, tuple[tuple[int, ...], Record]] = {}  # with what tells that the file is still the same


def read_records(sweep_dir: Path) -> tuple[list[Record], list[str]]:
    """The records in `sweep_dir` and one level below, oldest first, and a line for each unreadable one.

    A directory without `metrics.json` holds no record and no problem: its run is not over or was cut short.
    A failed or invalid run that was tried again is left out as soon as the record of the other try is there.
    """
    sweep_dir = Path(sweep_dir)
    records, problems = [], []
    for directory in (sweep_dir, *subdirectories(sweep_dir)):
        try:
            records.append(_read(directory))
        except RecordError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                problems.append(str(error))
    records.sort(key=lambda r: (r.started, str(r.directory)))
    try:
        manifest = read_manifest(sweep_dir)
    except BenchError as error:
        manifest = None
        problems.append(str(error))
    return records if manifest is None else manifest.standing(records), problems


def subdirectories(directory: Path) -> list[Path]:
    """The directories in `directory` by name; none where it is missing, unreadable or vanishes meanwhile."""
    try:
        return sorted(entry for entry in directory.iterdir() if entry.is_dir())
    except OSError:
        return []


def _read(directory: Path) -> Record:
    """The record in `directory`; the one that is known where its file has not changed. Raises RecordError."""
    try:
        status = (directory / RECORD_FILE).stat()
    except OSError:
        return read_record(directory)  # it has the words
    same = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    before, record = _known.get(directory, ((), None))
    if record is None or before != same:
        record = read_record(directory)
        _known[directory] = same, record
    return record
