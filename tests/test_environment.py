"""The environment is plain, quick, and right within checkouts and machines of other kinds."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from write_files import write_files

from bench.telemetry import environment as env


def test_it_is_plain_json_and_holds_what_a_reader_asks_first() -> None:
    found = env.environment()
    assert json.loads(json.dumps(found)) == found
    assert {
        "hostname",
        "machine_id",
        "os",
        "kernel",
        "versions",
        "cpu",
        "memory",
        "command",
    } <= set(found)
    assert found["versions"]["hydra-core"].startswith("1.3")
    assert 1 <= found["cpu"]["cores"] <= (os.cpu_count() or 1)
    assert found["memory"]["total_bytes"] > found["memory"]["available_bytes"] > 0
    assert None not in {k: v for k, v in found.items() if k != "gpu"}.values()
    assert None not in found["cpu"].values()


def test_later_calls_take_under_50_ms_and_share_nothing() -> None:
    first = env.environment()
    first["cpu"]["affinity"].append(-1)
    began = time.perf_counter()
    second = env.environment()
    assert time.perf_counter() - began < 0.05
    assert -1 not in second["cpu"]["affinity"]


def test_it_imports_no_torch() -> None:
    code = (
        "import sys; from bench.telemetry.environment import environment;environment(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_governors_are_named_once_or_absent(tmp_path: Path) -> None:
    assert env.governor(tmp_path) is None
    policy = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
    write_files(tmp_path, {policy.format(0): "powersave", policy.format(1): "powersave"})
    assert env.governor(tmp_path) == "powersave"
    write_files(tmp_path, {policy.format(1): "performance"})
    assert env.governor(tmp_path) == "performance powersave"


def test_the_machines_name_is_stable_short_and_not_the_id_itself(tmp_path: Path) -> None:
    one = write_files(tmp_path / "one", {"etc/machine-id": "0123456789abcdef"})
    two = write_files(tmp_path / "two", {"etc/machine-id": "fedcba9876543210"})
    assert env.machine_id(one) == env.machine_id(one) != env.machine_id(two)
    assert len(env.machine_id(one)) == 12
    assert env.machine_id(one) not in "0123456789abcdef"
    assert env.machine_id(tmp_path / "none") == env.machine_id(tmp_path / "none")


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    write_files(tmp_path, {"bench/__init__.py": "", ".gitignore": ".venv"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_the_commit_is_told_and_whether_files_differ_from_it(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", "-a", "v1-rc", "-m", "a tag must not stand in for the commit")
    assert env.git_state(checkout / "bench") == {"commit": commit, "dirty": False}
    write_files(checkout, {"bench/__init__.py": "changed = True"})
    assert env.git_state(checkout / "bench") == {"commit": commit, "dirty": True}


def test_a_copy_installed_within_somebodys_checkout_has_no_commit(checkout: Path) -> None:
    installed = write_files(checkout, {".venv/site-packages/bench/__init__.py": ""}) / ".venv/site-packages/bench"
    assert env.git_state(installed) is None


def test_without_a_checkout_or_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.git_state(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert env.git_state(Path(env.__file__).parent) is None


def test_a_git_hooks_variables_do_not_lead_to_its_repository(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(checkout / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(checkout / "bench"))
    elsewhere = write_files(tmp_path_factory.mktemp("elsewhere"), {"__init__.py": ""})
    assert env.git_state(elsewhere) is None


def test_the_command_line_can_be_typed_again() -> None:
    overrides = ["batch_size=1,2", "experiment=a b's", "-m"]
    line = env.command_line(["/somewhere/bench/__main__.py", *overrides])
    assert shlex.split(line) == ["python", "-m", "bench", *overrides]
    assert env.command_line(["/usr/bin/bench", "seed=1"]) == "/usr/bin/bench seed=1"


def test_bytes_that_are_no_text_do_not_break_the_record() -> None:
    env.command_line(["bench", "experiment=\udcff"]).encode("utf-8")
