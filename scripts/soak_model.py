"""The model of a soak: takes 5 ms, and raises once when a file `raise` lies in the working directory."""

import time
from pathlib import Path

from torch import Tensor

from bench.backend.models import Noop


class Soaked(Noop):
    """Noop, with an exception that comes from outside."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.005)
        flag = Path("raise")
        if flag.exists():
            flag.unlink(missing_ok=True)
            raise RuntimeError("soaked")
        return super().forward(x)
