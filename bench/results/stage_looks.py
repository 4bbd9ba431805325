"""How each stage of a request is drawn, in pictures and on the page: one colour for each, by the ground it is on.

What works is dark or strong, what waits is pale and hatched; copies in and out are relatives. After Okabe and Ito,
told apart by colour-blind people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StageLook:
    """Colours on a light and on a dark ground, and the direction of the hatching."""

    light: str
    dark: str
    hatch: Literal["", ".", "/", "\\"] = ""


STAGE_LOOKS: Mapping[str, StageLook] = {
    "schedule_delay": StageLook("#BDBDBD", "#7C828C", "."),
    "queue_wait": StageLook("#F5E6A8", "#A08F45", "/"),
    "h2d": StageLook("#56B4E9", "#8FD0F5"),
    "compute_wait": StageLook("#F2C9A0", "#A8734A", "\\"),
    "compute": StageLook("#0072B2", "#2E93D6"),
    "d2h_wait": StageLook("#E3C1D3", "#96697F", "/"),
    "d2h": StageLook("#009E73", "#2FCE9B"),
    "respond": StageLook("#D55E00", "#FF8A3D"),
}
