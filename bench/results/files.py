"""Whole files or none: everything is written beside its place and renamed into it."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` if the block ends well and is removed if not.

    With `durable` the content is on the disk before it is renamed, so that a power cut cannot leave it empty.
    """
    # The name is one's own: two processes may write the same file at the same time.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write `text` as UTF-8, whole or not at all.

    What UTF-8 cannot hold (lone surrogates, from undecodable file names) becomes `\\udcxx`, which in
    JSON is its proper spelling.
    """
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file that can be made again: empty where it is missing, broken or something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
