"""Values as words: numbers with the digits they deserve, any user's text in Markdown, plain terminals."""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from rich.cells import cell_len

from bench.results.statistics import Statistic

ABSENT = "–"
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # made once: tables of a sweep hold 100,000 values
_WIDE = 1.5  # high over low, from which on digits of the width hide the lower bound
_ASCII = {" ± ": "+/-", "±": "+/-", "–": "-", "…": "...", "×": "x", "µ": "u", "→": "->"}


def shown(value: Any) -> str:
    """A setting's value as YAML would spell it."""
    if isinstance(value, str):
        return value
    return _JSON.encode(value)


def mean_std(statistic: Statistic | None) -> str:
    """`mean ± std`: the deviation to 2 significant digits, the mean to the same place; or one value to 4."""
    if statistic is None:
        return ABSENT
    mean, std = statistic.mean, statistic.std
    if std is None:
        return significant(mean, 4)
    if std == 0 or abs(mean) > 1e8 * std:  # no more digits than a float's noise deserves
        return f"{significant(mean, 4)} ± {significant(std, 2)}"
    places = _places(std, 2)
    return f"{_fixed(mean, places)} ± {_fixed(std, places)}"


def ratio_interval(ratio: float, low: float | None, high: float | None, digits: int = 2) -> tuple[str, str]:
    """A positive ratio and its interval, to so many digits of its half width; to 4 of its own without one.

    Where the interval is wide each number has 2 digits of its own, since no bound may become 0.
    """
    if low is None or high is None:
        return significant(ratio, 4), ABSENT
    half = (high - low) / 2
    own = 2 if high > _WIDE * low else 4 if half <= ratio / 1e8 else None  # a float's noise deserves no more
    texts = [significant(x, own) if own else _fixed(x, _places(half, digits)) for x in (ratio, low, high)]
    return texts[0], f"{texts[1]} to {texts[2]}"


def significant(value: float, digits: int) -> str:
    """`value` to so many significant digits, without an exponent unless it is tiny or huge."""
    return "0" if value == 0 else _fixed(value, _places(value, digits))


def _places(value: float, digits: int) -> int:
    # Through the formatted number, since rounding may carry: 0.0996 to two digits is 0.10.
    return digits - 1 - int(f"{value:.{digits - 1}e}".partition("e")[2])


def _fixed(value: float, places: int) -> str:
    if abs(places) > 9:
        return f"{value:.4g}"
    return f"{round(value, places):.{max(places, 0)}f}"


def escaped(text: str) -> str:
    """`text` on one line, in Markdown as itself: no markup, no column, no control character."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = re.sub(r"([\\|`*<~]|\](?=[(\[])|&(?=#?\w+;))", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)  # inside a word it marks nothing


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """A Markdown table whose columns are aligned in a terminal too, those in `right` to the right.

    Cells must be escaped already.
    """
    widths = [max(3, *(cell_len(row[i]) for row in (header, *rows))) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = []
        for i, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(text))
            cells.append(space + text if i in right else text + space)
        return f"| {' | '.join(cells)} |"

    rule = ["-" * (width - 1) + (":" if i in right else "-") for i, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)]) + "\n"


def printable(text: str, encoding: str | None) -> str:
    """`text`, or what stands for it on a terminal of this `encoding` (None: ASCII)."""
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except LookupError:
        return printable(text, "ascii")
    except UnicodeEncodeError:
        for char, plain in _ASCII.items():
            text = text.replace(char, plain)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
