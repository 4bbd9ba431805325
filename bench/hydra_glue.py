"""What Hydra must know before it composes: names of directories, and flags in front of overrides.

Imported by `bench.job`, so that the resolvers exist in a launcher's worker processes as well.
"""

import hashlib
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import OmegaConf

from bench.config import Settings

_MOMENT = "BENCH_SWEEP_ID"  # in the environment, since a launcher's workers must agree on it
_LONGEST = 80
_WITH_VALUE = {"--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--package", "-p"}
_WITH_VALUE |= {"--cfg", "-c", "--experimental-rerun"}
_OPTIONAL_GROUPS = ("sweep",)  # those that no default chooses
_INFO = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}


def register() -> None:
    """Register the resolvers that `conf/config.yaml` uses."""
    OmegaConf.register_new_resolver("path_name", path_name, replace=True)
    OmegaConf.register_new_resolver("unique_time", lambda: os.environ[_MOMENT], replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)


def new_moment() -> None:
    """Name this command's directory: the time, and what makes two commands of one second differ."""
    os.environ[_MOMENT] = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(3)}"


def command_id() -> str:
    """Which command this process belongs to: the same in all of its processes, and in no other's."""
    return os.environ.get(_MOMENT) or f"process {os.getpid()}"


def run_name(number: int) -> str:
    """Directory of a sweep's run `number`, from 0."""
    return f"{int(number):04d}"


def path_name(name: object) -> str:
    """`name` as one component of a path; a name that had to be changed gets a hash, so that two stay two."""
    text = str(name)
    safe = re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII).strip(".")[:_LONGEST]
    if safe == text:
        return safe
    return f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The same arguments with flags before overrides, which Hydra refuses on both sides of a flag; see `added`, too."""
    flags: list[str] = []
    overrides: list[str] = []
    waiting = deque(arguments)
    while waiting:
        argument = waiting.popleft()
        if argument in _WITH_VALUE:
            flags += [argument, *([waiting.popleft()] if waiting else [])]
        elif argument in ("--info", "-i"):
            # Its value is optional, so it would swallow the first override.
            flags.append(f"--info={waiting.popleft() if waiting and waiting[0] in _INFO else 'all'}")
        elif argument.startswith("-"):
            flags.append(argument)
        else:
            overrides.append(argument)
    return flags + added(overrides)


def added(overrides: Sequence[str]) -> list[str]:
    """The same overrides, with those of keys that no file holds as additions.

    Hydra would refuse the first unknown key in its own words; the check of the settings names all of them, with
    whatever else is wrong. The keys of `model.args` are the model's, and those of a load belong to some loads only.
    """
    return [_added(override) for override in overrides]


def _added(override: str) -> str:
    key, equals, _ = override.partition("=")
    if not equals or not re.fullmatch(r"[\w.]+", key) or key.partition(".")[0] == "hydra":
        return override
    if key in _OPTIONAL_GROUPS:
        return f"+{override}"
    if key.startswith("model.args"):
        return f"++{override}"
    if key not in _KEYS:
        return f"+{override}"
    return override if _KEYS[key] else f"++{override}"


def _keys(cls: Any, prefix: str = "") -> dict[str, bool]:
    """The dotted keys of a settings class, and of each whether every file of its group holds it."""
    keys = {}
    for name, hint in get_type_hints(cls).items():
        key = prefix + ("_target_" if name == "target" else name)
        keys[key] = not hasattr(cls, name)  # a dataclass keeps a default as an attribute
        if is_dataclass(hint):
            keys |= _keys(hint, f"{key}.")
    return keys


_KEYS = _keys(Settings)


def conf_directory() -> Path:
    """Where the configs lie: beside the package in a checkout, within it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"
