"""Truncated paraboloids: continuous sparsemax, α = 2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foveate.densities.base import Density, Ellipse, Size, checked, sizes
from foveate.densities.gaussian import from_canonical, to_canonical
from foveate.densities.matrices import cholesky, log_determinant, whiten
from foveate.densities.precision import at_least_single, double, without_autocast
from foveate.densities.weights import FLOOR, weighted_moments

if TYPE_CHECKING:
    from foveate.densities.bases import Basis


class TruncatedParaboloid(Density):
    """[−λ − ½(t − μ)ᵀΣ⁻¹(t − μ)]₊, the Ω₂-regularised prediction map of −½(t − μ)ᵀΣ⁻¹(t − μ): continuous (3.14).

    It is zero outside the ellipse {½(t − μ)ᵀΣ⁻¹(t − μ) ≤ −λ}. Σ is no covariance: see `covariance`.

    Args:
        loc: μ, (*batch, d).
        scale: Σ, (*batch, d, d), positive definite.

    >>> density = TruncatedParaboloid(torch.tensor([0.5, 0.5]), 0.01 * torch.eye(2))
    >>> (density.render((5, 5)) > 0).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 1, 1, 1, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = checked(loc, scale, "scale")

    @classmethod
    def from_moments(cls, mean: Tensor, covariance: Tensor) -> Self:
        """The density of this mean (*batch, d) and covariance (*batch, d, d): Theorem 1 turned round.

        With Var = −λΣ/(d/2 + 2), continuous (4.1), and λ from (3.15), Σ = (d/2 + 2)/(−λ) Var: (4.3), (4.6).
        """
        mean, covariance = at_least_single(mean, covariance)
        d = mean.shape[-1]
        root = (d * math.log(2 * math.pi) + log_determinant(covariance)) / 2 + d / 2 * math.log(d / 2 + 2)
        height = math.lgamma(d / 2 + 2) - root  # log −λ, from |Σ| = ((d/2 + 2)/−λ)ᵈ|Var| in (3.15)
        factor = (math.log(d / 2 + 2) - height).exp()
        return cls(mean, (factor[..., None, None] * double(covariance)).to(covariance.dtype))

    @classmethod
    def from_weights(cls, points: Tensor, weights: Tensor, floor: float = FLOOR) -> Self:
        """Moment matching, continuous Alg. 2: points (L, d) or (*batch, L, d) under weights (*batch, L).

        >>> TruncatedParaboloid.from_weights(torch.rand(9, 2), torch.rand(4, 9)).batch_shape
        torch.Size([4])
        """
        return cls.from_moments(*weighted_moments(points, weights, floor))

    @classmethod
    def from_canonical(cls, linear: Tensor, quadratic: Tensor) -> Self:
        """The density of θ = [Σ⁻¹μ, −½Σ⁻¹]: linear (*batch, d), quadratic (*batch, d, d)."""
        return cls(*from_canonical(linear, quadratic))

    @property
    def canonical(self) -> tuple[Tensor, Tensor]:
        """θ = [Σ⁻¹μ, −½Σ⁻¹], (*batch, d) and (*batch, d, d)."""
        return to_canonical(self.loc, self.scale)

    @property
    def log_height(self) -> Tensor:
        """log −λ, continuous (3.15), (*batch,) in float64: the logarithm of the density's maximum."""
        d = self.event_shape[0]
        root = (d * math.log(2 * math.pi) + log_determinant(self.scale)) / 2
        return 2 / (2 + d) * (math.lgamma(d / 2 + 2) - root)

    @property
    def rim(self) -> Tensor:
        """−2λΣ, (*batch, d, d): the matrix of the support."""
        return self._times(2.0)

    @property
    def mean(self) -> Tensor:
        """μ, (*batch, d)."""
        return self.loc

    @property
    def covariance(self) -> Tensor:
        """−λΣ/(d/2 + 2), continuous (4.1), (*batch, d, d)."""
        return self._times(1 / (self.event_shape[0] / 2 + 2))

    def _times(self, factor: float) -> Tensor:
        """−λΣ·factor."""
        return (factor * self.log_height.exp()[..., None, None] * double(self.scale)).to(self.scale.dtype)

    @property
    def support(self) -> Ellipse:
        """The ellipse on which the density is not zero."""
        return Ellipse.of(self.mean, self.rim)

    def contour(self, mass: float) -> Ellipse:
        """The smallest region that holds so much of the probability, 0 < mass ≤ 1.

        >>> TruncatedParaboloid(torch.zeros(1), torch.eye(1)).contour(1.0).axes
        tensor([1.1447])
        """
        d, low, high = self.event_shape[0], 0.0, 1.0
        for _ in range(60):  # the mass within radius r of the unit ball is r^d((d + 2) − d·r²)/2
            radius = (low + high) / 2
            low, high = (radius, high) if radius**d * (d + 2 - d * radius**2) / 2 < mass else (low, radius)
        return Ellipse.of(self.mean, self.rim * high**2)

    @without_autocast
    def pdf(self, points: Tensor) -> Tensor:
        """p at points (L, d) or (*batch, L, d): (*batch, L)."""
        points, loc = at_least_single(points, self.loc)
        difference = double(points) - double(loc)[..., None, :]
        squared = whiten(difference, double(self.rim)[..., None, :, :]).square().sum(-1)
        return (self.log_height.exp()[..., None] * (1 - squared).clamp_min(0)).to(points.dtype)

    def log_prob(self, points: Tensor) -> Tensor:
        """log p at points (L, d) or (*batch, L, d): (*batch, L); −∞ outside the support."""
        return self.pdf(points).log()

    def entropy(self, alpha: float = 1.0) -> Tensor:
        """−Ω_α, continuous (3.5), (*batch,), from ∫ (1 − |u|²)^α over the ball, a beta function."""
        d = self.event_shape[0]
        if alpha == 1:
            two, end = (torch.tensor(x, dtype=torch.float64) for x in (2.0, d / 2 + 2))
            depth = (torch.digamma(two) - torch.digamma(end)).item()  # E[log(1 − |u|²)]
            return -(self.log_height + depth).to(self.loc.dtype)
        volume = log_determinant(double(self.rim)) / 2 + d / 2 * math.log(math.pi)
        power = math.lgamma(alpha + 1) - math.lgamma(alpha + 1 + d / 2)
        integral = (alpha * self.log_height + volume + power).exp()  # ∫ p^α
        return ((1 - integral) / (alpha * (alpha - 1))).to(self.loc.dtype)

    @without_autocast
    def rsample(self, shape: Size = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws (*shape, *batch, d): d of the d + 4 coordinates of a point on a sphere have a density ∝ 1 − |u|²."""
        *batch, d = self.loc.shape
        noise = torch.randn(
            *sizes(shape), *batch, d + 4, generator=generator, dtype=self.loc.dtype, device=self.loc.device
        )
        ball = noise[..., :d] / noise.square().sum(-1, keepdim=True).sqrt()
        factor = cholesky(self.rim).to(self.loc.dtype)
        return self.loc + (factor * ball[..., None, :]).sum(-1)

    def expect(self, basis: Basis) -> Tensor:
        """E_p[ψ(t)], (*batch, N): continuous (A.15), without the error of a sum over angles."""
        return basis.under_paraboloid(self)
