"""Send times that a file lists, for load=replay."""

from array import array
from pathlib import Path

import numpy as np

from bench.errors import ConfigError
from bench.frontend.schedules import LONGEST_S, MOST, Offsets, cut, started

_WANTED = "Write one offset a line, in seconds from the start, in order, under a heading or none"


def replay(path: str | Path, *, num_iters: int | None = None, duration_s: float | None = None) -> Offsets:
    """The offsets that a CSV file lists in seconds: one column, sorted, with or without a heading."""
    offsets = array("q")
    try:
        with open(path, encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                text = line.strip().strip('"')
                if text and not (number == 1 and _is_heading(text)):
                    offsets.append(_offset(text, offsets[-1] if offsets else 0, f"load.file={path}: line {number}"))
    except OSError as error:
        raise ConfigError([f"load.file={path}: {error.strerror or error}. Set load.file to a CSV file"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"load.file={path}: not text in UTF-8 ({error.reason}). {_WANTED}"]) from error
    if not offsets:
        raise ConfigError([f"load.file={path}: no offsets in it. {_WANTED}"])
    if len(offsets) > MOST:
        raise ConfigError([f"load.file={path}: more than {MOST} requests. Shorten it"])
    return started(cut(np.array(offsets, dtype=np.int64), num_iters, duration_s))


def _is_heading(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return "," not in text and ";" not in text
    return False


def _offset(text: str, previous: int, where: str) -> int:
    """One line of a replayed file in nanoseconds."""
    try:
        seconds = float(text)
    except ValueError:
        columns = "more than one column" if any(mark in text for mark in ",;\t") else "not a number"
        raise ConfigError([f"{where}: {text[:60]!r} is {columns}. {_WANTED}"]) from None
    if not 0 <= seconds <= LONGEST_S:
        raise ConfigError([f"{where}: {text[:60]!r} is not from 0 s to {LONGEST_S:g} s. {_WANTED}"])
    offset = round(seconds * 1e9)
    if offset < previous:
        raise ConfigError([f"{where}: {text[:60]!r} is earlier than the line before. Sort the file"])
    return offset
