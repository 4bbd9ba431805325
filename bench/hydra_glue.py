"""What Hydra must know before it composes: names of directories, and flags in front of overrides.

Imported by `bench.job`, so that the resolvers exist in a launcher's worker processes as well.
"""

import errno
import hashlib
import os
import re
import secrets
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench.config import Settings
from bench.conversion import keys_of
from bench.invocation import normalized

# In the environment, since a launcher's workers must agree on them.
_MOMENT = "BENCH_SWEEP_ID"
_LAST = "BENCH_LAST_SWEEP"  # what resume=last found
_FIRST = "BENCH_FIRST_RUN"  # number of the first run of this command within its sweep
_LONGEST = 80
_SECONDS = len("2025-01-31_12-00-00")
_WITH_VALUE = {"--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--package", "-p"}
_WITH_VALUE |= {"--cfg", "-c", "--experimental-rerun"}
_FULL_ERROR = "HYDRA_FULL_ERROR"
_NOISE = (
    "object_type=",
    "full_key:",
    "reference_type=",
    "To append to your config use",
    "set env var HYDRA_FULL_ERROR",
)
_LAUNCHERS = ("joblib.", "submitit.")  # which raise where a worker was killed, and a sweep ends
_OPTIONAL_GROUPS = ("sweep",)  # those that no default chooses
_INFO = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}


def call(job: Callable[[DictConfig], Any]) -> None:
    """Call Hydra's command with `job`. What it cannot compose ends the command as all bad settings do, with 2.

    Raises:
        SystemExit: as Hydra and the callbacks raise it.
    """
    import hydra
    from hydra.errors import HydraException

    sys.argv[1:] = flags_first(sys.argv[1:])
    command = hydra.main(version_base="1.3", config_path=str(conf_directory()), config_name="config")(job)
    if os.environ.get(_FULL_ERROR) == "1":  # the user wants to see where it comes from
        command()
        return
    os.environ[_FULL_ERROR] = "1"  # Hydra would print the error itself and exit with 1
    try:
        command()
    except (HydraException, OmegaConfBaseException) as error:
        print(f"bench: {in_words(error)}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # noqa: BLE001 - as Hydra would: whatever it is, it is shown, and the exit code is 1
        if isinstance(error, (ValueError, TypeError)) and _while_composing(error):
            print(f"bench: {in_words(error)}, in {' '.join(sys.argv[1:])}", file=sys.stderr)
            sys.exit(2)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # it makes the runs' directories
            sys.exit(f"{error}. Free some space, or set output_dir to another disk")
        if type(error).__module__.startswith(_LAUNCHERS):
            sys.exit(f"the launcher gave up: {type(error).__name__}: {str(error).strip()}")
        traceback.print_exc()
        sys.exit(1)
    finally:
        del os.environ[_FULL_ERROR]


def _while_composing(error: Exception) -> bool:
    """Whether Hydra stumbled over an override, such as a group of which no option but a number is chosen."""
    return any(frame.f_code.co_name == "compose_config" for frame, _ in traceback.walk_tb(error.__traceback__))


def in_words(error: Exception) -> str:
    """An error of Hydra or of OmegaConf, with its cause, on as many lines as it needs and no more."""
    causes = [error, *([error.__cause__] if isinstance(error.__cause__, OmegaConfBaseException) else [])]
    lines = [line.strip() for cause in causes for line in str(cause).partition("Config search path")[0].splitlines()]
    return "\n".join(dict.fromkeys(line for line in lines if line and not line.startswith(_NOISE)))


def register() -> None:
    """Register the resolvers that `conf/config.yaml` uses."""
    OmegaConf.register_new_resolver("path_name", path_name, replace=True)
    OmegaConf.register_new_resolver("unique_time", lambda: os.environ[_MOMENT], replace=True)
    OmegaConf.register_new_resolver("sweep_dir", sweep_directory, replace=True)
    OmegaConf.register_new_resolver("run_name", lambda number: run_name(run_number(number)), replace=True)


def new_moment() -> None:
    """Name this command's directory: the time, and what makes two commands of one second differ."""
    for name in (_LAST, _FIRST):
        os.environ.pop(name, None)
    os.environ[_MOMENT] = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(3)}"


def command_id() -> str:
    """Which command this process belongs to: the same in all of its processes, and in no other's."""
    return os.environ.get(_MOMENT) or f"process {os.getpid()}"


def first_run(number: int) -> None:
    """This command's runs are numbered from `number`: those before lie there already."""
    os.environ[_FIRST] = str(number)


def run_number(job: int) -> int:
    """Number within its sweep, from 0, of Hydra's job `job` of this command."""
    return int(job) + int(os.environ.get(_FIRST, 0))


def sweep_directory(output_dir: object, experiment: object, resume: object) -> str:
    """A sweep's directory: a new one, or that which `resume` names."""
    parent = os.path.join(str(output_dir), path_name(experiment))
    if resume is None:
        return os.path.join(parent, os.environ[_MOMENT])
    if resume == "last":
        return os.environ.setdefault(_LAST, _newest(parent))
    return os.path.normpath(str(resume))


def _newest(parent: str) -> str:
    """The sweep in `parent` that was started last; the name of none where there is none."""
    sweeps = list(Path(parent).glob("*/manifest.json"))
    started = {path.parent: (path.parent.name[:_SECONDS], path.parent.stat().st_mtime_ns) for path in sweeps}
    return str(max(started, key=started.__getitem__, default=Path(parent, "last")))


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
            overrides.append(normalized(argument))
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


_KEYS = keys_of(Settings)


def conf_directory() -> Path:
    """Where the configs lie: beside the package in a checkout, within it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"
