"""Pictures of one sweep, made from its records: `plots/NAME.png` and `plots/NAME.svg` in its directory.

matplotlib is imported when the first picture is drawn, and not before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.results.files import replacing
from bench.results.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTORY = "plots"
PICTURES = {  # in the order in which a reader wants them
    "throughput": "Throughput by the swept axes",
    "average_latency": "Average latency by the swept axes",
    "throughput_latency": "Throughput against latency",
    "latency_distribution": "Latency distribution",
    "stages": "Where the latency goes",
    "over_time": "Latency and throughput over the time of a run",
    "utilization": "Utilization over the time of a run",
    "runs_in_order": "Runs in the order in which they started",
}
_FORMATS = ("png", "svg")
_DPI = 150


def write_plots(sweep_dir: Path, summary: Summary) -> tuple[list[Path], list[str]]:
    """Write the pictures that the cells of `summary` give sense to, and remove those that no longer do.

    Returns:
        The files, and a line for each picture that could not be drawn and each file that could not be read:
        one of them costs the others nothing.
    """
    directory = Path(sweep_dir) / DIRECTORY
    if not summary.cells:
        return [], []
    from bench.results.plots.style import drawing

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
            except Exception as error:  # noqa: BLE001 - whatever it is, the tables and the other pictures stand
                problems.append(f"{DIRECTORY}/{name}: not drawn: {type(error).__name__}: {error}")
    return written, problems


def pictures_list(sweep_dir: Path) -> str:
    """Links to the pictures in `sweep_dir` as a part of its summary.md; empty where there are none."""
    directory = Path(sweep_dir) / DIRECTORY
    lines = [
        f"- [{title}]({DIRECTORY}/{name}.png) ([SVG]({DIRECTORY}/{name}.svg))"
        for name, title in PICTURES.items()
        if all((directory / f"{name}.{suffix}").is_file() for suffix in _FORMATS)
    ]
    return "\n".join(["Pictures:", "", *lines]) + "\n" if lines else ""


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
