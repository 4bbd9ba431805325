"""Progress is readable, quiet when it must be, and never ends a sweep."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pyte
import pytest
from commands import environment
from make_records import make_record

from bench.gauge import Reading
from bench.progress import Progress, duration
from bench.terminal import printable


class Clock:
    """A time that passes when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal and keeps what is written; `frames` counts redraws."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)

    @property
    def frames(self) -> int:
        return self.text.count("now   measuring")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def test_elsewhere_a_run_is_two_plain_lines_with_times(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(3, stream=stream, clock=clock) as progress:
        progress.run_started(1, "batch_size=8")
        clock.now += 10
        progress.update(Reading("measuring", 5, 100))
        progress.run_finished(1, "12.5 samples/s", 10.0)
    assert stream.getvalue().splitlines() == [
        "run 1 of 3: batch_size=8",
        "run 1 of 3: batch_size=8: 12.5 samples/s (10.0 s; 10.0 s used, about 20.0 s left)",
    ]


def test_time_left_counts_the_part_of_the_current_run_that_has_passed(clock: Clock) -> None:
    stream = Terminal()
    with Progress(3, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        clock.now += 100
        progress.run_finished(1, "ok", 100.0)
        progress.run_started(2, "cell")
        clock.now += 30
        progress.update(Reading("measuring", 5, 10))
    assert "about 2:50 left, 2:10 used" in stream.text


def test_a_terminal_is_redrawn_at_most_once_a_second(clock: Clock) -> None:
    stream = Terminal()
    with Progress(1, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        for tenth in range(50):
            clock.now += 0.1
            progress.update(Reading("measuring", tenth, 50))
        assert 4 <= stream.frames <= 5


def test_a_terminal_shows_run_phase_requests_cell_and_last_result_and_keeps_its_cursor(clock: Clock) -> None:
    stream = Terminal()
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell one")
        clock.now += 2
        progress.run_finished(1, "7 samples/s", 2.0)
        progress.run_started(2, "cell [two]")
        clock.now += 2
        progress.update(Reading("measuring", 5, 10))
        text = stream.text
    shown = text.rpartition("7 samples/s (")[2]
    for part in ("run 2 of 2 | ", "now   measuring 5 of 10", "cell  cell [two]", "last  7 samples/s"):
        assert part in shown
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")


def test_the_display_is_taken_away_at_the_end_of_a_run(clock: Clock) -> None:
    """Lines that others write between two runs must not land inside it."""
    stream = Terminal()
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        progress.run_finished(1, "ok", 1.0)
        last_frame = stream.text.rpartition("now   start")[2]
        erased, _, result = last_frame.partition("run 1 of 2: cell: ok")
    assert "\x1b[2K" in erased
    assert "\x1b" not in result


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_without_the_characters_gets_others(terminal: bool, clock: Clock) -> None:
    stream = Terminal("ascii") if terminal else io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "größe ± 漢" + "x" * 200)
        clock.now += 2
        progress.run_finished(1, "5 ± 1", 2.0)
        progress.run_started(2, "größe")
        clock.now += 2
        progress.update(Reading("load"))
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    assert b"5 +/- 1" in stream.buffer.getvalue()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(1, stream=stream) as progress:
        progress.run_started(1, "cell")
        progress.update(Reading("load"))
    assert stream.text == "run 1 of 1: cell\n"


def test_disabled_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, enabled=False) as progress:
        progress.run_started(1, "cell")
        progress.update(Reading("load"))
        progress.run_finished(1, "ok", 1.0)
    assert capsys.readouterr() == ("", "")


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1) as progress:
        progress.run_started(1, "cell")
    assert capsys.readouterr() == ("", "run 1 of 1: cell\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_stream_that_goes_away_silences_it(terminal: bool, clock: Clock) -> None:
    stream = Terminal() if terminal else io.StringIO()
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        stream.close()
        clock.now += 2
        progress.update(Reading("load"))
        progress.run_finished(1, "ok", 1.0)
        progress.run_started(2, "cell")


def screen(progress_stream: Terminal, columns: int, lines: int) -> list[str]:
    """What a terminal of that size shows of all that was written."""
    shown = pyte.Screen(columns, lines)
    pyte.Stream(shown).feed(progress_stream.text.replace("\n", "\r\n"))
    return [line.rstrip() for line in shown.display]


def half_a_sweep(columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[str]:
    """The screen within run 12 of 24: 6 batch sizes by 2 numbers of workers, of which one run failed."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    cells = [(batch_size, workers) for batch_size in (1, 2, 4, 8, 16, 32) for workers in (1, 2)]
    labels = [f"repeat={k} model=noop batch_size={b} num_workers={w}" for k in range(2) for b, w in cells]
    stream = Terminal()
    progress = Progress(len(labels), stream=stream, clock=clock)
    progress.plan(labels)
    for number, (batch_size, workers) in enumerate(cells, 1):
        progress.run_started(number, labels[number - 1])
        clock.now += 10
        if number == len(cells):
            progress.update(Reading("measuring", 37, 100, 1234.5, 0.01234))
            break
        record = make_record(
            {"batch_size": batch_size, "num_workers": workers},
            metrics={"throughput": 10.0 * batch_size * workers, "average_latency": 0.25, "latency_p99": 0.5},
            status="failed" if number == 11 else "valid",
        )
        progress.run_finished(number, "some samples/s", 10.0, record)
    return screen(stream, columns, lines)


def test_a_terminal_shows_speed_time_left_and_the_table_so_far(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The cell is named by what is swept, and the table has a row a cell with its metrics."""
    shown = half_a_sweep(80, 40, monkeypatch, clock)
    place = next(k for k, line in enumerate(shown) if line.startswith("run 12 of 24 |"))
    assert shown[place : place + 6] == [
        "run 12 of 24 | about 2:00 left, 2:00 used",
        "cell  repeat=0 batch_size=32 num_workers=2",
        "now   measuring 37 of 100 | 1234 samples/s | latency 0.0123 s",
        "last  some samples/s",
        "",
        "  batch_size  num_workers    n  samples/s  latency (s)  p99 (s)",
    ]
    rows = [line.split() for line in shown[place + 6 :] if line]
    assert rows[0] == ["1", "1", "1", "10.00", "0.2500", "0.5000"]
    assert rows[-1] == ["32", "1", "0/1", "FAILED"]
    assert len(rows) == 11
    assert "run 11 of 24: repeat=0 batch_size=32 num_workers=1: some samples/s (10.0 s;" in "".join(shown)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (40, 10), (40, 5), (20, 3)])
