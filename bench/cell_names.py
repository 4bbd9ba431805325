"""Names for some of a sweep's cells, as short as their swept values allow. Pure."""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from bench.config import Settings, flatten
from bench.results.summary import varying
from bench.results.text import shown

_MOST = 4  # cells named one by one
_MOST_VALUES = 8  # of an axis


class CellNames:
    """The cells of a sweep, by their identities (`Settings.cell`)."""

    def __init__(self, cells: Sequence[Settings]) -> None:
        self._values: dict[str, dict[str, str]] = {}
        flats = [flatten(cell.as_mapping()) for cell in cells]
        self.axes = varying(flats)
        for cell, flat in zip(cells, flats, strict=True):
            self._values[cell.cell] = {axis: shown(flat.get(key)) for axis, key in self.axes.items()}

    def values(self, cell: str) -> dict[str, str]:
        """The value of each swept axis, as YAML spells it; batch_size and compile where none is swept."""
        return self._values[cell]

    def name(self, chosen: Collection[str]) -> str:
        """`batch_size=64,128 compile=true` for the cells `chosen`; empty for all."""
        if len(chosen) == len(self._values):
            return ""
        wanted = {axis: list(dict.fromkeys(self._values[cell][axis] for cell in chosen)) for axis in self.axes}
        told = {axis: values for axis, values in wanted.items() if len(values) < len(self._all(axis))}
        matching = [c for c, v in self._values.items() if all(v[axis] in values for axis, values in told.items())]
        if len(matching) == len(chosen) and all(len(values) <= _MOST_VALUES for values in told.values()):
            return _words({axis: ",".join(values) for axis, values in (told or wanted).items()})
        names = [_words(self._values[cell]) for cell in islice(chosen, _MOST)]
        return "; ".join([*names, *([f"and {len(chosen) - _MOST} more cells"] if len(chosen) > _MOST else [])])

    def problem(self, text: str, chosen: Collection[str]) -> str:
        """`text` with the cells that it is said of in front, unless it names them itself."""
        name = self.name(chosen)
        return text if not name or text.startswith(name) else f"{name}: {text}"

    def _all(self, axis: str) -> set[Any]:
        return {values[axis] for values in self._values.values()}


def _words(values: dict[str, str]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in values.items())
