"""Regularised prediction maps of any α: densities on a grid, or weights on a finite set, from scores.

continuous (3.3)–(3.9), (3.19). A density is given by its values on a grid and the measure of a cell, 1 on a finite
set. The Gaussian (α = 1) and the truncated paraboloid (α = 2) are what the map makes of a negative quadratic.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from foveate.densities.precision import at_least_single, double


def exp_beta(u: Tensor, beta: float) -> Tensor:
    """[1 + (1 − β)u]₊^{1/(1 − β)}, and exp u for β = 1: continuous (3.3).

    >>> exp_beta(torch.tensor([-2.0, 0.5]), beta=0.0)
    tensor([0.0000, 1.5000])
    """
    if beta == 1:
        return u.exp()
    base = (1 + (1 - beta) * u).clamp_min(0)
    return base ** (1 / (1 - beta))


def log_beta(u: Tensor, beta: float) -> Tensor:
    """(u^{1 − β} − 1)/(1 − β), and log u for β = 1, the inverse of `exp_beta`: continuous (3.4).

    >>> log_beta(torch.tensor([1.5]), beta=0.0)
    tensor([0.5000])
    """
    return u.log() if beta == 1 else (u ** (1 - beta) - 1) / (1 - beta)


def negentropy(p: Tensor, alpha: float, cell: float = 1.0) -> Tensor:
    """Tsallis' Ω_α of densities (..., L) on cells of one measure: continuous (3.5), (...).

    >>> negentropy(torch.tensor([0.5, 0.5]), alpha=2.0)
    tensor(-0.2500)
    """
    if alpha == 1:
        return torch.xlogy(p, p).sum(-1) * cell
    power: Tensor = (p**alpha).sum(-1) * cell
    return (power - 1) / (alpha * (alpha - 1))


def prediction_map(scores: Tensor, alpha: float = 1.5, cell: float = 1.0) -> Tensor:
    """The density that maximises E_p[f] − Ω_α(p), for 1 ≤ α ≤ 2: continuous (3.2), (3.6).

    With cell = 1 this is softmax (α = 1), α-entmax, and sparsemax (α = 2) over the last dimension.

    Args:
        scores: f on the cells, (..., L).
        alpha: of the negentropy.
        cell: the measure of a cell.

    Returns:
        p (..., L), whose sum times `cell` is 1; never less than float32.

    >>> prediction_map(torch.tensor([1.0, 0.8, -1.0]), alpha=2.0)
    tensor([0.6000, 0.4000, 0.0000])
    """
    if not 1 <= alpha <= 2 or cell <= 0:
        raise ValueError(f"alpha must lie in [1, 2] and cell above 0, not {alpha} and {cell}")
    (scores,) = at_least_single(scores)
    if alpha == 1:
        return torch.softmax(scores, -1) / cell
    mapped: Tensor = _PredictionMap.apply(scores, alpha, cell)
    return mapped


def normaliser(scores: Tensor, p: Tensor, alpha: float, cell: float = 1.0) -> Tensor:
    """A_α(f) of p = exp_{2−α}(f − A_α(f)), from f and p (..., L): continuous (3.7), (...).

    >>> f = torch.tensor([1.0, 0.8, -1.0])
    >>> normaliser(f, prediction_map(f, 2.0), 2.0)   # f − (p − 1) where p > 0
    tensor(1.4000)
    """
    if alpha == 1:
        return torch.logsumexp(scores, -1) + math.log(cell)
    tempered = torch.where(p > 0, p ** (2 - alpha), torch.zeros_like(p))
    shift = 1 / (1 - alpha)
    integral = cell * (tempered * scores).sum(-1)
    return (shift + integral) / (cell * tempered.sum(-1)) - shift


def escort(p: Tensor, beta: float, cell: float = 1.0) -> Tensor:
    """p^β over its integral, (..., L): continuous (3.9). For β = 0 uniform on the support.

    >>> escort(torch.tensor([0.6, 0.4, 0.0]), beta=0.0)
    tensor([0.5000, 0.5000, 0.0000])
    """
    powered = _powered(p, beta)
    return powered / (cell * powered.sum(-1, keepdim=True))


def covariance_beta(p: Tensor, phi: Tensor, psi: Tensor, beta: float, cell: float = 1.0) -> Tensor:
    """‖p‖_β^β times the covariance of φ and ψ under the β-escort of p: continuous (3.19).

    With β = 2 − α and φ, ψ the statistics and the basis, it is the Jacobian of α-entmax attention, (3.20).

    Args:
        p: (..., L).
        phi: (..., L, M).
        psi: (..., L, N).
        beta: of the escort.
        cell: the measure of a cell.

    Returns:
        (..., M, N).

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> covariance_beta(torch.tensor([0.5, 0.5]), x, x, beta=1.0)
    tensor([[0.2500]])
    """
    mass = cell * _powered(p, beta).sum(-1)
    weights = cell * escort(p, beta, cell)[..., None]
    mean_phi, mean_psi = (weights * phi).sum(-2), (weights * psi).sum(-2)
    product = (weights[..., None] * phi[..., :, None] * psi[..., None, :]).sum(-3)
    return mass[..., None, None] * (product - mean_phi[..., :, None] * mean_psi[..., None, :])


def _powered(p: Tensor, beta: float) -> Tensor:
    positive = p > 0
    return torch.where(positive, torch.where(positive, p, 1.0) ** beta, 0.0)


class _PredictionMap(torch.autograd.Function):
    """Bisection for the normaliser; the Jacobian is that of (3.19), diag(p^{2−α}) less its rank-one part."""

    @staticmethod
    def forward(scores: Tensor, alpha: float, cell: float) -> Tensor:
        scaled = (alpha - 1) * double(scores)
        scaled = scaled - scaled.amax(-1, keepdim=True) if scores.shape[-1] else scaled
        power, count = 1 / (alpha - 1), scores.shape[-1]
        low = torch.full_like(scaled[..., :1], -((1 / cell) ** (alpha - 1)))  # the largest score alone holds all
        high = torch.full_like(low, -((1 / (cell * max(count, 1))) ** (alpha - 1)))  # all hold the same
        for _ in range(60):
            middle = (low + high) / 2
            heavy = ((scaled - middle).clamp_min(0) ** power).sum(-1, keepdim=True) * cell >= 1
            low, high = torch.where(heavy, middle, low), torch.where(heavy, high, middle)
        p = (scaled - (low + high) / 2).clamp_min(0) ** power
        return (p / (cell * p.sum(-1, keepdim=True))).to(scores.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (p,) = ctx.saved_tensors
        tempered = _powered(p, 2 - ctx.alpha)
        weighted = tempered * gradient
        mean = weighted.sum(-1, keepdim=True) / tempered.sum(-1, keepdim=True)
        return weighted - tempered * mean, None, None
