"""TVmax: attention weights that are sparse, and equal over connected regions of the map.

tvmax(s) = argmin over p in the simplex of ½‖p − s‖² + λ Σ |p_i − p_j| over neighbours (Martins et al., "Sparse and
Structured Visual Attention"). It is sparsemax of the total-variation proximal operator of the scores, which is found by
ADMM with its linear system solved by cosine transforms, and then made exact: once it is known which positions are fused
and which way each rim goes, the values follow in closed form.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ITERATIONS, CHECK_EVERY = 1500, 25
GAP = 1e-14  # ½‖x − x*‖² is at most the gap between the primal and the dual value; floats tell no less apart


def tvmax(scores: Tensor, size: tuple[int, int], weight: float = 0.01) -> Tensor:
    """Sparse weights, equal over regions.

    Args:
        scores: (*batch, H·W).
        size: (H, W); (1, L) fuses neighbours along a line.
        weight: λ of the total variation; 0 is sparsemax.

    Returns:
        (*batch, H·W), at least 0 and of sum 1, correct to 1e-6 in float64. Differentiable, forwards and backwards.

    >>> tvmax(torch.tensor([2.0, 1.9, 0.0, 2.1, 2.0, 0.0]), (2, 3), weight=0.1).reshape(2, 3)
    tensor([[0.2500, 0.2500, 0.0000],
            [0.2500, 0.2500, 0.0000]])
    """
    if scores.shape[-1] != math.prod(size) or scores.ndim == 0:
        raise ValueError(f"scores of shape {tuple(scores.shape)} are not those of a map of {size[0]} by {size[1]}")
    if not weight >= 0:
        raise ValueError(f"weight must not be negative, not {weight}")
    full = scores if scores.dtype == torch.float64 else scores.float()
    function = _TVmax if torch.compiler.is_compiling() else _TVmaxBothWays
    weights: Tensor = function.apply(full.reshape(-1, *size), float(weight))[0]
    return weights.reshape(scores.shape).to(scores.dtype)


class _TVmax(torch.autograd.Function):
    """Maps (B, H, W) to weights (B, H, W) and the fused region (B, H·W) that each position is in."""

    @staticmethod
    def forward(scores: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        smooth, regions = _proximal(scores, weight)
        return _sparsemax(smooth.flatten(1)).reshape(scores.shape).to(scores.dtype), regions

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None]:
        weights, regions = ctx.saved_tensors
        return _times_jacobian(weights, regions, gradient), None


class _TVmaxBothWays(_TVmax):
    """The same with derivatives forwards as well, which compilers do not take."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _TVmax.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> tuple[Tensor, None]:
        weights, regions = ctx.saved_tensors
        return _times_jacobian(weights, regions, tangent), None


def _times_jacobian(weights: Tensor, regions: Tensor, vector: Tensor) -> Tensor:
    """The Jacobian, or its transpose, times maps (B, H, W).

    The proximal operator averages over regions; sparsemax takes away the mean over the support. A region is in the
    support as a whole or not at all, so the two commute and their product is symmetric.
    """
    flat, positive = vector.flatten(1), weights.flatten(1) > 0
    averaged = _region_mean(flat, regions)
    mean = (averaged * positive).sum(1, keepdim=True) / positive.sum(1, keepdim=True).clamp_min(1)
    return ((averaged - mean) * positive).reshape(vector.shape)


def _region_mean(values: Tensor, regions: Tensor) -> Tensor:
    """Values (B, N) replaced by their mean over regions (B, N), each named by one of its positions."""
    total = torch.zeros_like(values).scatter_add(1, regions, values)
    count = torch.zeros_like(values).scatter_add(1, regions, torch.ones_like(values))
    return (total / count.clamp_min(1)).gather(1, regions)


def _sparsemax(scores: Tensor) -> Tensor:
    """The projection of scores (B, N) onto the simplex."""
    falling = scores.sort(dim=1, descending=True).values
    ranks = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    excess = falling.cumsum(1) - 1
    support = (ranks * falling > excess).sum(1, keepdim=True).clamp_min(1)
    return (scores - excess.gather(1, support - 1) / support).clamp_min(0)


