"""Checkpoints are in place before a run: random ones made, pretrained ones fetched, the user's looked at.

Torch is imported only by what needs it, since the supervisor uses `Prepared` and `discard` without it.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import filelock
import platformdirs

from bench.backend.download import LIMIT_S, Progress, download, fault_of, placed
from bench.config import Settings
from bench.errors import BenchError


@dataclass(frozen=True)
class Prepared:
    """The checkpoint of a run: `path` is None where the model makes its own weights.

    `identity` is (inode, bytes, mtime in ns) of a file that this call fetched.
    """

    path: Path | None
    identity: tuple[int, int, int] | None = None

    @property
    def fetched(self) -> bool:
        """Whether this very call put the file there."""
        return self.identity is not None


def prepare(settings: Settings, *, progress: Progress | None = None, url: str | None = None) -> Prepared:
    """Put the checkpoint of `settings` in place; quick when it is there.

    Args:
        progress: called while a file is fetched.
        url: where to fetch a pretrained file from, instead of torchvision's place.

    Raises:
        BenchError: saying what is wrong with which file, and what to do.
    """
    model = settings.model
    if model.target is None:
        from bench.backend.models import check

        check(model)
    path = locate(settings, url)
    if path is None:
        return Prepared(None)
    if model.weights == "pretrained":
        return _pretrained(settings, path, url or _torchvision_url(settings), progress)
    if model.weights == "random":
        _random(settings, path)
        return Prepared(path)
    from bench.backend.weights import diagnose

    if not path.exists():
        raise BenchError(
            f"model.weights={model.weights}: no such file ({path}). Set it to random, pretrained or a path"
        )
    if fault := diagnose(path):
        raise BenchError(f"model.weights={path}: {fault}")
    return Prepared(path)


def discard(prepared: Prepared) -> bool:
    """Remove the file if `prepared` fetched it and it is still the same one; say whether it was removed."""
    if prepared.path is None or prepared.identity is None:
        return False
    try:
        if _identity(prepared.path) != prepared.identity:
            return False
        prepared.path.unlink()
    except FileNotFoundError:
        return False
    return True


def locate(settings: Settings, url: str | None = None) -> Path | None:
    """Where `prepare` puts the checkpoint, without a look at it: for runs, whose first request is timed."""
    model = settings.model
    if model.weights == "pretrained":
        return _pretrained_folder(settings) / Path(urlsplit(url or _torchvision_url(settings)).path).name
    if model.weights == "random":
        return None if model.target is not None else _random_path(settings)
    return Path(model.weights).expanduser().absolute()


def _random_path(settings: Settings) -> Path:
    """In the cache directory, under a name that tells all that the weights depend on."""
    from bench.backend.weights import RECIPE

    model, seed = settings.model, settings.seed
    recipe = [RECIPE, version("torchvision"), model.name, model.args, seed]
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]", "_", model.name)[:80]
    return cache_directory(settings) / f"{name}-seed{seed}-{digest}.pth"


def _random(settings: Settings, path: Path) -> None:
    """A seeded state dict as a file of ours, made once, and made again when it is broken."""
    import torch

    from bench.backend import models, weights

    if weights.diagnose(path) is None:
        return
    with _locked(path, settings):
        if weights.diagnose(path) is not None:
            module = models.construct(settings.model, settings.seed)
            weights.initialize(module, settings.seed)
            # Given a file and not a name, torch.save writes the same bytes each time.
            with placed(path, "cache_dir") as temporary, temporary.open("xb") as file:
                torch.save(module.state_dict(), file)


def _pretrained(settings: Settings, path: Path, url: str, progress: Progress | None) -> Prepared:
    """torchvision's own file for the model, under its own name, fetched where it is absent."""
    if not path.exists():
        with _locked(path, settings):
            if not path.exists():  # nobody else fetched it while we waited
                with placed(path, "model_dir") as temporary:
                    download(url, temporary, path, progress)
                return Prepared(path, _identity(path))
    if fault := fault_of(path):
        raise BenchError(
            f"{path}: {fault}. It may be yours, so it is left as it is. Move it away to have it fetched "
            "again, or set model.weights to its path to use it all the same"
        )
    return Prepared(path)


def _pretrained_folder(settings: Settings) -> Path:
    if settings.model_dir:
        return Path(settings.model_dir).expanduser().absolute()
    import torch

    return Path(torch.hub.get_dir()).absolute() / "checkpoints"


def _torchvision_url(settings: Settings) -> str:
    """Address of the weights that PyTorch's examples use, IMAGENET1K_V1, or of the default ones."""
    from torchvision.models import get_model_weights

    known = get_model_weights(settings.model.name).__members__
    if not known:
        raise BenchError(f"model.weights=pretrained: torchvision has none for {settings.model.name}. Set it to random")
    chosen = known.get("IMAGENET1K_V1") or known.get("DEFAULT") or next(iter(known.values()))
    return str(chosen.url)


def cache_directory(settings: Settings) -> Path:
    """Where what is worth keeping between sweeps lies."""
    chosen = settings.cache_dir
    return (Path(chosen) if chosen else platformdirs.user_cache_path("inference-bench")).expanduser().absolute()


@contextmanager
def _locked(path: Path, settings: Settings) -> Iterator[None]:
    """Keep other processes from making `path` too, by a lock in our cache, not beside the user's files."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    lock = cache_directory(settings) / "locks" / f"{name}.lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(lock, timeout=LIMIT_S + 60)
        held.acquire()
    except filelock.Timeout as error:
        raise BenchError(f"{path}: another process still makes it ({lock} is held). End that one") from error
    except OSError as error:
        raise BenchError(f"{lock}: {error.strerror}. Set cache_dir to a directory that can be written") from error
    try:
        yield
    finally:
        held.release()


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
