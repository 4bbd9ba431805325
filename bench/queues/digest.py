"""A digest: the few numbers kept of every answer, compared with the reference after the run.

At most eight elements of up to four rows are copied, as raw bytes, so that an answer costs well
under a microsecond while a run is measured, and a reference needs no more than four rows of a
payload to be computed again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench.queues.memory import DIGEST_BYTES, OUTPUT_BYTES, OUTPUT_ITEMSIZE, OUTPUT_ROWS, OUTPUT_SLOTS

if TYPE_CHECKING:
    import torch

_ELEMENTS = 8
_ROWS = 4
CODES: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}  # raw bits, by itemsize


@dataclass(frozen=True)
class DigestPlan:
    """Which elements of an answer are kept.

    Attributes:
        pieces: slices `(start, stop, step)` of the flattened output, in elements.
        rows: the rows they lie in; empty where the first dimension is not the batch.
    """

    itemsize: int
    pieces: tuple[tuple[int, int, int], ...]
    rows: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Numbers kept of one answer."""
        return sum(len(range(*piece)) for piece in self.pieces)

    @property
    def stride(self) -> int:
        """Elements from one request's digest to the next one's."""
        return DIGEST_BYTES // self.itemsize

    @classmethod
    def of(cls, numel: int, itemsize: int, rows: int) -> "DigestPlan":
        """The plan for outputs of `numel` elements in `rows` rows (0: not divided into rows)."""
        elements = min(_ELEMENTS, DIGEST_BYTES // itemsize)
        if rows < 2:
            step = max(1, numel // elements)
            stop = min(numel, step * elements)
            return cls(itemsize, ((0, stop, step),), (0,) if rows else ())
        kept = min(rows, _ROWS)
        apart = (rows - 1) // (kept - 1)
        width = numel // rows
        columns = [0] if width == 1 or elements < 2 * kept else [0, width // 2]
        end = apart * (kept - 1) * width + 1
        pieces = tuple((column, column + end, apart * width) for column in columns)
        return cls(itemsize, pieces, tuple(range(0, apart * kept, apart)))


class DigestBook:
    """The digests of a run, filled by the frontend's receiver."""

    def __init__(self, plan: DigestPlan, digests: memoryview) -> None:
        self._plan = plan
        self._digests = digests.cast(CODES[plan.itemsize])
        self._stride = plan.stride
        lengths = [len(range(*piece)) for piece in plan.pieces]
        self._ranges = [(sum(lengths[:k]), sum(lengths[: k + 1])) for k in range(len(lengths))]

    def sources(self, output: memoryview) -> list[tuple[int, int, memoryview]]:
        """Where to copy from: `(from, to, view)` for each piece of one output, a memoryview of bytes."""
        flat = output.cast(CODES[self._plan.itemsize])
        return [
            (low, high, flat[slice(*piece)]) for (low, high), piece in zip(self._ranges, self._plan.pieces, strict=True)
        ]

    def keep(self, index: int, sources: list[tuple[int, int, memoryview]]) -> None:
        """Copy the digest of request `index`."""
        base = index * self._stride
        for low, high, view in sources:
            self._digests[base + low : base + high] = view


def announce_outputs(control: memoryview, output: "torch.Tensor", slots: int, batch_size: int) -> None:
    """Backend: write into the control block what answers look like. `output_plan` reads it."""
    rows = output.shape[0] if output.dim() else 0
    control[OUTPUT_BYTES] = output.numel() * output.element_size()
    control[OUTPUT_ITEMSIZE] = output.element_size()
    control[OUTPUT_ROWS] = rows if rows == batch_size else 0
    control[OUTPUT_SLOTS] = slots


def output_plan(control: memoryview) -> DigestPlan:
    """The plan for the answers that the control block announces."""
    itemsize = control[OUTPUT_ITEMSIZE]
    return DigestPlan.of(control[OUTPUT_BYTES] // itemsize, itemsize, control[OUTPUT_ROWS])