@torch.library.custom_op("foveate::total_variation", mutates_args=())
def _proximal(scores: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """argmin of ½‖x − s‖² + λ TV(x) for maps s (B, H, W), in float64, and the regions (B, H·W) that are fused.

    An operator of its own, for how long it iterates depends on the scores, which no compiled graph may.
    """
    s = scores.double()
    down, right = _steps(s)  # shapes alone; the values are where ADMM starts
    if s.numel() == 0 or weight == 0 or down.numel() + right.numel() == 0:
        return s.clone(), torch.arange(s.shape[1] * s.shape[2], device=s.device).repeat(len(s), 1)
    solve = _Poisson(s)
    # The steps of the potential whose Laplacian is the scores are a weight that fuses everything, as do larger ones.
    potential = _steps(solve.potential(s))
    weights = torch.maximum(_largest(potential[0]), _largest(potential[1])).clamp_max(weight).clamp_min(1e-300)
    rho = (4 * (weights / s.std(dim=(1, 2), correction=0, keepdim=True).clamp_min(1e-300)).sqrt()).clamp(0.05, 100)
    bound = weights / rho
    dual = [torch.zeros_like(down), torch.zeros_like(right)]
    split = [torch.zeros_like(down), torch.zeros_like(right)]
    for iteration in range(1, ITERATIONS + 1):
        x = solve(s + rho * _steps_back(split[0] - dual[0], split[1] - dual[1]), rho)
        for k, step in enumerate(_steps(x)):
            reach = 1.7 * step - 0.7 * split[k] + dual[k]  # over-relaxed
            dual[k] = torch.minimum(torch.maximum(reach, -bound), bound)
            split[k] = reach - dual[k]
        if iteration % CHECK_EVERY == 0:
            lower = 0.5 * (s.square() - (s - rho * _steps_back(*dual)).square()).sum((1, 2))
            upper = _objective(x, s, weights)
            if bool((upper - lower <= GAP * (1 + upper + s.square().sum((1, 2)))).all()):
                break
    regions = _regions(split[0] == 0, split[1] == 0)
    signs = _steps_back(split[0].sign(), split[1].sign())
    exact = _region_mean((s - weights * signs).flatten(1), regions).reshape(s.shape)
    upper = _objective(x, s, weights)
    better = _objective(exact, s, weights) <= upper + 1e-9 * (1 + upper)
    return torch.where(better[:, None, None], exact, x), regions


@_proximal.register_fake
def _(scores: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores, dtype=torch.float64), scores.new_empty(
        (scores.shape[0], scores.shape[1] * scores.shape[2]), dtype=torch.long
    )


def _steps(x: Tensor) -> tuple[Tensor, Tensor]:
    """D: differences (B, H−1, W) down and (B, H, W−1) right."""
    return x[:, 1:] - x[:, :-1], x[:, :, 1:] - x[:, :, :-1]


def _steps_back(down: Tensor, right: Tensor) -> Tensor:
    """Dᵀ: (B, H, W)."""
    return F.pad(down, (0, 0, 1, 0)) - F.pad(down, (0, 0, 0, 1)) + F.pad(right, (1, 0)) - F.pad(right, (0, 1))


def _largest(steps: Tensor) -> Tensor:
    """The largest size (B, 1, 1) of a step; 0 where there is none."""
    return F.pad(steps.abs().flatten(1), (0, 1)).amax(1)[:, None, None]


def _objective(x: Tensor, s: Tensor, weights: Tensor) -> Tensor:
    down, right = _steps(x)
    variation = down.abs().sum((1, 2)) + right.abs().sum((1, 2))
    return 0.5 * (x - s).square().sum((1, 2)) + weights[:, 0, 0] * variation


class _Poisson:
    """Solves (I + ρDᵀD)x = r on maps the size of `like`: cosine transforms make DᵀD diagonal."""

    def __init__(self, like: Tensor) -> None:
        (self.rows, by_row), (self.columns, by_column) = (_cosines(length, like) for length in like.shape[1:])
        self.eigenvalues = by_row[:, None] + by_column

    def __call__(self, right: Tensor, rho: Tensor) -> Tensor:
        spectrum = self.rows @ right @ self.columns.T / (1 + rho * self.eigenvalues)
        return self.rows.T @ spectrum @ self.columns

    def potential(self, right: Tensor) -> Tensor:
        """A solution of DᵀDx = r − mean(r)."""
        inverse = torch.where(self.eigenvalues > 1e-12, 1 / self.eigenvalues.clamp_min(1e-12), 0.0)
        return self.rows.T @ (self.rows @ right @ self.columns.T * inverse) @ self.columns


def _cosines(length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The orthonormal cosine transform (length, length), and the eigenvalues of DᵀD that belong to its rows."""
    k = torch.arange(length, dtype=like.dtype, device=like.device)
    basis = torch.cos(math.pi / length * k[:, None] * (k + 0.5)) * math.sqrt(2 / length)
    return torch.cat([basis[:1] / math.sqrt(2), basis[1:]]), 2 - 2 * torch.cos(math.pi / length * k)


def _regions(down: Tensor, right: Tensor) -> Tensor:
    """Connected regions (B, H·W), each named by its first position, of the joints (B, H−1, W) and (B, H, W−1)."""
    batch, height, width = len(down), right.shape[1], down.shape[2]
    names = torch.arange(height * width, device=down.device).repeat(batch, 1)
    while True:
        low = names.reshape(batch, height, width).clone()
        for joined, ahead, behind in (
            (down, low[:, 1:], low[:, :-1]),
            (right, low[:, :, 1:], low[:, :, :-1]),
        ):
            lowest = torch.where(joined, torch.minimum(ahead, behind), height * width)
            torch.minimum(ahead, lowest, out=ahead)
            torch.minimum(behind, lowest, out=behind)
        renamed = names.scatter_reduce(1, names, low.flatten(1), "amin")  # a region's name learns of lower ones
        renamed = renamed.gather(1, torch.minimum(renamed, low.flatten(1)))
        renamed = renamed.gather(1, renamed)
        if bool((renamed == names).all()):
            return names
        names = renamed
