"""The tables of one sweep, made whole from its records: runs.csv, summary.csv and summary.md."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.config import flatten
from bench.results.files import write_text
from bench.results.headline import HEADLINE
from bench.results.markdown import summary_markdown
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.summary import Summary, summarize
from bench.results.text import shown

_WITH_INTERVAL = (*HEADLINE, "latency_p50", "latency_p99", "goodput")
TABLES = ("summary.md", "summary.csv", "runs.csv")


def write_tables(sweep_dir: Path, interrupted: bool = False, expected: int | None = None) -> str:
    """Write the three tables of the records in `sweep_dir` and return the Markdown.

    `expected` is how many runs the sweep has in all; `interrupted` marks one that will not go on.
    """
    sweep_dir = Path(sweep_dir)
    records, problems = read_records(sweep_dir)
    summary = summarize(records)
    markdown = summary_markdown(summary, problems, interrupted, expected)
    for name, text in zip(TABLES, (markdown, summary_csv(summary), runs_csv(records, sweep_dir)), strict=True):
        write_text(sweep_dir / name, text)
    return markdown


def runs_csv(records: Sequence[Record], base: Path) -> str:
    """A row a run: its name, place below `base`, time and verdict, then every setting and every metric."""
    settings = [_settings(record) for record in records]
    columns = list(
        dict.fromkeys(
            [
                *("experiment", "directory", "started_at", "repeat", "verdict", "reasons", "warnings"),
                *(key for flat in settings for key in flat),
                *(name for record in records for name in record.metrics),
            ]
        )
    )

    def rows() -> Iterator[dict[str, Any]]:
        for record, flat in zip(records, settings, strict=True):
            facts = {
                "experiment": record.experiment,
                "directory": record.directory.relative_to(base).as_posix(),
                "started_at": record.started_at,
                "verdict": record.verdict.status,
                "reasons": "; ".join(record.reasons),
                "warnings": "; ".join(record.verdict.warnings),
            }
            yield {**flat, **record.metrics, **facts}

    return _csv(columns, rows())


def summary_csv(summary: Summary) -> str:
    """A row a cell: the swept axes, n, verdict, then mean and standard deviation of each metric.

    The headline metrics have the 95 % t-interval of their mean and the coefficient of variation, too.
    """
    columns = ["experiment", *summary.axes, "n", "verdict"]
    for name in summary.metrics:
        kinds = ("mean", "std", "ci_low", "ci_high", "cv") if name in _WITH_INTERVAL else ("mean", "std")
        columns += [f"{name}_{kind}" for kind in kinds]
    rows = []
    for cell in summary.cells:
        row = {**cell.axes, "experiment": cell.experiment, "n": cell.n, "verdict": cell.verdict}
        for name, statistic in cell.metrics.items():
            row[f"{name}_mean"] = statistic.mean
            if statistic.std is not None:
                row[f"{name}_std"] = statistic.std
            if name in _WITH_INTERVAL and statistic.interval is not None:
                row[f"{name}_ci_low"], row[f"{name}_ci_high"] = statistic.interval
                row[f"{name}_cv"] = statistic.cv
        rows.append(row)
    return _csv(columns, rows)


def _settings(record: Record) -> dict[str, Any]:
    return {key: value for key, value in flatten(record.settings).items() if key != "experiment"}


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV text with a header. What a row lacks is empty; null, true and lists are spelled as in YAML."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_plain(column) for column in columns])
    for row in rows:
        writer.writerow([_plain(shown(row[key])) if key in row else "" for key in columns])
    return buffer.getvalue()


def _plain(text: str) -> str:
    # Readers take a carriage return for the end of a row, and refuse a NUL.
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
