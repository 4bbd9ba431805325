"""What a dry run prints of cells that differ in every way of naming them."""

from bench.dry_run import describe
from bench.job import compose
from bench.sizes import Sizes

FOUND = Sizes("cpu", 2**20, 4000, None)  # as the preflight tells it


def table(*cells: list[str]) -> list[list[str]]:
    settings = [compose(*overrides) for overrides in cells]
    text = describe(settings, {cell.cell: FOUND for cell in settings}, len(cells))
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


def test_model_and_device_are_one_column_each_where_they_are_swept() -> None:
    """The axis names the model, so nothing names it again; what device=auto came to stands beside what was asked."""
    header, _, first, second = table(["model=noop", "device=cpu"], ["model=resnet18", "device=auto"])
    assert header[:4] == ["device", "model", "runs on", "requests"]
    assert (first[:3], second[:3]) == (["cpu", "noop", "cpu"], ["auto", "resnet18", "cpu"])


def test_what_follows_from_a_group_is_no_axis() -> None:
    """load=burst against load=closed is one column, as in the tables of the sweep; one model is named too."""
    header, *_ = table(["load=burst"], ["load=closed"])
    assert header[:2] == ["load", "model"]


def test_one_cell_is_told_by_batch_size_and_compile() -> None:
    """As in the tables of the sweep."""
    header, _, row = table(["batch_size=8", "compile=false"])
    assert (header[:2], row[:2]) == (["batch_size", "compile"], ["8", "false"])
