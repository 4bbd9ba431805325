"""`report.html` of a sweep, from its records: at its end, and while it runs."""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from bench.results.files import write_text
from bench.results.page.curves import CurveReader
from bench.results.page.data import Progress, State, page_data
from bench.results.page.html import render
from bench.results.records import read_records
from bench.results.summary import summarize

PAGE = "report.html"
SCRIPTS = (
    "dom.js",
    "state.js",
    "table.js",
    "charts.js",
    "explore.js",
    "trade.js",
    "stages.js",
    "curves.js",
    "cell.js",
    "follow.js",
    "report.js",
)

_EVERY_S = 30.0
_SHARE = 0.02  # of a sweep's time, which its page may take
_FIRST_S = 0.5  # what the first page is taken to cost, until one was written

log = logging.getLogger(__name__)


def write_page(
    sweep_dir: Path, state: State = "ended", expected: int | None = None, reader: CurveReader | None = None
) -> Path | None:
    """Write `report.html` of the records in `sweep_dir`; None, with a warning, where that fails.

    The page is one more view of records that lie safe; nothing must be lost for it. One that is written again and
    again has a `reader` that keeps the curves of runs.
    """
    file = Path(sweep_dir) / PAGE
    try:
        write_text(file, page_html(Path(sweep_dir), state, expected, reader or CurveReader()))
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("%s: not written: %s: %s", file, type(error).__name__, error)
        return None
    return file


def page_html(sweep_dir: Path, state: State, expected: int | None, reader: CurveReader) -> str:
    """The page of the records in `sweep_dir`."""
    records, problems = read_records(sweep_dir)
    summary = summarize(records)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    progress = Progress(state, len(records), expected, now)
    curves, unreadable = reader.read(summary)
    data = page_data(summary, [*problems, *unreadable], progress, sweep_dir, curves)
    return render("report.html.j2", SCRIPTS, data)


class LivePage:
    """The page of a sweep that runs: written between two runs, at most every 30 s and for 2 % of the time."""

    def __init__(self, sweep_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._sweep_dir = sweep_dir
        self._clock = clock
        self._reader = CurveReader()  # a run ends between two writings, or several: few curves are new
        self._started = clock()
        self._written = self._started
        self._cost = _FIRST_S
        self._spent = 0.0

    def run_ended(self, expected: int) -> None:
        """Write it anew, if it is time; no run may be under way."""
        start = self._clock()
        allowed = _SHARE * (start - self._started)
        if start - self._written < _EVERY_S or self._spent + self._cost > allowed:
            return
        write_page(self._sweep_dir, "running", expected, self._reader)
        self._written = self._clock()
        self._cost = self._written - start
        self._spent += self._cost
