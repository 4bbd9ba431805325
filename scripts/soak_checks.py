"""What a soak must leave: right records, every fault named, nothing leaked."""

import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.results.manifest import read_manifest
from bench.results.metrics import run_metrics
from bench.results.raw import read_stamps
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.text import escaped, markdown_table

WARM_UP = 100  # runs until all that tables and page need is imported, and their caches are full or nearly so
FEW_RUNS = 100  # beyond these; with fewer, no quarter says anything
MOST_GROWTH = 0.15  # of the supervisor's memory, from the first quarter of its runs to the last; tables hold all runs
MOST_DESCRIPTORS = 2
TORCHS_OWN = "torchinductor_"  # one cache a user, which torch makes when it is imported
EXCEPTION = "backend: RuntimeError: soaked"


@dataclass(frozen=True)
class Event:
    """A fault that was done: to which run, and what."""

    run: int
    kind: str  # signal, exception, full disk
    role: str
    signal: str


@dataclass(frozen=True)
class Usage:
    """What the supervisor used as a run began."""

    rss_bytes: int
    descriptors: int


@dataclass(frozen=True)
class Found:
    """All that a soak has left and seen."""

    directory: Path
    events: list[Event]
    usage: list[list[Usage]]
    codes: list[int]
    ended: list[str]
    mark: str
    shared_before: set[str]
    temporary: Path
    seconds: float


def judge(found: Found, asked: int, seed: int) -> tuple[str, list[str]]:
    """The summary as Markdown, and a line for each thing that is wrong."""
    records, unreadable = read_records(found.directory)
    by_run = {int(record.directory.name): record for record in records}
    problems = [*unreadable, *wrong_verdicts(by_run, found.events), *wrong_metrics(records), *unnamed(records, found)]
    problems += [*leaks(found), *growth(found.usage)]
    if len(by_run) < 0.9 * asked and found.ended[-1] == "by itself":
        problems.append(f"{len(by_run)} records of {asked} runs")
    return report(found, records, problems, asked, seed), problems


def lacks(directory: Path) -> bool:
    """Whether a run of the sweep has no record."""
    manifest = read_manifest(directory)
    return manifest is None or bool(manifest.missing(read_records(directory)[0]))


def wrong_verdicts(by_run: dict[int, Record], events: list[Event]) -> Iterable[str]:
    """A run that no fault met must be valid; one that met one must be valid (too late) or say which."""
    met = {event.run: event for event in events}
    for number, record in sorted(by_run.items()):
        status, reason = record.verdict.status, " ".join(record.reasons)
        if status == "valid":
            continue
        event = met.get(number)
        # A fork server that dies as a run ends, a disk that is full as one ends, are met by the next.
        before = met.get(number - 1)
        if not any(explains(one, record) for one in (event, before if _lasts(before) else None) if one):
            yield f"run {number:04d} is {status} ({reason}), and its fault was {event}"


def _lasts(event: Event | None) -> bool:
    return event is not None and (event.role == "fork server" or event.kind != "signal")


def explains(event: Event, record: Record) -> bool:
    """Whether a failed run says what was done to it."""
    reason = record.reasons[0]
    if record.verdict.status != "failed" or record.error is None:
        return False
    if event.kind == "exception":
        return reason == EXCEPTION and "soak_model.py" in (record.error["traceback"] or "")
    if event.kind == "full disk":
        return "space" in reason or "large" in reason
    word = "is stopped (SIGSTOP)" if event.signal == "SIGSTOP" else f"was killed by {event.signal}"
    return reason.startswith(f"the {event.role} {word}") and record.error["process"] == event.role


def wrong_metrics(records: list[Record]) -> Iterable[str]:
    """Valid runs' metrics, made again from every request's stamps."""
    for record in records:
        if record.verdict.status != "valid":
            continue
        settings = record.settings
        again = run_metrics(read_stamps(record.directory), settings["batch_size"], settings["warmup_iters"])
        for name, value in again.items():
            if not math.isclose(value, record.metrics.get(name, math.nan), rel_tol=1e-9):
                yield f"run {record.directory.name}: {name}={record.metrics.get(name)}, its stamps say {value}"


