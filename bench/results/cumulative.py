"""PyTorch's cumulative tables: every sweep and single run so far, a file a batch size and compile."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock

from bench.errors import BenchError
from bench.results.files import write_text
from bench.results.machines import hardware, machine, measured
from bench.results.record import Record
from bench.results.records import read_records, subdirectories
from bench.results.statistics import Statistic
from bench.results.summary import Cell, summarize, swept_axes
from bench.results.tables import runs_csv
from bench.results.text import ABSENT, escaped, markdown_table, shown

_COLUMNS = {
    "warmup_latency": "Warmup_latency (s)",
    "average_latency": "Average_latency (s)",
    "throughput": "Throughput (samples/sec)",
    "gpu_util": "GPU Utilization (%)",
}
_HEADING = "## Batch Size "
_LOCK_TIMEOUT_S = 60.0

_log = logging.getLogger(__name__)


def write_cumulative(output_dir: Path) -> list[Path]:
    """Write the tables of all records below `output_dir` into its `results` and return their paths.

    Raises:
        BenchError: when another process has held their lock for a minute.
    """
    output_dir = Path(output_dir)
    results = output_dir / "results"
    results.mkdir(parents=True, exist_ok=True)
    try:
        # Read under the lock too: whoever writes last must have read last.
        with filelock.FileLock(results / ".lock", timeout=_LOCK_TIMEOUT_S):
            return _write(output_dir, results)
    except filelock.Timeout as error:
        raise BenchError(f"{error.lock_file}: held by another process for {_LOCK_TIMEOUT_S:.0f} s") from error


def _write(output_dir: Path, results: Path) -> list[Path]:
    sweeps = _read(output_dir)
    records = sorted((record for sweep in sweeps for record in sweep), key=lambda record: record.started)
    files = {"output.csv": runs_csv(records, output_dir)}
    names = _Names.of(records)
    tables: dict[tuple[int, bool], list[list[str]]] = {}
    for sweep in sweeps:
        for cell in summarize(sweep).cells:
            key = (cell.settings["batch_size"], cell.settings["compile"])
            tables.setdefault(key, []).append(_row(cell, names))
    for (batch_size, compiled), rows in sorted(tables.items()):
        heading = f"{_HEADING}{batch_size} Compile {shown(compiled)}"
        table = markdown_table(["Experiment", *_COLUMNS.values()], rows, right=range(1, len(_COLUMNS) + 1))
        files[f"output_{batch_size}_{shown(compiled)}.md"] = f"{heading}\n\n{table}"
    for name, text in files.items():
        write_text(results / name, text)
    _remove_stale(results, files)
    return [results / name for name in files]


def _read(output_dir: Path) -> list[list[Record]]:
    """The records of each sweep or single run, oldest first."""
    sweeps = []
    for experiment in subdirectories(output_dir):
        for sweep_dir in subdirectories(experiment):
            records, problems = read_records(sweep_dir)
            for problem in problems:
                _log.warning("left out of the cumulative tables: %s", problem)
            if records:
                sweeps.append(records)
    return sorted(sweeps, key=lambda records: records[0].started)


@dataclass(frozen=True)
class _Names:
    """What tells rows apart: the settings that differ, and the machine where there are several."""

    axes: Mapping[str, str]
    machines: int
    hosts: int

    @classmethod
    def of(cls, records: list[Record]) -> "_Names":
        axes = {k: v for k, v in swept_axes(records).items() if k not in ("batch_size", "compile")}
        environments = [record.environment for record in measured(records)]
        machines = {found: environment for environment in environments if (found := hardware(environment))}
        hosts = {str(environment.get("hostname", "")) for environment in machines.values()} - {""}
        return cls(axes, len(machines), len(hosts))

    def of_cell(self, cell: Cell) -> str:
        """`my_sweep (num_workers=2)`."""
        details = [f"{label}={shown(cell.settings.get(key))}" for label, key in self.axes.items()]
        if self.machines > 1:
            environment = measured(cell.records)[0].environment
            # Its name says enough unless one name stands for several machines.
            name = environment.get("hostname") if self.hosts == self.machines else None
            details.append(f"machine={name or machine(environment)}")
        return cell.experiment + (f" ({', '.join(details)})" if details else "")


def _row(cell: Cell, names: _Names) -> list[str]:
    values = [cell.verdict if cell.n == 0 else _value(cell.metrics.get(name)) for name in _COLUMNS]
    return [escaped(names.of_cell(cell)), *values]


def _value(statistic: Statistic | None) -> str:
    if statistic is None:
        return ABSENT
    return f"{statistic.mean:.3f}" + (f" +/- {statistic.std:.3f}" if statistic.std is not None else "")


def _remove_stale(results: Path, files: Mapping[str, str]) -> None:
    """Remove tables of ours whose records are gone; what else lies there is the user's."""
    for path in results.glob("output_*_*.md"):
        if path.name not in files and path.read_bytes().startswith(_HEADING.encode()):
            path.unlink()
