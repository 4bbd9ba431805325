"""Where records were measured: machines and versions. Numbers compare within one of them only. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.results.record import Record


def measured(records: Sequence[Record]) -> Sequence[Record]:
    """The valid runs, or all where none is: one that failed early may not know its machine."""
    return [record for record in records if record.verdict.status == "valid"] or records


def machine(environment: dict[str, Any]) -> str:
    """The machine's name, processor and GPUs, as far as known; empty where nothing is."""
    cpu = environment.get("cpu")
    model = cpu.get("model") if isinstance(cpu, dict) else None
    gpus = environment.get("gpu")
    names = [gpu.get("name") if isinstance(gpu, dict) else gpu for gpu in gpus] if isinstance(gpus, list) else []
    parts = [environment.get("hostname"), model, *names]
    return ", ".join(str(part) for part in parts if part)


def places(records: Sequence[Record]) -> Counter[str]:
    """Each machine with its versions, and how many runs were measured there."""
    counts: Counter[str] = Counter()
    for record in measured(records):
        versions = record.environment.get("versions")
        words = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
        if place := "; ".join(filter(None, [machine(record.environment), ", ".join(words)])):
            counts[place] += 1
    return counts
