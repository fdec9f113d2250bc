"""Mixtures of densities: several modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foveate.densities.base import Density, Ellipse, Size, grid_points, sizes
from foveate.densities.precision import at_least_single

if TYPE_CHECKING:
    from foveate.densities.bases import Basis


class Mixture(Density):
    """Σₖ πₖ pₖ(t), continuous (5.3).

    Args:
        weights: π, (*batch, K), which sum to 1; some may be 0.
        components: a batch (*batch, K) of densities.

    >>> from foveate.densities import Gaussian
    >>> components = Gaussian(torch.tensor([[0.2, 0.5], [0.8, 0.5]]), 0.01 * torch.eye(2))
    >>> Mixture(torch.tensor([0.5, 0.5]), components).mean
    tensor([0.5000, 0.5000])
    """

    def __init__(self, weights: Tensor, components: Density) -> None:
        (self.weights,) = at_least_single(weights)
        self.components = components
        if weights.ndim == 0 or components.batch_shape != weights.shape:
            raise ValueError(
                f"weights of shape {tuple(weights.shape)} want as many components, not a batch of "
                f"{tuple(components.batch_shape)}"
            )

    @property
    def mean(self) -> Tensor:
        """(*batch, d)."""
        return (self.weights[..., None] * self.components.mean).sum(-2)

    @property
    def covariance(self) -> Tensor:
        """(*batch, d, d): within the components and between them."""
        apart = self.components.mean - self.mean[..., None, :]
        between = apart[..., :, None] * apart[..., None, :]
        return (self.weights[..., None, None] * (self.components.covariance + between)).sum(-3)

    @property
    def support(self) -> Ellipse:
        """The supports of the components, with a batch (*batch, K); their union is the mixture's, where π > 0."""
        return self.components.support

    def pdf(self, points: Tensor) -> Tensor:
        """p at points (L, d) or (*batch, L, d): (*batch, L)."""
        return (self.weights[..., None] * self.components.pdf(_spread(points))).sum(-2)

    def log_prob(self, points: Tensor) -> Tensor:
        """log p at points (L, d) or (*batch, L, d): (*batch, L)."""
        there = self.weights > 0
        log_weights = torch.where(there, self.weights, torch.ones_like(self.weights)).log()
        log_weights = torch.where(there, log_weights, torch.full_like(log_weights, -torch.inf))
        return torch.logsumexp(log_weights[..., None] + self.components.log_prob(_spread(points)), -2)

    def entropy(self, alpha: float = 1.0, resolution: int = 400) -> Tensor:
        """−Ω_α, continuous (3.5), (*batch,), summed over a grid around the components, for it has no closed form.

        Args:
            alpha: of Tsallis' entropy.
            resolution: points of the grid along each dimension, at most two.
        """
        d = self.event_shape[0]
        if d > 2:
            raise NotImplementedError(f"the entropy of a mixture is known for one and two dimensions, not {d}")
        reach = 9 * self.components.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        low, high = (self.components.mean - reach).amin(-2), (self.components.mean + reach).amax(-2)
        unit = grid_points((resolution,) * d, self.mean)
        points = low[..., None, :] + unit * (high - low)[..., None, :]
        p: Tensor = self.pdf(points)
        cell: Tensor = (high - low).prod(-1) / resolution**d
        if alpha == 1:
            return -cell * torch.xlogy(p, p).sum(-1)
        return (1 - cell * p.pow(alpha).sum(-1)) / (alpha * (alpha - 1))

    def rsample(self, shape: Size = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws (*shape, *batch, d); gradients reach the components, not the weights."""
        shape = sizes(shape)
        draws = self.components.rsample(shape, generator)
        count = torch.Size(shape).numel()
        flat = self.weights.detach().reshape(-1, self.weights.shape[-1])
        if not count or not len(flat):
            return draws[..., 0, :]
        chosen = torch.multinomial(flat, count, replacement=True, generator=generator)
        chosen = chosen.T.reshape(*shape, *self.weights.shape[:-1], 1, 1).expand(*draws.shape[:-2], 1, draws.shape[-1])
        return draws.gather(-2, chosen)[..., 0, :]

    def expect(self, basis: Basis) -> Tensor:
        """Σₖ πₖ E_{pₖ}[ψ(t)], (*batch, N): continuous (5.4)."""
        return (self.weights[..., None] * self.components.expect(basis)).sum(-2)


def _spread(points: Tensor) -> Tensor:
    """Points of a batch as points of each of its components."""
    return points if points.ndim == 2 else points[..., None, :, :]
