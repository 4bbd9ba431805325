"""References: what the answer to each payload must contain, computed eagerly and outside the window."""

import torch

from bench.backend.models import tolerance
from bench.queues.digest import DigestPlan


def references(
    model: torch.nn.Module, pool: list[torch.Tensor], plan: DigestPlan, device: torch.device
) -> dict[str, object]:
    """The elements that `plan` keeps, for each payload, by an eager forward pass over the rows it needs.

    Returns:
        `values`: a list of numbers a payload; `rtol` and `atol`: what an answer may differ, the
        latter relative to the largest reference.
    """
    values = []
    for payload in pool:
        rows = payload[list(plan.rows)] if plan.rows else payload
        # forward() itself: calling the module would run its compiled form.
        output = model.forward(rows.to(device))
        values.append(_kept(output, plan).double().cpu().tolist())
    rtol, atol = tolerance(output.dtype)
    return {"values": values, "rtol": rtol, "atol": atol}


def _kept(output: torch.Tensor, plan: DigestPlan) -> torch.Tensor:
    """The kept elements of an answer of which only `plan.rows` were computed."""
    flat = output.reshape(-1)
    positions = [position for piece in plan.pieces for position in range(*piece)]
    if plan.rows:
        width = flat.numel() // len(plan.rows)
        place = {row: k for k, row in enumerate(plan.rows)}
        positions = [place[position // width] * width + position % width for position in positions]
    return flat[torch.tensor(positions, device=flat.device)]
