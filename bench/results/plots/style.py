"""How all pictures look: colours, headings, units, ticks. Figures are matplotlib's, never pyplot's state."""

import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bench.results.plots.arrangement import Look
from bench.results.text import significant

# Okabe and Ito's colours, which colour-blind people can tell apart, without the yellow, too pale for a line.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#767676"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans", "Arial Unicode MS", "Segoe UI", "Hiragino Sans")
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a $ in a user's name is a $
    "svg.fonttype": "none",  # texts stay texts: small, searchable, readable by machines
    "svg.hashsalt": "bench",  # the same picture is the same file
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}
_TITLE_SIZE, _NOTE_SIZE = 13, 9
_TITLE_IN, _LINE_IN, _MARGIN_IN = 0.34, 0.165, 0.1  # inches
_LETTERS_PER_IN = 14.2  # of a note
_LONGEST_BAR = 100  # times the smallest value, that an error bar may end below it and be shown whole

Which = Literal["x", "y"]


@contextmanager
def drawing() -> Iterator[None]:
    """The style of all pictures, whatever the user's own matplotlibrc says. To be held while one is made and saved."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script without a font here
        matplotlib.rcdefaults()
        there = set(fontManager.get_font_names())
        fonts = [name for name in _FONTS if name in there]
        matplotlib.rcParams.update(_STYLE | {"font.family": fonts or ["sans-serif"]})
        yield


def canvas(title: str, notes: Sequence[str], width: float, height: float) -> Figure:
    """A figure of so many inches below a heading of its own: the title and the notes under it."""
    lines = [line for note in notes for line in textwrap.wrap(clean(note), int(width * _LETTERS_PER_IN))]
    heading = _MARGIN_IN + _TITLE_IN + _LINE_IN * len(lines)
    total = height + heading
    # A layout of its own for each figure; the heading lies above what it may fill.
    figure = Figure(figsize=(width, total), layout=ConstrainedLayoutEngine(rect=(0.005, 0.005, 0.985, height / total)))
    top = 1 - _MARGIN_IN / total
    figure.text(0.012, top, clean(title), fontsize=_TITLE_SIZE, fontweight="bold", va="top")
    figure.text(0.012, top - _TITLE_IN * 0.85 / total, "\n".join(lines), fontsize=_NOTE_SIZE, color="#404040", va="top")
    return figure


def grid_of(figure: Figure, count: int, **shared: Any) -> list[Axes]:
    """`count` axes in rows of at most 4."""
    columns = columns_of(count)
    made = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).ravel()
    for spare in made[count:]:
        spare.remove()
    return list(made[:count])


def columns_of(count: int) -> int:
    """In how many columns so many panels stand."""
    return count if count < 4 else 2 if count == 4 else 3 if count <= 9 else 4


def clean(text: str) -> str:
    """`text` on one line without characters that fonts and XML do not know."""
    return "".join(char if char.isprintable() else " " for char in text)


def look(which: Look, *, marked: bool = True) -> dict[str, Any]:
    """Arguments of a line."""
    style: dict[str, Any] = {"color": PALETTE[which.colour], "linestyle": _DASHES[which.style % len(_DASHES)]}
    if marked:
        face = PALETTE[which.colour] if which.style == 0 else "white"
        style |= {"marker": _MARKERS[which.colour], "markerfacecolor": face, "markeredgecolor": PALETTE[which.colour]}
    return style


def legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], heading: str = "") -> None:
    """Below everything, where it covers no data, in as many columns as fit."""
    labels = [clean(label) for label in labels]
    letters = max(map(len, labels), default=1) + 7
    columns = max(1, min(len(labels), 4, int(figure.get_figwidth() * 12 / letters)))
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        title=clean(heading) or None,
        handlelength=2.8,
        fontsize=9,
        title_fontsize=9,
    )


def list_below(figure: Figure, lines: Sequence[str], heading: str = "") -> None:
    """Lines of text below everything."""
    figure.legend(
        [swatch(linestyle="none") for _ in lines],
        [clean(line) for line in lines],
        loc="outside lower left",
        handlelength=0,
        handletextpad=0,
        labelspacing=0.3,
        alignment="left",
        title=clean(heading) or None,
        fontsize=9,
        title_fontsize=9,
    )


def swatch(**style: Any) -> Line2D:
    """A legend's handle."""
    return Line2D([], [], **style)


def time_unit(seconds: Iterable[float]) -> tuple[str, float]:
    """The unit in which the middle of `seconds` is at least 1, and how many of it make a second."""
    known = [value for value in seconds if value > 0]
    middle = float(np.exp(np.mean(np.log(known)))) if known else 1.0
    return ("s", 1.0) if middle >= 1 else ("ms", 1e3) if middle >= 1e-3 else ("µs", 1e6)


def duration(seconds: float) -> str:
    """`12.3 ms`: a time to three digits with its unit."""
    unit, factor = time_unit([seconds])
    return f"{grouped(seconds * factor)} {unit}"


def grouped(value: float, digits: int = 3) -> str:
    """To so many digits, but for the integer part, which is whole, with thousands apart: `12,346`."""
    text = f"{value:,.0f}" if abs(value) >= 10**digits else significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def plain(value: float, _position: int | None = None) -> str:
    """A tick's number without an exponent: `0.05`, `1,000`."""
    if abs(value) >= 1e10:
        return f"{value:g}"  # no more digits than have room
    text = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.9f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("-", "−")


def scale(
    axes: Axes,
    which: Which,
    values: Iterable[float],
    *,
    ends: Iterable[float] = (),
    log_from: float | None = None,
    room: float = 0.07,
) -> None:
    """Set the limits and ticks that hold `values`: a linear axis from 0, or a logarithmic one.

    It is logarithmic where the largest value is at least `log_from` times the smallest. `room` is the share
    of a linear axis that lies beyond the largest. `ends` of error bars are held as well, but for those that a
    logarithmic axis cannot reach, or only far from all values.
    """
    known = [value for value in values if math.isfinite(value)]
    ends = [value for value in ends if math.isfinite(value)]
    positive = [value for value in known if value > 0]
    axis = axes.xaxis if which == "x" else axes.yaxis
    set_limits = axes.set_xlim if which == "x" else axes.set_ylim
    if log_from and positive and len(positive) == len(known) and max(known) >= log_from * min(known):
        known += [end for end in ends if end >= min(known) / _LONGEST_BAR]
        room = (max(known) / min(known)) ** 0.05
        low, high = min(known) / room, max(known) * room
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(FixedLocator(_log_ticks(low, high)))
        set_limits(low, high)
    else:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        set_limits(0, (1 + room) * max([*known, *ends], default=1.0) or 1.0)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, 4 to 8 of them where there are."""
    ticks: list[float] = []
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        finer = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(finer) > 8 and ticks:
            break
        ticks = finer
        if len(ticks) >= 4:
            break
    every = max(1, math.ceil(len(ticks) / 8))
    return ticks[::every]


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """A label for each row of a picture with horizontal bars, the first on top."""
    axes.set_yticks(range(len(labels)), [clean(label) for label in labels], fontsize=9)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def name_panel(axes: Axes, title: str, columns: int) -> None:
    """A panel's title in lines that do not reach the next of so many panels in a row."""
    width = axes.get_figure(root=True).get_figwidth() / columns - 0.6  # type: ignore[union-attr]  # it has one
    axes.set_title("\n".join(textwrap.wrap(clean(title), max(12, int(width * _LETTERS_PER_IN)))), fontsize=9)
