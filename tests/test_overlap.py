"""The overlap of copies and forward passes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.results.overlap import length, overlap_metrics, union
from bench.stamps import COMPUTE_END, COMPUTE_START, D2H_END, D2H_START, H2D_END, H2D_START, WIDTH


def stages(*rows: tuple[int, int, int, int, int, int]) -> np.ndarray:
    stamps = np.zeros((len(rows), WIDTH), dtype=np.int64)
    stamps[:, [H2D_START, H2D_END, COMPUTE_START, COMPUTE_END, D2H_START, D2H_END]] = rows
    return stamps


def test_one_after_the_other_does_not_overlap() -> None:
    metrics = overlap_metrics(stages((0, 10, 10, 50, 50, 60), (60, 70, 70, 110, 110, 120)))
    assert metrics == {"copy_overlap": 0.0, "compute_concurrency": 1.0}


def test_a_copy_within_another_requests_pass_overlaps() -> None:
    # The second request's input (10 to 20) is copied during the first's pass (10 to 50): 10 of 40 ns of copies.
    metrics = overlap_metrics(stages((0, 10, 10, 50, 50, 60), (10, 20, 50, 90, 90, 100)))
    assert metrics["copy_overlap"] == pytest.approx(20 / 40)  # and the first's answer (50 to 60) in the second's pass
    assert metrics["compute_concurrency"] == 1.0


def test_two_passes_at_once_are_counted() -> None:
    metrics = overlap_metrics(stages((0, 0, 0, 100, 100, 100), (0, 0, 0, 100, 100, 100)))
    assert metrics == {"compute_concurrency": 2.0}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_a_union_covers_the_same_moments_once(pairs: list[tuple[int, int]]) -> None:
    intervals = np.array([(start, start + span) for start, span in pairs], dtype=np.int64).reshape(-1, 2)
    covered = {moment for start, end in intervals.tolist() for moment in range(start, end)}
    merged = union(intervals)
    assert {moment for start, end in merged.tolist() for moment in range(start, end)} == covered
    assert length(merged) == len(covered)
    assert (merged[1:, 0] > merged[:-1, 1]).all()