def test_the_display_fits_any_terminal(columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Its first line is on the screen, the last measured cell is in the table, and what has no room is counted."""
    shown = half_a_sweep(columns, lines, monkeypatch, clock)
    assert [line for line in shown if line.startswith("run 12 of 24")]
    if lines >= 10:
        (row,) = [line for line in shown if line.split()[:2] == ["32", "1"]]
        assert "FAILED" in row
        rows = [line for line in shown if line.split()[:1] and line.split()[0].isdigit()]
        more = [line for line in shown if line.endswith(" more")]
        assert len(rows) + sum(int(line.split()[1]) for line in more) == 11


def test_a_cell_is_predicted_by_its_own_runs(clock: Clock) -> None:
    """A quick and a slow cell twice each: after one of each the rest is their sum, whichever comes first."""
    stream = io.StringIO()
    progress = Progress(4, stream=stream, clock=clock)
    labels = ["repeat=0 x=1", "repeat=0 x=2", "repeat=1 x=1", "repeat=1 x=2"]
    progress.plan(labels)
    for number, (label, seconds) in enumerate(zip([*labels[:2], labels[3]], (10, 100, 90), strict=True), 1):
        progress.run_started(number, label)
        clock.now += seconds
        progress.run_finished(number, "ok", seconds)
    left = [line.partition("about ")[2] for line in stream.getvalue().splitlines() if "about" in line]
    assert left == ["30.0 s left)", "1:50 left)", "10.0 s left)"]


def test_runs_beyond_the_plan_are_taken_for_the_mean(clock: Clock) -> None:
    """A sweep that grows: the cell of what is added is not known before it begins."""
    stream = io.StringIO()
    progress = Progress(2, stream=stream, clock=clock)
    progress.plan(["x=1", "x=2"])
    for number, seconds in ((1, 10), (2, 30)):
        progress.run_started(number, f"x={number}")
        progress.expect(3)
        progress.run_finished(number, "ok", seconds)
    assert "about 20.0 s left" in stream.getvalue().splitlines()[-1]


def test_labels_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\r\nc\x85", "utf-8") == "a [2Jb  c "


def test_durations_read_as_people_say_them() -> None:
    assert [duration(s) for s in (0, 4.24, 59.94, 59.96, 83, 3599.6, 7384)] == [
        "0.0 s",
        "4.2 s",
        "59.9 s",
        "1:00",
        "1:23",
        "1:00:00",
        "2:03:04",
    ]


def test_the_command_on_a_real_terminal(tmp_path: Path, small: tuple[str, ...]) -> None:
    """Phase, count, throughput and latency of a running window on 80 by 24 characters; in the end two lines a run."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    load = ("load=constant", "load.rate=15", "num_iters=45", "batch_size=2", "repeat=range(2)", "-m")
    kept = [override for override in small if not override.startswith(("num_iters", "batch_size"))]
    with (tmp_path / "stdout").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench", *kept, *load],
            cwd=tmp_path,
            env={**environment(TERM="xterm-256color"), "COLUMNS": "", "LINES": ""},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=theirs,
        )
    os.close(theirs)
    screen, frames = pyte.Screen(80, 24), []
    stream = pyte.ByteStream(screen)
    try:
        while data := os.read(ours, 65536):
            stream.feed(data)
            frames.append("\n".join(line.rstrip() for line in screen.display))
    except OSError:  # how a terminal says that the other end is closed
        pass
    finally:
        os.close(ours)
        assert process.wait(60) == 0
    measuring = [frame for frame in frames if "now   measuring" in frame and " of 45 | " in frame]
    assert [frame for frame in measuring if " samples/s | latency " in frame]
    assert [frame for frame in measuring if "run 2 of 2 | about " in frame and "\n           2    false  1" in frame]
    assert "now  " not in frames[-1]
    assert frames[-1].startswith("checking 1 cell before the first run\nrun 1 of 2: repeat=0: ")
    assert not screen.cursor.hidden
