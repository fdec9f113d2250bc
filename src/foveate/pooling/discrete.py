"""Discrete pooling: a weight for each position by a transform of its score, dense or sparse (continuous 3.3.1).

The context is c = Σ p_i x_i with p = ρ(f), where ρ is softmax (3.11), sparsemax, α-entmax between the two (α fixed at
1.5, or learned), or TVmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.geometry import warp
from foveate.pooling.base import Pool, PoolGaze, PoolLook, Score, peak_one, plane
from foveate.pooling.total_variation import tvmax

__all__ = ["DiscreteGaze", "DiscretePool", "Transform", "tvmax"]

Transform = Literal["softmax", "sparsemax", "entmax15", "entmax", "tvmax"]


@dataclass(eq=False)
class DiscreteGaze(PoolGaze):
    """Weights on the positions of a grid: at least 0 and of sum 1."""

    def render(self, size: tuple[int, int]) -> Tensor:
        """The map (B, 1, *size): each position a cell of one value, for that is what was attended."""
        rows = (torch.arange(size[0], device=self.map.device) * self.map.shape[2]) // size[0]
        columns = (torch.arange(size[1], device=self.map.device) * self.map.shape[3]) // size[1]
        return self.map.float()[:, :, rows[:, None], columns]

    def move(self, matrix: Tensor) -> Self:
        """The weights, and the map, moved by `matrix` (B, 2, 3); what leaves the image is shared out again."""
        moved = warp(self.weights, matrix)
        weights = moved / moved.sum(dim=(2, 3), keepdim=True).clamp_min(torch.finfo(moved.dtype).tiny)
        return type(self)(peak_one(weights), weights)


class DiscreteLook(PoolLook):
    """Scores, then a transform to weights."""

    def __init__(
        self,
        channels: int,
        transform: Transform = "softmax",
        hidden: int = 0,
        query: int = 0,
        weight: float = 0.01,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if transform not in get_args(Transform):
            raise ValueError(f"transform must be one of {', '.join(get_args(Transform))}, not {transform!r}")
        if not weight >= 0:
            raise ValueError(f"weight must not be negative, not {weight}")
        self.score = Score(channels, hidden, query, dropout)
        self.transform = transform
        self.weight = weight
        self.power = nn.Parameter(torch.zeros(())) if transform == "entmax" else None

    @property
    def alpha(self) -> Tensor | None:
        """The learned α of "entmax", between softmax's 1 and sparsemax's 2; it starts in the middle."""
        return None if self.power is None else 1.01 + 0.98 * self.power.float().sigmoid()

    def forward(self, x: Tensor, query: Tensor | None = None) -> DiscreteGaze:
        """Features (B, C, H, W) or (B, C, L), query (B, Q), to a gaze."""
        size = plane(x)
        weights = self._weigh(self.score(x, query), size).reshape(-1, 1, *size)
        return DiscreteGaze(peak_one(weights), weights)

    def _weigh(self, scores: Tensor, size: tuple[int, int]) -> Tensor:
        """Scores (B, H·W) to weights."""
        if self.transform == "softmax":
            return F.softmax(scores, dim=1)
        if self.transform == "tvmax":
            return tvmax(scores, size, self.weight)
        fixed = 2.0 if self.transform == "sparsemax" else 1.5
        alpha = scores.new_full((), fixed) if self.alpha is None else self.alpha.to(scores)
        return cast(Tensor, _entmax(scores, alpha, self.transform))


@torch.library.custom_op("foveate::entmax", mutates_args=())
def _entmax(scores: Tensor, alpha: Tensor, transform: str) -> Tensor:
    """α-entmax of scores (B, N), an operator of its own because compilers cannot read the package."""
    import entmax  # brought when it is asked for, so that `import foveate` stays quick

    weights: Tensor
    if transform == "entmax":
        weights = entmax.entmax_bisect(scores, alpha.expand(len(scores), 1), dim=1)
    else:
        weights = (entmax.sparsemax if transform == "sparsemax" else entmax.entmax15)(scores, dim=1)
    return weights


def _entmax_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
    """With s = p^{2−α} on the support, J = diag(s) − ssᵀ/Σs: continuous (3.20) for the counting measure.

    The derivative to α is that of p^{α−1} = (α−1)f − τ at Σp = 1.
    """
    weights, alpha = ctx.saved_tensors
    positive = weights > 0
    safe = torch.where(positive, weights, 1.0)
    escort = torch.where(positive, safe ** (2 - alpha), 0.0)
    total = escort.sum(1, keepdim=True)
    centred = gradient - (gradient * escort).sum(1, keepdim=True) / total
    to_alpha = None
    if ctx.needs_input_grad[1]:
        # (α−1)p^{α−2} p' = f − τ' − p^{α−1} log p, where f = (p^{α−1} + τ)/(α−1): what is constant drops out
        own = (safe ** (alpha - 1) / (alpha - 1) - safe ** (alpha - 1) * safe.log()) / (alpha - 1)
        to_alpha = (centred * escort * own).sum()
    return centred * escort, to_alpha, None


def _keep_weights(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


_entmax.register_fake(lambda scores, alpha, transform: torch.empty_like(scores))
_entmax.register_autograd(_entmax_gradient, setup_context=_keep_weights)


class DiscretePool(Pool):
    """Weights on the grid's positions, and the average of the features under them.

    Args:
        channels: of the features it pools.
        transform: "softmax", "sparsemax", "entmax15", "entmax" (α learned) or "tvmax".
        hidden: width of a hidden layer before the scores; 0 for none.
        query: width of a query that the scores depend on; 0 for none.
        weight: of TVmax's total variation.
        dropout: of the hidden layer.

    >>> DiscretePool(16, "sparsemax")(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16])
    >>> DiscretePool(16, "tvmax", query=4)(torch.rand(2, 16, 7, 5), torch.rand(2, 4)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        channels: int,
        transform: Transform = "softmax",
        hidden: int = 0,
        query: int = 0,
        weight: float = 0.01,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(DiscreteLook(channels, transform, hidden, query, weight, dropout))
