"""Gaussian densities: continuous softmax, α = 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foveate.densities.base import Density, Ellipse, Size, checked, major_angle, sizes
from foveate.densities.matrices import cholesky, log_determinant, whiten
from foveate.densities.precision import at_least_single, double, without_autocast
from foveate.densities.weights import FLOOR, weighted_moments

if TYPE_CHECKING:
    from foveate.densities.bases import Basis


@without_autocast
def log_gaussian(points: Tensor, loc: Tensor, covariance: Tensor) -> Tensor:
    """log N(t; μ, Σ), continuous (3.12), for points (..., d), loc (..., d) and covariance (..., d, d) that broadcast.

    >>> log_gaussian(torch.zeros(2), torch.zeros(2), torch.eye(2))  # −log 2π
    tensor(-1.8379)
    """
    points, loc, covariance = at_least_single(points, loc, covariance)
    squared = whiten(double(points) - double(loc), covariance).square().sum(-1)
    constant = log_determinant(covariance) + points.shape[-1] * math.log(2 * math.pi)
    return (-(squared + constant) / 2).to(points.dtype)


class Gaussian(Density):
    """N(t; μ, Σ), the Ω₁-regularised prediction map of −½(t − μ)ᵀΣ⁻¹(t − μ): continuous (3.12).

    Args:
        loc: μ, (*batch, d).
        covariance: Σ, (*batch, d, d), positive definite.

    >>> density = Gaussian(torch.tensor([0.5, 0.5]), 0.01 * torch.eye(2))
    >>> density.render((3, 3)).argmax()
    tensor(4)
    """

    def __init__(self, loc: Tensor, covariance: Tensor) -> None:
        self.loc, self._covariance = checked(loc, covariance, "covariance")

    @classmethod
    def from_weights(cls, points: Tensor, weights: Tensor, floor: float = FLOOR) -> Self:
        """Moment matching, continuous Alg. 2: points (L, d) or (*batch, L, d) under weights (*batch, L).

        >>> Gaussian.from_weights(torch.rand(9, 2), torch.rand(4, 9)).batch_shape
        torch.Size([4])
        """
        return cls(*weighted_moments(points, weights, floor))

    @classmethod
    def from_canonical(cls, linear: Tensor, quadratic: Tensor) -> Self:
        """The density of θ = [Σ⁻¹μ, −½Σ⁻¹]: linear (*batch, d), quadratic (*batch, d, d)."""
        return cls(*from_canonical(linear, quadratic))

    @property
    def canonical(self) -> tuple[Tensor, Tensor]:
        """θ = [Σ⁻¹μ, −½Σ⁻¹], (*batch, d) and (*batch, d, d)."""
        return to_canonical(self.loc, self.covariance)

    @property
    def mean(self) -> Tensor:
        """μ, (*batch, d)."""
        return self.loc

    @property
    def covariance(self) -> Tensor:
        """Σ, (*batch, d, d)."""
        return self._covariance

    @property
    def support(self) -> Ellipse:
        """Everywhere: half-axes without end, in the directions of Σ."""
        return Ellipse(self.mean, torch.full_like(self.mean, math.inf), major_angle(self.covariance))

    def contour(self, mass: float) -> Ellipse:
        """The smallest region that holds so much of the probability, 0 < mass < 1.

        >>> Gaussian(torch.zeros(2), torch.eye(2)).contour(0.5).axes
        tensor([1.1774, 1.1774])
        """
        from_zero = torch.full((1,), mass, dtype=torch.float64)
        radius = _chi_square_quantile(from_zero, self.event_shape[0]).item()
        return Ellipse.of(self.mean, self.covariance * radius)

    def log_prob(self, points: Tensor) -> Tensor:
        """log p at points (L, d) or (*batch, L, d): (*batch, L)."""
        return log_gaussian(points, self.loc[..., None, :], self.covariance[..., None, :, :])

    def pdf(self, points: Tensor) -> Tensor:
        """p at points (L, d) or (*batch, L, d): (*batch, L)."""
        return self.log_prob(points).exp()

    def entropy(self, alpha: float = 1.0) -> Tensor:
        """−Ω_α, continuous (3.5), (*batch,): ½ log |2πeΣ| for α = 1."""
        d, log_det = self.event_shape[0], log_determinant(self.covariance)
        if alpha == 1:
            return ((d * (1 + math.log(2 * math.pi)) + log_det) / 2).to(self.loc.dtype)
        power = (((1 - alpha) * (d * math.log(2 * math.pi) + log_det) - d * math.log(alpha)) / 2).exp()  # ∫ p^α
        return ((1 - power) / (alpha * (alpha - 1))).to(self.loc.dtype)

    @without_autocast
    def rsample(self, shape: Size = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws (*shape, *batch, d)."""
        factor = cholesky(self.covariance).to(self.loc.dtype)
        noise = torch.randn(
            *sizes(shape), *self.loc.shape, generator=generator, dtype=self.loc.dtype, device=self.loc.device
        )
        return self.loc + (factor * noise[..., None, :]).sum(-1)

    def expect(self, basis: Basis) -> Tensor:
        """E_p[ψ(t)], (*batch, N): continuous (4.10) for Gaussian basis functions."""
        return basis.under_gaussian(self)


@without_autocast
def to_canonical(loc: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """[Σ⁻¹μ, −½Σ⁻¹] from μ (*batch, d) and Σ (*batch, d, d).

    >>> to_canonical(torch.tensor([1.0]), torch.tensor([[4.0]]))
    (tensor([0.2500]), tensor([[-0.1250]]))
    """
    precision = torch.linalg.inv(double(matrix))
    linear = (precision * double(loc)[..., None, :]).sum(-1)
    return linear.to(loc.dtype), (-precision / 2).to(matrix.dtype)


@without_autocast
def from_canonical(linear: Tensor, quadratic: Tensor) -> tuple[Tensor, Tensor]:
    """μ and Σ from [Σ⁻¹μ, −½Σ⁻¹].

    >>> from_canonical(torch.tensor([0.25]), torch.tensor([[-0.125]]))
    (tensor([1.]), tensor([[4.]]))
    """
    linear, quadratic = at_least_single(linear, quadratic)
    matrix = torch.linalg.inv(-2 * double(quadratic))
    matrix = (matrix + matrix.mT) / 2
    return (matrix * double(linear)[..., None, :]).sum(-1).to(linear.dtype), matrix.to(quadratic.dtype)


def _chi_square_quantile(mass: Tensor, dimensions: int) -> Tensor:
    """Squared radius of the ball that holds `mass` of N(0, I), by bisection."""
    low, high = torch.zeros_like(mass), torch.full_like(mass, 1e4)
    half = torch.full_like(mass, dimensions / 2)
    for _ in range(80):
        middle = (low + high) / 2
        below = torch.special.gammainc(half, middle / 2) < mass
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
