"""skip_larger=true: which runs need not be tried, since a smaller one ran out of memory. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.config import NO_NUMBER, Settings
from bench.results.record import Record


def ran_out_of_memory(settings: Settings, records: Sequence[Record], first: int = 0) -> int | None:
    """The smallest batch size, up to that of `settings`, at which the same settings ran out of memory; None if none.

    What is about to be made anew does not count: a record of this very run, and one of an earlier command, whose runs
    are numbered below `first`, with a verdict in `retry`. Nor does one that was itself skipped.
    """
    again = settings.retry or []
    row = _row(settings.as_mapping())
    sizes = [
        record.settings["batch_size"]
        for record in records
        if (record.error or {}).get("memory") is not None
        and record.fingerprint != settings.fingerprint
        and not (record.verdict.status in again and (record.job or 0) < first)
        and record.settings["batch_size"] <= settings.batch_size
        and _row(record.settings) == row
    ]
    return min(sizes, default=None)


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    """What cells that differ in their batch size only have in common."""
    return {key: value for key, value in values.items() if key not in (*NO_NUMBER, "repeat", "batch_size")}
