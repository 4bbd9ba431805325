"""The columns of telemetry.csv that are drawn over the time of a run, by the axis that they share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A line: its column, its words, the number of its colour, and whether it is dashed."""

    name: str
    words: str
    colour: int  # the GPU green, the host's cores blue, the backend's part red, the frontend's orange
    dashed: bool = False


@dataclass(frozen=True)
class Row:
    """One kind of quantity: its axis, what makes its unit of the file's, and what the axis reaches at least."""

    axis: str
    columns: tuple[Column, ...]
    factor: float = 1.0
    top: float = 0.0


ROWS = (
    Row("Busy (%)", (Column("gpu_util", "GPU", 2), Column("cpu_util", "CPU, all cores", 0, dashed=True)), top=100),
    Row(
        "CPU (% of one core)",
        (Column("backend_cpu_util", "backend", 1), Column("frontend_cpu_util", "frontend", 4, dashed=True)),
        top=100,
    ),
    Row("GPU power (W)", (Column("gpu_power_w", "GPU", 2),)),
    Row(
        "Memory (GiB)",
        (Column("gpu_memory_used_bytes", "GPU", 2), Column("backend_rss_bytes", "backend", 1, dashed=True)),
        factor=2.0**-30,
    ),
)
LEAST_SAMPLES = 3  # of a run, for its course to be drawn
