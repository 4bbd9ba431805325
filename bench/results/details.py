"""The tables of a summary below its first: effects, percentiles, stages, the steps of a ramp. Pure."""

from collections.abc import Sequence

from bench.results.effects import Effect, effects
from bench.results.headline import goal
from bench.results.metric_names import metric
from bench.results.metrics import PERCENTILES, STAGES
from bench.results.statistics import Statistic
from bench.results.summary import Cell, Summary
from bench.results.text import ABSENT, escaped, markdown_table, mean_std, ratio_interval, shown


def label(cell: Cell, summary: Summary) -> str:
    """A cell by its swept axes, and its experiment where there are several."""
    name = [cell.experiment] if len(summary.experiments) > 1 else []
    return ", ".join([*name, *(f"{axis}={shown(value)}" for axis, value in cell.axes.items())])


def section(title: str, body: str) -> str:
    """A part of the summary under its heading; nothing where there is nothing to say."""
    return f"## {title}\n\n{body}" if body else ""


def value(statistic: Statistic | None, n: int) -> str:
    """`mean ± std`, and over how many runs where that is not all `n`."""
    fewer = f" (n={statistic.n})" if statistic and statistic.n < n else ""
    return mean_std(statistic) + fewer


def percentiles(summary: Summary) -> str:
    """Latency percentiles of each cell; one that no run supports says how many requests it lacks."""
    rows = []
    for cell in summary.cells:
        row = []
        for name in PERCENTILES:
            statistic = cell.metrics.get(f"latency_{name}")
            missing = [record.evidence.get("percentiles_missing", {}).get(name) or 0 for record in cell.valid]
            lacking = f"{ABSENT} ({max(missing)} more requests)" if any(missing) else ABSENT
            row.append(value(statistic, cell.n) if statistic else lacking)
        rows.append(row)
    return section(
        "Latency percentiles (s)", _table(summary, [metric(f"latency_{name}").words for name in PERCENTILES], rows)
    )


def stages(summary: Summary) -> str:
    """Mean share of each stage in the latency, of the valid runs."""
    rows = []
    for cell in summary.cells:
        shares = [shares for record in cell.valid if (shares := record.evidence.get("stage_shares"))]
        means = {stage: sum(one.get(stage) or 0.0 for one in shares) / len(shares) for stage in STAGES if shares}
        rows.append([f"{100 * means[stage]:.1f}" if means else ABSENT for stage in STAGES])
    return section("Where the latency goes (%)", _table(summary, [metric(stage).title for stage in STAGES], rows))


def effects_table(summary: Summary) -> str:
    """What each axis of two values does, on average over the others, and each pair of them."""
    name, cells = goal(summary.cells)
    found = effects([(summary.place(cell), cell.values(name)) for cell in cells]) if len(cells) > 1 else []
    if not found:
        return ""
    rows = [[_change(effect), *ratio_interval(effect.ratio, effect.low, effect.high)] for effect in found]
    judged = metric(name)
    header = ["change", f"{judged.words} ×", "95 % interval"]
    better = "more" if judged.better == "higher" else "less"
    text = (
        f"By how much a change multiplies the {judged.words} ({better} is better), on average over the other axes. "
        "Of a pair: by how much the first change's factor is multiplied by the second, "
        "so 1 where neither depends on the other."
    )
    return section("Effects of axes with two values", f"{markdown_table(header, rows, (1, 2))}\n{text}")


def _change(effect: Effect) -> str:
    return " together with ".join(
        f"{escaped(axis)} {escaped(shown(low))} → {escaped(shown(high))}"
        for axis, (low, high) in zip(effect.axes, effect.levels, strict=True)
    )


def steps(summary: Summary) -> str:
    """A ramp's steps, a row each, over the valid runs of a cell."""
    columns = ("asked_rate", "throughput", "average_latency", "latency_p50", "latency_p99", "max_latency")
    cells, rows = [], []
    for cell in summary.cells:
        runs: dict[int, list[dict[str, float]]] = {}
        for record in cell.valid:
            for step in record.evidence.get("steps", []):
                runs.setdefault(int(step["step"]), []).append(step)
        for number, found in sorted(runs.items()):
            values = [[step[name] for step in found if name in step] for name in columns]
            cells.append(cell)
            rows.append([str(number + 1), *(value(Statistic.of(one), cell.n) if one else ABSENT for one in values)])
    header = ["step", "asked (requests/s)", "samples/s", "mean (s)", "p50 (s)", "p99 (s)", "max (s)"]
    return section("Steps of the ramp", _table(Summary(summary.axes, cells), header, rows))


def leading(summary: Summary) -> tuple[list[str], list[list[str]], set[int]]:
    """The first columns of every table: experiment and swept axes. Header, rows, and which are numbers."""
    header = ["experiment", *(escaped(axis) for axis in summary.axes)]
    rows = [[escaped(text) for text in (cell.experiment, *map(shown, cell.axes.values()))] for cell in summary.cells]
    numbers = {
        1 + i
        for i, axis in enumerate(summary.axes)
        if all(isinstance(cell.axes[axis], (int, float, type(None))) for cell in summary.cells)
    }
    return header, rows, numbers


def _table(summary: Summary, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with experiment and axes in front; nothing where no cell has a value."""
    if all(text == ABSENT for row in rows for text in row):
        return ""
    header, places, numbers = leading(summary)
    body = [[*place, *row] for place, row in zip(places, rows, strict=True)]
    return markdown_table([*header, *names], body, numbers | set(range(len(header), len(header) + len(names))))
