"""Fetching a file: whole, of the right size and hash, and in place under its name or not at all."""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time

from bench.errors import BenchError

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all where known

_SILENCE_S = 10.0  # nothing from the server for so long ends a download
LIMIT_S = 3600.0  # the longest download
_BLOCK = 2**20


def download(url: str, temporary: Path, path: Path, progress: Progress | None) -> None:
    """Fetch `url` into `temporary`, and check its size and its hash; `path` is where it will lie."""
    advice = f"Fetch it yourself and place it at {path}, or set model.weights=random"
    deadline = monotonic() + LIMIT_S
    done = 0
    request = urllib.request.Request(url, headers={"User-Agent": "inference-bench"})
    try:
        with urllib.request.urlopen(request, timeout=_SILENCE_S) as response, temporary.open("xb") as file:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                if progress:
                    progress(path.name, done, total)
                if monotonic() > deadline:
                    raise TimeoutError(f"not done after {LIMIT_S:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the server's answer, with an open socket
        raise BenchError(f"{url}: could not be fetched ({error}). {advice}") from error
    if total is not None and done != total:
        raise BenchError(f"{url}: the download was truncated ({done} of {total} bytes). {advice}")
    if fault := fault_of(temporary, path.name):
        raise BenchError(f"{url}: what came {fault}. {advice}")


def fault_of(path: Path, name: str | None = None) -> str | None:
    """What is wrong with a fetched file, whose name (`name`) carries the start of its sha256."""
    from bench.backend.weights import diagnose

    wanted = re.search(r"-([0-9a-f]{8,64})\.", name or path.name)
    if wanted and path.is_file() and path.stat().st_size > 0:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        if digest.hexdigest().startswith(wanted[1]):
            return None
        return diagnose(path) or f"has a wrong hash (sha256 {digest.hexdigest()[:8]}…, not {wanted[1]})"
    return diagnose(path)


@contextmanager
def placed(path: Path, key: str) -> Iterator[Path]:
    """A temporary name beside `path`; what is written there is put in place whole, or leaves nothing."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*.part"):  # of a process that was killed
            if time() - left.stat().st_mtime > 2 * LIMIT_S:
                left.unlink(missing_ok=True)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise BenchError(f"{path}: cannot be written ({error.strerror}). Set {key} to another directory") from error
    finally:
        temporary.unlink(missing_ok=True)
