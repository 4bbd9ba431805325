"""What a sweep says, in a sentence: which cell is best, and what pays. Pure; plain text."""

import math
from collections.abc import Sequence

from bench.results.best import Best, best
from bench.results.headline import goal, latency_metric, own_latency, own_pace
from bench.results.machines import places
from bench.results.metric_names import metric
from bench.results.pays import choices, pays
from bench.results.summary import Cell, Summary
from bench.results.text import mean_std
from bench.results.words import settings

_MOST_TIES = 2  # named; more are counted
_MOST_CHOICES = 3  # axes of which it is said where they pay
_WITHIN = 0.99  # share of the requests that an SLO must hold for


def answer(summary: Summary) -> str:
    """`Highest throughput: batch 128, compiled: 601 ± 12 samples/s; …`; empty where there is no run.

    Only valid runs count. Of several machines no cell is called the best: their numbers do not compare.
    """
    if not summary.cells:
        return ""
    cells = [cell for cell in summary.cells if cell.n]
    if not cells:
        return "No run is valid, so there is nothing to choose by."
    if len(places([record for cell in cells for record in cell.valid])) > 1:
        return "The runs are of several machines or versions, whose numbers do not compare, so no cell is named best."
    if len(cells) == 1:
        sentences = [_alone(cells[0], summary)]
    else:
        name, compared = goal(cells)
        axes = choices(summary)[:_MOST_CHOICES]
        told = [pays(summary, compared, axis, name) for axis in axes]
        sentences = ["; ".join(_bests(cells, summary)), "; ".join(filter(None, told))]
    return " ".join([*map(_sentence, filter(None, sentences)), *_reservations(cells, summary)])


def _alone(cell: Cell, summary: Summary) -> str:
    names = ["throughput"] * len(own_pace([cell])) + [latency_metric([cell])] * len(own_latency([cell]))
    figures = [f"{metric(name).words} {_figure(cell, name)}" for name in names if name in cell.metrics]
    if "slo_share" in cell.metrics:
        figures.append(f"{_share(cell)} of the requests {_limit([cell])}")
    return f"{settings(summary.place(cell))}: {', '.join(figures)}" if figures else ""


def _bests(cells: Sequence[Cell], summary: Summary) -> list[str]:
    """The best cells by what the load lets tell: throughput, within the SLO where there is one, and latency."""
    demands = any(axis.partition(".")[0] == "load" for axis in summary.axes)
    able = list(cells) if demands else own_pace(cells)
    promised = [cell for cell in cells if "slo_share" in cell.metrics]
    clauses = []
    if promised:
        clauses.append(_within_slo(promised, able, summary))
    elif found := best(able, "throughput"):
        clauses.append(_named("highest throughput", found, "throughput", summary))
    waiting = own_latency(cells)
    name = latency_metric(waiting)
    if found := best(waiting, name):
        clauses.append(_named(f"lowest {metric(name).words}", found, name, summary))
    return clauses


def _within_slo(promised: Sequence[Cell], able: Sequence[Cell], summary: Summary) -> str:
    share = f"{100 * _WITHIN:g} % of the requests {_limit(promised)}"
    good = [cell for cell in promised if cell.metrics["slo_share"].mean >= _WITHIN]
    if found := best([cell for cell in good if any(cell is one for one in able)], "throughput"):
        return _named(f"highest throughput with {share}", found, "throughput", summary)
    if good:
        return f"{len(good)} of {len(promised)} cells answer {share}"
    found = best(promised, "goodput")
    if found is None or found.cell.metrics["goodput"].mean == 0:
        return f"no cell answers {share}"
    most = _named("highest goodput", found, "goodput", summary)
    return f"no cell answers {share}; {most} ({_share(found.cell)} of its requests)"


def _named(title: str, found: Best, name: str, summary: Summary) -> str:
    """`highest throughput: batch 128, compiled: 601 ± 12 samples/s, not told apart from …`."""
    text = f"{title}: {settings(summary.place(found.cell))}: {_figure(found.cell, name)}"
    if not found.ties:
        return text
    if not found.stands_out:
        return f"{text}, not told apart from {'the other cell' if found.others == 1 else 'any other cell'}"
    if len(found.ties) > _MOST_TIES:
        return f"{text}, not told apart from {len(found.ties)} of the other {found.others} cells"
    return f"{text}, not told apart from {', or '.join(_beside(cell, found.cell, summary) for cell in found.ties)}"


def _beside(cell: Cell, other: Cell, summary: Summary) -> str:
    """What sets a cell apart from another."""
    there = summary.place(other)
    here = summary.place(cell)
    return settings({axis: value for axis, value in here.items() if repr(value) != repr(there[axis])}) or settings(here)


def _figure(cell: Cell, name: str) -> str:
    statistic, unit = cell.metrics[name], metric(name).unit
    if unit == "s" and statistic.mean < 1:
        statistic, unit = statistic.times(1000), "ms"
    return f"{mean_std(statistic)} {unit}"


def _share(cell: Cell) -> str:
    share = 100 * cell.metrics["slo_share"].mean
    return f"{math.floor(10 * share) / 10:g} %"  # down: a promise that is not quite kept is no 100 %


def _limit(cells: Sequence[Cell]) -> str:
    limits = {cell.settings.get("slo.latency_ms") for cell in cells}
    limit = limits.pop() if len(limits) == 1 else None
    return "within slo.latency_ms" if limit is None else f"within {limit:g} ms"


def _reservations(cells: Sequence[Cell], summary: Summary) -> list[str]:
    """What the sentence leaves out."""
    lost, single = len(summary.cells) - len(cells), sum(cell.n == 1 for cell in cells)
    said = [f"{lost} of {len(summary.cells)} cells {'has' if lost == 1 else 'have'} no valid run."] if lost else []
    if len(cells) == 1:
        said += ["It is a single run, so nothing is known of its spread."] if single else []
    elif single == len(cells):
        said.append("Each cell has a single run, so no difference is tested.")
    elif single:
        said.append("Cells with a single run are not tested.")
    return said


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
