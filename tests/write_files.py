"""Small files, such as those of /proc and of control groups, as a test wants them."""

from collections.abc import Mapping
from pathlib import Path


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Files with these texts, by their paths below `root`, which is returned."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root
