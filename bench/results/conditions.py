"""How a sweep was measured, in words. Pure."""

from collections.abc import Sequence
from typing import Any

from bench.results.machines import measured
from bench.results.record import Record
from bench.results.summary import Summary
from bench.results.text import shown

_LOADS = {
    "burst": "all requests at once",
    "closed": "each client sends its next request when its last is answered",
    "constant": "at equal intervals, whatever becomes of those before",
    "poisson": "at random intervals, whatever becomes of those before",
    "replay": "at the times that a file lists",
    "ramp": "rates in steps",
}
_SERVED = {  # settings worth a word where they are the same in all runs
    "model": "model.name",
    "model.dtype": "model.dtype",
    "model.input_shape": "model.input_shape",
    "batch_size": "batch_size",
    "compile": "compile",
    "compile_cache": "compile_cache",
    "num_workers": "num_workers",
    "stream_layout": "stream_layout.name",
    "queue": "queue.name",
    "slo.latency_ms": "slo.latency_ms",
    "device": "device.name",  # last: what auto came to is said behind it
}
_NO_CHOICE: dict[str, tuple[Any, ...]] = {
    "random": (False,),
    "think_ms": (0, 0.0),
}  # of the load, where they say nothing


def conditions(summary: Summary) -> list[str]:
    """A line each: load, requests, runs and their order, what was the same in all runs."""
    records = [record for cell in summary.cells for record in cell.records]
    same = {
        key: value
        for key, value in summary.cells[0].settings.items()
        if all(cell.settings.get(key) == value for cell in summary.cells)
    }
    if same.get("compile") is False:
        same.pop("compile_cache", None)
    served = [f"{name}={shown(same[key])}" for name, key in _SERVED.items() if same.get(key) is not None]
    devices = {str(record.backend["device"]) for record in measured(records) if "device" in record.backend}
    if len(devices) == 1 and same.get("device.name") == "auto":
        served[-1] += f" ({devices.pop()})"
    lines = [_load(same), _requests(same), _runs(summary, records)]
    if same.get("verify") is False:
        lines.append("Answers were not compared with what they must be (verify=false)")
    return [line for line in [*lines, f"The same in all runs: {', '.join(served)}" if served else ""] if line]


def _load(same: dict[str, Any]) -> str:
    name = same.get("load.name")
    if name is None:
        return ""
    keys = {
        key: value
        for key, value in same.items()
        if key.startswith("load.") and key != "load.name" and value is not None
    }
    told = [f"{key}={shown(value)}" for key, value in keys.items() if value not in _NO_CHOICE.get(key[5:], ())]
    return f"load={name}: {', '.join([str(_LOADS.get(name, 'no pattern of this version')), *told])}"


def _requests(same: dict[str, Any]) -> str:
    """How many requests were measured, and what came before them; nothing of what was swept."""
    parts = []
    if same.get("num_iters") is not None:
        parts.append(f"{same['num_iters']} measured requests")
    if same.get("duration_s") is not None:
        parts.append(f"{same['duration_s']:g} s of sending")
    if same.get("warmup_iters") is not None:
        more = f" and {same['warmup_iters']} to warm up" if same["warmup_iters"] else ""
        parts.append(f"after the cold first request{more}")
    return f"In each run: {', '.join(parts)}" if parts else ""


def _runs(summary: Summary, records: Sequence[Record]) -> str:
    counts = sorted({len(cell.records) for cell in summary.cells})
    count = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    of_cells = "" if len(summary.cells) == 1 else " of each cell" if len(counts) == 1 else " of a cell"
    order = _order([record.cell for record in sorted(records, key=lambda r: r.started)])
    text = f"{count} run{'s' * (count != '1')}{of_cells}{', each' if len(records) > 1 else ''} in fresh processes"
    return f"{text}; {order}" if order and counts[-1] > 1 else text


def _order(cells: Sequence[str]) -> str:
    """In words, from which cell each run was of, as they started."""
    distinct = len(set(cells))
    if distinct < 2:
        return ""
    rounds = [cells[k : k + distinct] for k in range(0, len(cells), distinct)]
    if all(len(set(one)) == len(one) for one in rounds):
        return "in rounds, each cell once in a round, so that a drift of the machine meets all alike"
    if sum(cells[k] != cells[k - 1] for k in range(1, len(cells))) == distinct - 1:
        return "one cell after the other, so that a drift of the machine looks like a difference of cells"
    return "in a mixed order"
