"""What the supervisor gives the two processes of a run."""

from dataclasses import dataclass
from pathlib import Path

from bench.config import Settings
from bench.frontend.load import Plan
from bench.queues.memory import Board
from bench.queues.shared_memory import SharedMemoryQueue
from bench.queues.torch_queue import TorchQueue


@dataclass(frozen=True)
class RunSetup:
    """Plain data and file descriptors; nothing of Hydra, nothing of torch.

    Attributes:
        compile_cache: the directory in which the compiler keeps what it makes.
        trace: where a profile of the backend goes; None for no profile.
    """

    settings: Settings
    plan: Plan
    board: Board
    queue: SharedMemoryQueue | TorchQueue
    compile_cache: str
    trace: Path | None
