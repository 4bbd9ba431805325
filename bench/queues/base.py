"""The small interface behind which the two queues stand.

A request is an index; its payload is `index % payloads`. Two control messages travel among them:
BEGIN, answered when the backend is at rest and the measured window may start, and END, answered
when it has stopped reading. No end of anything is ever guessed from silence.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

BEGIN = -1
END = -2


class Buffer:
    """Host memory for one answer, on its way from the backend to the frontend."""

    __slots__ = ("slot", "tensor")

    def __init__(self, slot: int, tensor: "torch.Tensor") -> None:
        self.slot = slot
        self.tensor = tensor


class Client(Protocol):
    """The frontend's end."""

    prepares: bool
    """Whether `prepare` takes time, so that it should not hold up the receiving of answers."""

    def prepare(self, index: int) -> None:
        """Do what must be done before request `index` can be stamped as sent. May wait for room."""

    def send(self, index: int) -> None:
        """Put request `index`, or a control message, into the request queue."""

    def receive(self, timeout_s: float) -> Sequence[int]:
        """Indexes of the answers that have arrived, each stamped as completed; empty after `timeout_s`."""

    def close(self) -> None:
        """Let go of everything shared."""


class Server(Protocol):
    """The backend's end."""

    def receive(self, timeout_s: float) -> "Sequence[tuple[int, torch.Tensor | None]]":
        """Requests that have arrived, as `(index, input)`; a control message has no input."""

    def allocate(self, output: "torch.Tensor", slots: int) -> None:
        """Make host memory for answers like `output`, `slots` of them at the same time."""

    def reserve(self) -> Buffer:
        """Host memory for one answer; waits while the frontend holds all of it."""

    def respond(self, index: int, buffer: Buffer | None, more: bool = False) -> None:
        """Put the answer to request `index`, or to a control message, into the response queue.

        With `more` the caller promises the next answer within microseconds, and this one may be announced with it.
        """

    def close(self) -> None:
        """Let go of everything shared."""
