"""`python -m bench.report` makes the tables again, or says what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from make_records import make_record, write_sweep

import bench.report
from bench.config import Settings
from bench.invocation import Invocation
from bench.report import main
from bench.results.manifest import Manifest, lock, write_manifest
from bench.results.page.write import write_page

ROOT = Path(__file__).parents[1]


def run(*arguments: str | Path, encoding: str = "utf-8") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "bench.report", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_each_directory_gets_and_prints_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sweeps: two summaries on the screen, in that order, and where the files are."""
    first = write_sweep(tmp_path / "1", make_record({"experiment": "one"}))
    second = write_sweep(tmp_path / "2", make_record({"experiment": "two"}))
    assert main([str(first), str(second)]) == 0
    printed = capsys.readouterr().out
    for directory in (first, second):
        assert (directory / "summary.md").read_text(encoding="utf-8") in printed
        for name in ("summary.md", "summary.csv", "runs.csv", "report.html"):
            assert f"{directory / name}\n" in printed
            assert (directory / name).stat().st_size > 0
    assert printed.index("# one") < printed.index("# two")


def test_ascii_terminal_prints_and_the_file_stays_utf8(tmp_path: Path) -> None:
    """The command works where ± cannot be printed, and its file holds it all the same."""
    write_sweep(tmp_path, make_record({"experiment": "größe"}), make_record({"experiment": "größe", "repeat": 1}))
    done = run(tmp_path, encoding="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"1.500+/-0" in done.stdout
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "1.500 ± 0" in text
    assert "größe" in text


def test_a_closed_output_is_no_error_and_loses_no_file(tmp_path: Path) -> None:
    """As behind `| head`: what nobody reads is not printed, and the second directory is still done."""
    first = write_sweep(tmp_path / "1", make_record({"experiment": "one"}))
    second = write_sweep(tmp_path / "2", make_record({"experiment": "two"}))
    line = f'"{sys.executable}" -m bench.report "{first}" "{second}" | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (second / "report.html").exists()


def test_missing_and_empty_directories_are_errors(tmp_path: Path) -> None:
    """Each is named on stderr without a traceback, the good one is still reported, exit code 2."""
    good = write_sweep(tmp_path / "good", make_record())
    (tmp_path / "empty").mkdir()
    done = run(tmp_path / "nowhere", tmp_path / "empty", good)
    assert done.returncode == 2
    errors = done.stderr.decode().splitlines()
    assert errors[0].startswith(f"bench.report: {tmp_path / 'nowhere'}: no such directory.")
    assert errors[1] == f"bench.report: {tmp_path / 'empty'}: no records there or one level below"
    assert len(errors) == 2
    assert b"# default" in done.stdout
    assert list((tmp_path / "empty").iterdir()) == []


def test_directory_of_broken_records_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no record can be read, the reasons are given."""
    write_sweep(tmp_path, make_record())
    (tmp_path / "0" / "metrics.json").write_text("{")
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path / '0' / 'metrics.json'}: not whole or not JSON" in capsys.readouterr().err


def page_progress(directory: Path) -> tuple[str, int, int]:
    """What the page says of the sweep: its state, runs done, runs expected."""
    _, _, data = (directory / "report.html").read_text("utf-8").partition('id="data">')
    progress = json.loads(data.partition("</script>")[0])["progress"]
    return progress["state"], progress["done"], progress["expected"]


@pytest.mark.parametrize(
    ("records", "running", "state", "words"),
    [
        (1, True, "running", "1 of 2 runs so far"),
        (1, False, "interrupted", "Interrupted after 1 of 2 runs"),
        (2, False, "ended", ""),
    ],
)
def test_sweep_is_what_it_was_before_the_report(
    tmp_path: Path, records: int, running: bool, state: str, words: str
) -> None:
    """Of a sweep that runs the page goes on following, of one left unfinished all tables say so."""
    both = [make_record({"batch_size": size}) for size in (1, 2)]
    write_sweep(tmp_path, *both[:records])
    runs = [Settings.from_mapping(record.settings) for record in both]
    write_manifest(tmp_path, Manifest.of(Invocation(["bench"], ["-m"], "/"), runs))
    held = lock(tmp_path)
    if not running:
        held.release()
    assert main([str(tmp_path), "--no-plots"]) == 0
    held.release()
    assert page_progress(tmp_path) == (state, records, 2)
    head = (tmp_path / "summary.md").read_text("utf-8").partition("|")[0]
    assert words in head
    assert words or "of 2 runs" not in head


def test_sweep_that_ends_under_the_report_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a sweep whose command ended while the report was written does not wait for it."""
    record = make_record()
    write_sweep(tmp_path, record)
    runs = [Settings.from_mapping(record.settings)]
    write_manifest(tmp_path, Manifest.of(Invocation(["bench"], ["-m"], "/"), runs))
    held = lock(tmp_path)

    def write_and_end(directory: Path, *arguments: Any) -> Path | None:
        held.release()
        return write_page(directory, *arguments)

    monkeypatch.setattr(bench.report, "write_page", write_and_end)
    assert main([str(tmp_path), "--no-plots"]) == 0
    assert page_progress(tmp_path) == ("ended", 1, 1)


def test_no_directory_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The command without arguments says how to call it."""
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "DIR" in capsys.readouterr().err


def test_results_need_neither_torch_nor_pandas_nor_pyarrow() -> None:
    """What reads records and writes tables starts fast and works on any machine."""
    heavy = "{'torch', 'pandas', 'pyarrow', 'matplotlib'}"
    code = f"import sys, bench.report, bench.results.cumulative;print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert done.stdout.split() == [b"set()"]
