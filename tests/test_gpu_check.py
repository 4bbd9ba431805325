"""What scripts/gpu_check prints; the check itself needs a GPU."""

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
gpu_check: Any = importlib.import_module("gpu_check")  # the scripts are no package


def test_share_that_is_not_known_is_a_dash() -> None:
    """An overlap that was measured as none is 0 %, one that was not measured is not."""
    assert [gpu_check.share(value) for value in (None, 0.0, 0.994)] == ["–", "0 %", "99 %"]
