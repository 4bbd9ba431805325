"""Fixtures of the tests that drive the real command."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Command

Start = Callable[..., Command]


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wait for no run of anybody else on this machine."""
    os.environ["BENCH_LOCK_DIR"] = str(tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Overrides that make a run small, and keep it away from the user's own cache."""
    return (
        "model=custom",
        "model._target_=toys.Net",
        "model.input_shape=[3,16,16]",
        "batch_size=2",
        "compile=false",
        "num_workers=2",
        "num_iters=8",
        "plots=false",  # seconds a command; test_plots.py draws
        f"cache_dir={tmp_path_factory.mktemp('cache')}",
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, small: tuple[str, ...]) -> Start:
    """Start the command with small overrides and the given ones; another directory each time, or `cwd`.

    `prefix` is a command that starts it, `variables` are of its environment.
    """

    def start(
        *overrides: str,
        cwd: Path | None = None,
        locks: Path | None = None,
        prefix: tuple[str, ...] = (),
        **variables: str,
    ) -> Command:
        given = {override.split("=")[0] for override in overrides}
        kept = [override for override in small if override.split("=")[0] not in given]
        where = cwd or tmp_path_factory.mktemp("command")
        return Command(where, (*kept, *overrides), locks, prefix=prefix, variables=variables)

    return start
