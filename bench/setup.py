"""What the supervisor and its processes give each other. Nothing here imports torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.backend.checkpoints import Prepared
from bench.config import Settings
from bench.frontend.load import Plan
from bench.queues.memory import Board
from bench.queues.shared_memory import SharedMemoryQueue
from bench.queues.torch_queue import TorchQueue
from bench.sizes import Sizes


@dataclass(frozen=True)
class RunSetup:
    """Plain data and file descriptors; nothing of Hydra, nothing of torch.

    Attributes:
        compile_cache: the directory in which the compiler keeps what it makes.
        trace: where a profile of the backend goes; None for no profile.
        references: what an earlier run found the answers to be, see `bench.backend.references`; None if none did.
    """

    settings: Settings
    plan: Plan
    board: Board
    queue: SharedMemoryQueue | TorchQueue
    compile_cache: str
    trace: Path | None
    references: dict[str, Any] | None


@dataclass(frozen=True)
class Checked:
    """What the preflight found out about one cell: sizes, and its checkpoint with whether this preflight fetched it."""

    sizes: Sizes
    prepared: Prepared
