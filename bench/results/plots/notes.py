"""The words under a picture's title: what a point is, what held in all runs. Pure."""

from collections.abc import Sequence

from bench.results.plots.arrangement import cut
from bench.results.summary import Cell, Summary
from bench.results.text import shown

BACKLOG = "Requests were sent all at once: latency holds the backlog, the wait for all that were sent before."
_CONTEXT = {  # settings that a stranger asks for, and their keys
    "model": "model.name",
    "batch_size": "batch_size",
    "compile": "compile",
    "num_workers": "num_workers",
    "stream_layout": "stream_layout.name",
    "queue": "queue.name",
    "load": "load.name",
    "device": "device.name",
}


def throughout(summary: Summary) -> str:
    """The experiment, and the settings that are the same in all runs; the verdict of what is shown though not valid."""
    settings = summary.cells[0].settings
    verdict = "" if len(summary.cells) > 1 or summary.cells[0].n else f"{summary.cells[0].explained}. "
    same = [f"{name}={cut(shown(settings.get(key)))}" for name, key in _CONTEXT.items() if _is_same(summary, key)]
    names = [cut(name) for name in summary.experiments]
    words = f"{verdict}Experiment {names[0]}" if len(names) == 1 else f"{len(names)} experiments"
    scope = "" if len(summary.cells) == 1 else "in all cells "
    return f"{words}; {scope}{', '.join(same)}." if same else f"{words}."


def backlog(cells: Sequence[Cell]) -> list[str]:
    """What a latency means where all requests are sent at once."""
    bursts = sum(cell.settings.get("load.name") == "burst" for cell in cells)
    if bursts == 0:
        return []
    return [BACKLOG if bursts == len(cells) else f"Under load=burst: {BACKLOG[0].lower()}{BACKLOG[1:]}"]


def repeats(cells: Sequence[Cell], drawn: str) -> str:
    """How many runs a mean is of, and what the error `drawn` means."""
    counts = sorted({cell.n for cell in cells})
    if counts == [1]:
        return "One run each, so without error bars."
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean of {runs} valid runs; {drawn}: ± one standard deviation."


def named_by(heading: str) -> list[str]:
    """What a label's values are of, where they stand alone."""
    return [f"Cells are named by {heading}."] if heading else []


def middle_runs(cells: Sequence[Cell]) -> str:
    """Which run of each cell is shown, where there are several."""
    if all(len(cell.records) == 1 for cell in cells):
        return ""
    return "Of each cell the run with the middle average latency."


def _is_same(summary: Summary, key: str) -> bool:
    return len({shown(cell.settings.get(key)) for cell in summary.cells}) == 1
