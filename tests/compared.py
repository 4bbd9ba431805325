"""Two sweeps of synthetic records, and a call of `bench.compare` on them, for its tests."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from make_records import make_record, write_sweep

from bench.compare import main
from bench.results.record import Record

STEADY = (99.0, 100.0, 101.0, 100.0)


def runs(throughputs: Sequence[float] = STEADY, factor: float = 1.0, **others: Any) -> list[Record]:
    """Repeats of one cell; the latency is in inverse proportion to the throughput."""
    changes = others.pop("changes", {})
    return [
        make_record(
            {"repeat": k, **changes},
            metrics={"throughput": value * factor, "average_latency": 1 / (value * factor)},
            seconds=k,
            **others,
        )
        for k, value in enumerate(throughputs)
    ]


def swept(factors: dict[int, float], **others: Any) -> list[Record]:
    """A sweep over batch sizes, each so many times as fast as STEADY."""
    changes = others.pop("changes", {})
    return [
        record
        for size, factor in factors.items()
        for record in runs(factor=factor, changes={"batch_size": size, **changes}, **others)
    ]


class Compared:
    """One call: its exit code, and the tables that it printed and wrote."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], place: Path, first: list[Record], second: list[Record], *options: str
    ) -> None:
        a, b = write_sweep(place / "a", *first), write_sweep(place / "b", *second)
        output = place / "new" / "output"
        self.code = main([str(a), str(b), "--output", str(output), *options])
        printed = capsys.readouterr()
        self.out, self.err = printed.out, printed.err
        self.header: list[str] = []
        self.rows: list[list[str]] = []
        self.csv: list[dict[str, str]] = []
        if output.exists():
            self.markdown = (output / "comparison.md").read_text(encoding="utf-8")
            lines = [line for line in self.markdown.splitlines() if line.startswith("|")]
            self.header, _, *self.rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
            with (output / "comparison.csv").open(encoding="utf-8", newline="") as file:
                self.csv = list(csv.DictReader(file, strict=True))

    def column(self, name: str) -> list[str]:
        return [row[self.header.index(name)] for row in self.rows]
