"""The command that finishes a sweep: as it was typed, with quotes where a shell and Hydra want them."""

import shlex
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from bench.hydra_glue import flags_first
from bench.invocation import Invocation, _program, quoted


@pytest.mark.parametrize(
    ("original", "argv", "expected"),
    [
        (["python", "-m", "bench", "a=1"], ["/x/bench/__main__.py", "a=1"], ["python", "-m", "bench"]),
        (
            ["/v/python", "-X", "dev", "-m", "bench"],
            ["/x/bench/__main__.py"],
            ["/v/python", "-X", "dev", "-m", "bench"],
        ),
        (["python", "-c", "code", "a=1"], ["-c", "a=1"], ["python", "-c", "code"]),
    ],
)
def test_program_is_what_was_typed(original: list[str], argv: list[str], expected: list[str]) -> None:
    """A module with the interpreter and its flags."""
    assert _program(original, argv) == expected


def test_console_script_goes_by_its_name_where_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bench` on the path, and its whole path elsewhere; scripts/bench names itself."""
    script = tmp_path / "bench"
    script.touch(mode=0o755)
    original = [sys.executable, str(script), "-m"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _program(original, [str(script), "-m"]) == ["bench"]
    monkeypatch.setenv("PATH", "")
    assert _program(original, [str(script), "-m"]) == [str(script)]
    monkeypatch.setenv("BENCH_PROGRAM", "scripts/bench")
    assert _program(original, [str(script), "-m"]) == ["scripts/bench"]


def test_finishing_command_survives_a_shell_and_hydra() -> None:
    """Spaces, commas, quotes and backslashes in arguments and in the path come back as they were."""
    odd = "/tmp/a b, 'c' \"d\" \\' e=f\\"
    given = ["-m", "batch_size=1,2", "experiment='x y'", "resume=last", "retry=[failed]", "++resume=x"]
    invocation = Invocation(["python", "-m", "bench"], given, "/tmp")
    words = shlex.split(invocation.finishing(Path(odd), ["failed", "invalid"]))
    assert words[:6] == ["python", "-m", "bench", "-m", "batch_size=1,2", "experiment='x y'"]
    *_, resume, retry = words
    (override,) = OverridesParser.create().parse_overrides([resume])
    assert override.value() == odd.removeprefix("/tmp/")
    assert flags_first([retry]) == ["retry=[failed,invalid]"]
    assert len(words) == 8


@pytest.mark.parametrize(
    "value", ["outputs/a/2025-01-31_12-00-00-abc", "last", "with space", "a,b", "{a: 1}", "1e3", "'"]
)
def test_quoted_value_is_a_text_for_hydra(value: str) -> None:
    """Whatever it looks like."""
    (override,) = OverridesParser.create().parse_overrides([f"resume={quoted(value)}"])
    assert str(override.value()) == value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("retry=failed,invalid", "retry=[failed,invalid]"),
        ("++retry=failed", "++retry=[failed]"),
        ("retry=[failed]", "retry=[failed]"),
        ("retry=null", "retry=null"),
        ("batch_size=1,2", "batch_size=1,2"),
    ],
)
def test_retry_is_one_value(given: str, expected: str) -> None:
    """Hydra would sweep over its verdicts."""
    assert flags_first([given]) == [expected]
