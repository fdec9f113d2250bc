"""Basis functions ψ of which continuous attention takes expectations: Gaussians and truncated paraboloids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from foveate.densities.base import checked
from foveate.densities.crossing import paraboloid_times_paraboloid
from foveate.densities.gaussian import Gaussian, log_gaussian
from foveate.densities.interval import parabola_times_gaussian, parabola_times_parabola
from foveate.densities.overlap import paraboloid_times_gaussian
from foveate.densities.paraboloid import TruncatedParaboloid
from foveate.densities.precision import double

if TYPE_CHECKING:
    from foveate.densities.base import Density


class Basis(nn.Module, ABC):
    """N functions of the plane or the line, with centres (N, d) and a matrix (N, d, d) each, kept as buffers.

    As a module a basis moves with its network; to learn it, assign parameters in place of the buffers.

    Args:
        centers: (N, d).
        matrices: (N, d, d), or (d, d) for all.
    """

    centers: Tensor
    matrices: Tensor

    def __init__(self, centers: Tensor, matrices: Tensor) -> None:
        super().__init__()
        centers, matrices = checked(centers, matrices, "matrices")
        self.register_buffer("centers", centers.clone(), persistent=False)
        self.register_buffer("matrices", matrices.clone(), persistent=False)

    @classmethod
    def grid(cls, n: int, variance: float, dimensions: int = 2) -> Self:
        """n functions with centres linearly spaced in the unit square, or cube or line, and the matrix variance·I.

        >>> GaussianBasis.grid(100, 0.001).centers[:3, 1]
        tensor([0.0000, 0.1111, 0.2222])
        """
        side = round(n ** (1 / dimensions))
        if side < 1 or side**dimensions != n:
            raise ValueError(f"a grid of {dimensions} dimensions has k**{dimensions} functions for a whole k, not {n}")
        line = torch.linspace(0, 1, side) if side > 1 else torch.full((1,), 0.5)
        centers = torch.stack(torch.meshgrid(*[line] * dimensions, indexing="ij"), -1).reshape(n, dimensions)
        return cls(centers, variance * torch.eye(dimensions))

    def __len__(self) -> int:
        return self.centers.shape[-2]

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"{len(self)} functions of {self.centers.shape[-1]} dimensions"

    def forward(self, points: Tensor) -> Tensor:
        """ψ at points (..., L, d): (..., L, N), the transpose of F in continuous (3.17)."""
        return self.functions.pdf(points).mT

    @property
    @abstractmethod
    def functions(self) -> Density:
        """The basis functions as a batch (N,) of densities."""

    @abstractmethod
    def under_gaussian(self, density: Gaussian) -> Tensor:
        """Expectations (*batch, N) under Gaussians (*batch,)."""

    @abstractmethod
    def under_paraboloid(self, density: TruncatedParaboloid) -> Tensor:
        """Expectations (*batch, N) under truncated paraboloids (*batch,)."""

    def _check(self, density: Density) -> int:
        """The dimensions, where they are the density's."""
        d = self.centers.shape[-1]
        if density.event_shape[0] != d:
            raise ValueError(f"a density of {density.event_shape[0]} dimensions and a basis of {d}")
        return d


class GaussianBasis(Basis):
    """Gaussian radial basis functions ψⱼ(t) = N(t; μⱼ, Σⱼ), of one covariance each.

    Args:
        centers: μⱼ, (N, d).
        covariances: Σⱼ, (N, d, d), or (d, d) for all.

    >>> basis = GaussianBasis.grid(100, 0.001)
    >>> TruncatedParaboloid(torch.full((8, 2), 0.5), 0.01 * torch.eye(2)).expect(basis).shape
    torch.Size([8, 100])
    """

    def __init__(self, centers: Tensor, covariances: Tensor) -> None:
        super().__init__(centers, covariances)

    @property
    def functions(self) -> Gaussian:
        """The basis functions as a batch (N,) of densities."""
        return Gaussian(self.centers, self.matrices)

    def under_gaussian(self, density: Gaussian) -> Tensor:
        """N(μ; μⱼ, Σ + Σⱼ), continuous (4.10), (*batch, N)."""
        self._check(density)
        spread = double(density.covariance)[..., None, :, :] + double(self.matrices)
        dtype = torch.promote_types(density.loc.dtype, self.centers.dtype)
        return log_gaussian(density.loc[..., None, :], self.centers, spread).exp().to(dtype)

    def under_paraboloid(self, density: TruncatedParaboloid) -> Tensor:
        """Continuous (4.13), (*batch, N): closed on the line, by `foveate.densities.disc` in the plane."""
        return _paraboloids_and_gaussians(
            self._check(density), density.loc[..., None, :], density.rim[..., None, :, :], self.centers, self.matrices
        )


class ParaboloidBasis(Basis):
    """Truncated paraboloids as basis functions, ψⱼ(t) = TP(t; μⱼ, Σⱼ): the future work of continuous 7.2.

    Args:
        centers: μⱼ, (N, d).
        scales: Σⱼ of continuous (3.14), (N, d, d), or (d, d) for all.

    >>> basis = ParaboloidBasis.grid(100, 0.001)
    >>> Gaussian(torch.full((8, 2), 0.5), 0.01 * torch.eye(2)).expect(basis).shape
    torch.Size([8, 100])
    """

    def __init__(self, centers: Tensor, scales: Tensor) -> None:
        super().__init__(centers, scales)

    @property
    def functions(self) -> TruncatedParaboloid:
        """The basis functions as a batch (N,) of densities."""
        return TruncatedParaboloid(self.centers, self.matrices)

    def under_gaussian(self, density: Gaussian) -> Tensor:
        """(*batch, N): a paraboloid under a Gaussian expects what the Gaussian does under the paraboloid."""
        d, functions = self._check(density), self.functions
        mean, covariance = density.loc[..., None, :], density.covariance[..., None, :, :]
        return _paraboloids_and_gaussians(d, functions.loc, functions.rim, mean, covariance)

    def under_paraboloid(self, density: TruncatedParaboloid) -> Tensor:
        """(*batch, N), exact on the line."""
        d, functions = self._check(density), self.functions
        loc, rim = density.loc[..., None, :], density.rim[..., None, :, :]
        if d == 1:
            return parabola_times_parabola(loc[..., 0], rim[..., 0, 0], functions.loc[..., 0], functions.rim[..., 0, 0])
        if d == 2:
            return paraboloid_times_paraboloid(loc, rim, functions.loc, functions.rim)
        raise _too_many(d)


def _paraboloids_and_gaussians(d: int, loc: Tensor, rim: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    if d == 1:
        return parabola_times_gaussian(loc[..., 0], rim[..., 0, 0], mean[..., 0], covariance[..., 0, 0])
    if d == 2:
        return paraboloid_times_gaussian(loc, rim, mean, covariance)
    raise _too_many(d)


def _too_many(d: int) -> NotImplementedError:
    return NotImplementedError(f"truncated paraboloids expect in one and two dimensions, not {d}; Gaussians in all")
