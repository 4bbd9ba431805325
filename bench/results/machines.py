"""Where records were measured, and what two of them must share for their numbers to compare. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.results.record import Record
from bench.results.text import shown

# Packages that no process runs while it measures, so that another version of them changes no number.
_NOT_MEASURING = ("hydra-core", "omegaconf", "pandas", "pyarrow")


def measured(records: Sequence[Record]) -> Sequence[Record]:
    """The valid runs, or all where none is: one that failed early may not know its machine."""
    return [record for record in records if record.verdict.status == "valid"] or records


def identity(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share for their numbers to stand in one table; None for what is not known.

    The host's name is no part of it, since each container of a machine has its own; nor is a kernel's patch level,
    since a security update would end every baseline: its series (6.1) counts.
    """
    gpus = environment.get("gpu")
    versions = environment.get("versions")
    kernel = re.match(r"\d+\.\d+", str(environment.get("kernel") or ""))
    return {
        "machine": environment.get("machine_id") or environment.get("hostname"),
        "processor": _cpu(environment).get("model"),
        "cores": _cpu(environment).get("cores"),
        "kernel": kernel[0] if kernel else None,
        "GPUs": (gpus or []) if "gpu" in environment else None,  # null where there is no driver
        "versions": None
        if not isinstance(versions, Mapping)
        else {name: version for name, version in versions.items() if name not in _NOT_MEASURING},
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What keeps two environments' numbers apart: its name, and either's value in words.

    What one of them does not know is no difference.
    """
    a, b = identity(first), identity(second)
    found = []
    for name in a:
        one, other = a[name], b[name]
        if one is None or other is None or one == other:
            continue
        if isinstance(one, Mapping):
            keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
            found += [(key, str(one.get(key) or "none"), str(other.get(key) or "none")) for key in keys]
        else:
            words = {"machine": _host, "GPUs": _gpus}.get(name)
            both = (words(first), words(second)) if words else (shown(one), shown(other))
            found.append((name, *both))
    return found


def kinds(environments: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One environment of each machine and set of versions among these, the one that knows most."""
    found: list[Mapping[str, Any]] = []
    for environment in sorted(environments, key=lambda one: list(identity(one).values()).count(None)):
        if all(differences(known, environment) for known in found):
            found.append(environment)
    return found


def machine(environment: Mapping[str, Any]) -> str:
    """The machine's name, processor and GPUs, as far as known; empty where nothing is."""
    parts = [environment.get("hostname"), *_parts(environment)]
    return ", ".join(str(part) for part in parts if part)


def hardware(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """The machine, whatever its host is called and runs: its identity, processor and GPUs; empty where unknown."""
    parts = [identity(environment)["machine"], *_parts(environment)]
    return tuple(str(part) for part in parts if part)


def places(records: Sequence[Record]) -> Counter[str]:
    """Each machine with its versions, and how many runs were measured there."""
    counts: Counter[str] = Counter()
    environments = [record.environment for record in measured(records)]
    known: dict[str, Mapping[str, Any]] = {}
    for kind in kinds(environments):
        place = _place(kind)
        if place in known:  # told apart by what is not in its name
            place += "".join(f"; {name} {value}" for name, _, value in differences(known[place], kind))
        known[place] = kind
    for environment in environments:
        name = next(name for name, kind in known.items() if not differences(kind, environment))
        counts[name] += bool(name)
    return +counts


def _place(environment: Mapping[str, Any]) -> str:
    versions = environment.get("versions")
    words = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, Mapping) else []
    return "; ".join(filter(None, [machine(environment), ", ".join(words)]))


def _cpu(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    cpu = environment.get("cpu")
    return cpu if isinstance(cpu, Mapping) else {}


def _parts(environment: Mapping[str, Any]) -> list[Any]:
    gpus = environment.get("gpu")
    names = [gpu.get("name") if isinstance(gpu, Mapping) else gpu for gpu in gpus] if isinstance(gpus, list) else []
    return [_cpu(environment).get("model"), *names]


def _gpus(environment: Mapping[str, Any]) -> str:
    """`NVIDIA H200 (GPU-uuid, 150754820096, 570.1, 12.8)`, each of them; `none`."""
    words, gpus = [], environment.get("gpu")
    for gpu in gpus if isinstance(gpus, list) else []:
        details = [shown(value) for key, value in gpu.items() if key != "name"] if isinstance(gpu, Mapping) else []
        name = shown(gpu.get("name")) if isinstance(gpu, Mapping) else shown(gpu)
        words.append(f"{name} ({', '.join(details)})" if details else name)
    return "; ".join(words) or "none"


def _host(environment: Mapping[str, Any]) -> str:
    """`host (0123456789ab)`."""
    name, known = environment.get("hostname"), environment.get("machine_id")
    return f"{name} ({known})" if name and known else str(name or known)
