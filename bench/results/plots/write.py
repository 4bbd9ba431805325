"""`plots/NAME.png` and `plots/NAME.svg` of a sweep, from its records, and their list at the end of summary.md.

matplotlib is imported when the first picture is drawn, and not before.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.results.files import replacing, write_text
from bench.results.records import read_records
from bench.results.summary import Summary, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTORY = "plots"
PICTURES = {  # in the order in which a reader wants them
    "throughput": "Throughput of the swept settings",
    "average_latency": "Average latency of the swept settings",
    "throughput_latency": "Throughput against latency",
    "latency_distribution": "Latency distribution",
    "stages": "Where the latency goes",
    "over_time": "Latency and throughput over the time of a run",
    "utilization": "Utilization over the time of a run",
    "runs_in_order": "Runs in the order in which they started",
}
_FORMATS = ("png", "svg")
_DPI = 150

log = logging.getLogger(__name__)


def add_pictures(sweep_dir: Path) -> str:
    """Draw the sweep in `sweep_dir` and list the pictures at the end of its summary.md.

    Returns what was added; empty, with a warning, where nothing could be drawn: pictures are one more view of
    records that lie safe, and cost neither the tables nor the exit code.
    """
    file = Path(sweep_dir) / "summary.md"
    try:
        written = write_plots(sweep_dir, summarize(read_records(sweep_dir)[0]))
        return _add_list(file, {picture.stem for picture in written})
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("%s: not drawn: %s: %s", Path(sweep_dir) / DIRECTORY, type(error).__name__, error)
        return ""


def list_pictures(sweep_dir: Path) -> str:
    """List the pictures that are there at the end of summary.md, and return what was added. Raises OSError."""
    directory = Path(sweep_dir) / DIRECTORY
    there = {name for name in PICTURES if all((directory / f"{name}.{kind}").is_file() for kind in _FORMATS)}
    return _add_list(Path(sweep_dir) / "summary.md", there)


def write_plots(sweep_dir: Path, summary: Summary) -> list[Path]:
    """Write the pictures that the cells of `summary` give sense to, and remove those that no longer do.

    A picture that cannot be drawn and a file that cannot be read are warnings, and cost the others nothing.
    """
    if not summary.cells:
        return []
    from bench.results.plots.style import drawing

    directory = Path(sweep_dir) / DIRECTORY
    written: list[Path] = []
    makers, problems = _makers(summary)
    with drawing():
        for name, make in makers.items():
            files = [directory / f"{name}.{suffix}" for suffix in _FORMATS]
            try:
                figure = make()
                if figure is None:
                    for file in files:
                        file.unlink(missing_ok=True)
                    continue
                directory.mkdir(exist_ok=True)
                _save(figure, files, PICTURES[name])
                written += files
            except Exception as error:  # noqa: BLE001 - whatever it is, the other pictures stand
                problems.append(f"{directory / name}: not drawn: {type(error).__name__}: {error}")
    for problem in problems:
        log.warning("%s", problem)
    return written


def _add_list(file: Path, names: set[str]) -> str:
    """The pictures of these names as a part at the end of `file`; returns the part, empty without any."""
    if not names:
        return ""
    lines = [
        f"- [{title}]({DIRECTORY}/{name}.png) ([SVG]({DIRECTORY}/{name}.svg))"
        for name, title in PICTURES.items()
        if name in names
    ]
    part = "\n".join(["## Pictures", "", *lines]) + "\n"
    write_text(file, f"{file.read_text(encoding='utf-8')}\n{part}")
    return part


def _makers(summary: Summary) -> tuple[dict[str, Callable[[], "Figure | None"]], list[str]]:
    """What draws each picture, and the problems of files that they read, a list that grows."""
    from bench.results.plots.by_axis import by_axis
    from bench.results.plots.course import course
    from bench.results.plots.distribution import distribution
    from bench.results.plots.order import runs_in_order
    from bench.results.plots.runs import Runs
    from bench.results.plots.stages import stages
    from bench.results.plots.tradeoff import tradeoff
    from bench.results.plots.utilization import utilization

    runs = Runs()
    makers: dict[str, Callable[[], Figure | None]] = {
        "throughput": lambda: by_axis(summary, "throughput"),
        "average_latency": lambda: by_axis(summary, "average_latency"),
        "throughput_latency": lambda: tradeoff(summary),
        "latency_distribution": lambda: distribution(summary, runs),
        "stages": lambda: stages(summary),
        "over_time": lambda: course(summary, runs),
        "utilization": lambda: utilization(summary, runs),
        "runs_in_order": lambda: runs_in_order(summary),
    }
    return makers, runs.problems


def _save(figure: "Figure", files: list[Path], title: str) -> None:
    for file in files:
        kind = file.suffix[1:]
        metadata = {"Title": title, **({"Date": None} if kind == "svg" else {})}
        with replacing(file) as temporary:
            figure.savefig(temporary, format=kind, dpi=_DPI, metadata=metadata)
        figure.set_layout_engine(None)  # places are known by now: finding them costs as much as drawing