def unnamed(records: list[Record], found: Found) -> Iterable[str]:
    """Failed runs whose reason is not in the sweep's summary."""
    summary = _without_digits((found.directory / "summary.md").read_text("utf-8"))  # it tells alike reasons once
    for record in records:
        if record.verdict.status != "valid" and _without_digits(escaped(record.reasons[0])) not in summary:
            yield f"run {record.directory.name} is not explained in summary.md: {record.reasons[0]}"


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def leaks(found: Found) -> Iterable[str]:
    """Processes, shared memory and temporary files that are still there."""
    if left := living(found.mark):
        yield f"processes still there: {left}"
    if shared := in_shared_memory() - found.shared_before:
        yield f"left in /dev/shm: {sorted(shared)}"
    names = {path.name for path in found.temporary.iterdir()}
    if files := sorted(name for name in names if not name.startswith(TORCHS_OWN)):
        yield f"left in the temporary directory: {files}"


def living(mark: str) -> dict[int, str]:
    """Processes that carry the mark, by id."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if f"BENCH_SOAK={mark}".encode() in (directory / "environ").read_bytes().split(b"\0"):
                found[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")[:100]
        except OSError:
            continue
    return found


def in_shared_memory() -> set[str]:
    """Names of what torch and multiprocessing place in /dev/shm."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("torch_", "sem.mp-", "psm_", "pym-"))}


def growth(usage: list[list[Usage]]) -> Iterable[str]:
    """A supervisor whose memory or descriptors grow from its first quarter of runs to its last."""
    for command in usage:
        if len(command) < WARM_UP + FEW_RUNS:
            continue
        first, last = quarters([one.rss_bytes for one in command])
        if last > first * (1 + MOST_GROWTH):
            yield f"the supervisor grew from {first / 2**20:.1f} to {last / 2**20:.1f} MiB in {len(command)} runs"
        first, last = quarters([one.descriptors for one in command])
        if last > first + MOST_DESCRIPTORS:
            yield f"the supervisor held {first:.0f} descriptors, and {last:.0f} in the end"


def quarters(values: list[int]) -> tuple[float, float]:
    """Medians of the first and of the last quarter, the warm-up left out."""
    values = values[WARM_UP:] if len(values) >= WARM_UP + FEW_RUNS else values
    size = max(1, len(values) // 4)
    return statistics.median(values[:size]), statistics.median(values[-size:])


def slope(values: list[int]) -> float:
    """Growth a run, by least squares, the warm-up left out."""
    values = values[WARM_UP:] if len(values) >= WARM_UP + FEW_RUNS else values
    return statistics.linear_regression(range(len(values)), values).slope if len(values) > 1 else 0.0


def report(found: Found, records: list[Record], problems: list[str], asked: int, seed: int) -> str:
    """The soak in words and tables."""
    verdicts = Counter(record.verdict.status for record in records)
    faults = Counter((event.kind, event.role, event.signal) for event in found.events)
    commands = []
    for usage, code, how in zip(found.usage, found.codes, found.ended, strict=True):
        rss, descriptors = [one.rss_bytes for one in usage], [one.descriptors for one in usage]
        memory = [f"{value / 2**20:.1f}" for value in quarters(rss)] if rss else ["", ""]
        files = [f"{value:.0f}" for value in quarters(descriptors)] if descriptors else ["", ""]
        commands.append([str(len(usage)), how, str(code), *memory, f"{slope(rss) / 2**10:+.1f}", *files])
    failed = [
        [record.directory.name, (record.error or {}).get("process") or "", escaped(record.reasons[0])]
        for record in records
        if record.verdict.status != "valid"
    ]
    header = ["runs", "ended", "exit code", "MiB, first quarter", "last", "KiB a run", "descriptors, first", "last"]
    parts = [
        f"# Soak: {'nothing is wrong' if not problems else f'{len(problems)} things are wrong'}",
        f"{len(records)} records of {asked} runs asked for, {len(found.events)} faults, seed {seed}, "
        f"{found.seconds / 60:.1f} minutes: " + ", ".join(f"{count} {name}" for name, count in verdicts.items()) + ".",
        "\n".join(f"- {escaped(problem)}" for problem in problems),
        "## Commands and what the supervisor used\n\n" + markdown_table(header, commands, right=range(2, 8)),
        "## Faults\n\n"
        + markdown_table(
            ["fault", "process", "signal", "times"],
            [[*key, str(count)] for key, count in sorted(faults.items())],
            right=(3,),
        ),
        "## Runs that do not count\n\n" + markdown_table(["run", "process", "reason"], failed),
    ]
    return "\n\n".join(part for part in parts if part)
