"""Progress is readable, quiet when it must be, and never ends a sweep."""

import io

import pytest

from bench.progress import Progress, duration, printable


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
        return self.text.count("| measuring")


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
        progress.update("measuring", 5, 100)
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
        progress.update("measuring", 5, 10)
    assert "2:10 used, about 2:50 left" in stream.text


def test_a_terminal_is_redrawn_at_most_once_a_second(clock: Clock) -> None:
    stream = Terminal()
    with Progress(1, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        for tenth in range(50):
            clock.now += 0.1
            progress.update("measuring", tenth, 50)
        assert 4 <= stream.frames <= 5


def test_a_terminal_shows_run_phase_requests_cell_and_last_result_and_keeps_its_cursor(clock: Clock) -> None:
    stream = Terminal()
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell one")
        clock.now += 2
        progress.run_finished(1, "7 samples/s", 2.0)
        progress.run_started(2, "cell [two]")
        clock.now += 2
        progress.update("measuring", 5, 10)
        text = stream.text
    shown = text.rpartition("7 samples/s (")[2]
    for part in ("run 2 of 2 | measuring 5 of 10 |", "cell  cell [two]", "last  7 samples/s"):
        assert part in shown
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")


def test_the_display_is_taken_away_at_the_end_of_a_run(clock: Clock) -> None:
    """Lines that others write between two runs must not land inside it."""
    stream = Terminal()
    with Progress(2, stream=stream, clock=clock) as progress:
        progress.run_started(1, "cell")
        progress.run_finished(1, "ok", 1.0)
        last_frame = stream.text.rpartition("run 1 of 2 | start")[2]
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
        progress.update("load")
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    assert b"5 +/- 1" in stream.buffer.getvalue()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(1, stream=stream) as progress:
        progress.run_started(1, "cell")
        progress.update("load")
    assert stream.text == "run 1 of 1: cell\n"


def test_disabled_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, enabled=False) as progress:
        progress.run_started(1, "cell")
        progress.update("load")
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
        progress.update("load")
        progress.run_finished(1, "ok", 1.0)
        progress.run_started(2, "cell")


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
