"""Every metric has a title, a unit and a better direction in one table, which the README's list agrees with."""

import re
from pathlib import Path

import numpy as np
import pytest

from bench.job import compose
from bench.results.load import load_metrics
from bench.results.metric_names import METRICS, metric
from bench.results.metrics import Stamps, run_metrics
from bench.results.overlap import overlap_metrics
from bench.results.stages import stage_metrics
from bench.stamps import WIDTH

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def stamps(requests: int) -> Stamps:
    """Requests one after the other, each stamp a microsecond after the last."""
    whole: Stamps = 1 + 1000 * np.arange(requests * WIDTH, dtype=np.int64).reshape(requests, WIDTH)
    return whole


def test_every_metric_of_the_stamps_is_known() -> None:
    """All that an open load with an SLO can give, percentiles of its latencies and stages up to p99.9 included."""
    rows = stamps(4000)
    settings = compose("load=constant", "load.rate=10", "slo.latency_ms=1")
    found = run_metrics(rows, 1, 1) | load_metrics(settings, rows) | stage_metrics(rows) | overlap_metrics(rows)
    assert {"latency_p99_9", "compute_wait_p99_9", "slo_share", "copy_overlap"} <= found.keys()
    assert [name for name in found if metric(name).unit == "" and name not in METRICS] == []


@pytest.mark.parametrize(
    ("name", "heading", "words"),
    [
        ("throughput", "Throughput (samples/s)", "throughput"),
        ("average_latency", "Average latency (s)", "average latency"),
        ("latency_p99_9", "Latency p99.9 (s)", "p99.9"),
        ("service_latency_p50", "Service latency p50 (s)", "service latency p50"),
        ("h2d_p90", "Copy to the device p90 (s)", "copy to the device p90"),
        ("gpu_util", "GPU utilization (%)", "GPU utilization"),
        ("load1", "Load average, 1 min", "load average, 1 min"),
        ("compute_wait_p42", "Compute wait p42", "compute wait p42"),
        ("of_another_version", "Of another version", "of another version"),
    ],
)
def test_a_metric_in_words(name: str, heading: str, words: str) -> None:
    """Percentiles are named after what they are of; a metric that is not known goes by its own name."""
    assert (metric(name).name, metric(name).heading, metric(name).words) == (name, heading, words)


def test_the_readme_has_the_units_of_the_table() -> None:
    """Each metric that its list names is known, and has the unit that stands beside it."""
    rows = re.findall(r"^\| (`\w+`.*?) \| (\S*) ?\| ", README.partition("| metric | unit |")[2], re.MULTILINE)
    listed = [(name, unit) for names, unit in rows for name in re.findall(r"`(\w+)`", names)]
    assert len(listed) > 15
    assert [(name, metric(name).unit) for name, _ in listed] == listed
    assert [name for name, _ in listed if metric(name).title == name] == []
