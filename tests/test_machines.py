"""What tells two machines apart: one identity for resuming, comparing and tables."""

from typing import Any

import pytest
from make_records import make_record

from bench.results.machines import differences, kinds, places

HERE: dict[str, Any] = {
    "hostname": "box",
    "machine_id": "0123456789ab",
    "kernel": "6.1.0-21-amd64",
    "cpu": {"model": "Some CPU", "cores": 8},
    "gpu": [{"name": "GPU", "uuid": "GPU-1", "driver": "570.1"}],
    "versions": {"python": "3.11.2", "torch": "2.14.1", "triton": "3.5", "pandas": "2.2"},
}
DIFFERENT: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "machine": ({"machine_id": "ba9876543210"}, ("machine", "box (0123456789ab)", "box (ba9876543210)")),
    "cores": ({"cpu": {"model": "Some CPU", "cores": 4}}, ("cores", "8", "4")),
    "kernel": ({"kernel": "6.12.0-1"}, ("kernel", "6.1", "6.12")),
    "driver": (
        {"gpu": [{"name": "GPU", "uuid": "GPU-1", "driver": "580.2"}]},
        ("GPUs", "GPU (GPU-1, 570.1)", "GPU (GPU-1, 580.2)"),
    ),
    "no GPU": ({"gpu": None}, ("GPUs", "GPU (GPU-1, 570.1)", "none")),
    "triton": ({"versions": {"python": "3.11.2", "torch": "2.14.1"}}, ("triton", "3.5", "none")),
}
SAME: dict[str, dict[str, Any]] = {
    "a container's name": {"hostname": "d2c7f00f"},
    "a kernel's security update": {"kernel": "6.1.0-22-amd64"},
    "a package that measures nothing": {"versions": HERE["versions"] | {"pandas": "3.1"}},
    "a governor": {"cpu": HERE["cpu"] | {"governor": "powersave"}},
}


@pytest.mark.parametrize(("change", "difference"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_keeps_numbers_apart_is_named(change: dict[str, Any], difference: tuple[str, str, str]) -> None:
    """With both values; and the two are two places in the tables."""
    assert differences(HERE, HERE | change) == [difference]
    assert kinds([HERE, HERE | change]) == [HERE, HERE | change]
    found = places([make_record(environment=HERE), make_record({"repeat": 1}, environment=HERE | change)])
    assert list(found.values()) == [1, 1]


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_changes_no_number_is_no_difference(change: dict[str, Any]) -> None:
    """One machine, one place, whose runs are counted together."""
    assert differences(HERE, HERE | change) == []
    found = places([make_record(environment=HERE), make_record({"repeat": 1}, environment=HERE | change)])
    assert list(found.values()) == [2]


def test_what_one_does_not_know_is_no_difference() -> None:
    """A run that failed early joins those that know more, whichever comes first."""
    little = {"hostname": "box", "machine_id": "0123456789ab"}
    assert differences(little, HERE) == []
    assert kinds([little, HERE]) == [HERE]
