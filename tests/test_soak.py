"""The soak's script itself, on a sweep of a few runs; the soak is scripts/soak."""

import os
import subprocess
import sys
from pathlib import Path

from commands import environment

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from soak_checks import Event, explains, growth, wrong_verdicts, Usage  # noqa: E402 - no package, so found by its place


def test_soak_of_six_runs_finds_nothing_wrong(tmp_path: Path) -> None:
    """Two faults, a killed command, an interrupted one and one that finishes; its summary says so."""
    command = [sys.executable, str(ROOT / "scripts" / "soak.py"), "--runs", "6", "--output", str(tmp_path / "soak")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment() | {"BENCH_SOAK_MOUNTS": "0"}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "soak" / "soak.md").read_text("utf-8")
    assert "nothing is wrong" in text
    assert "SIGKILL" in text
