"""Density: what Gaussian, TruncatedParaboloid and Mixture have in common; Ellipse: where a density is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foveate.densities.matrices import eigenvalues, symmetric_parts
from foveate.densities.precision import at_least_single, broadcast, double
from foveate.geometry import pixel_centers

if TYPE_CHECKING:
    from foveate.densities.bases import Basis

Size = int | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Ellipse:
    """The set {t : (t − center)ᵀM⁻¹(t − center) ≤ 1}, of one dimension an interval.

    Attributes:
        center: (*batch, d).
        axes: half-axes, longest first, (*batch, d); infinite for a density that is nowhere zero.
        angle: of the longest axis in the plane, counter-clockwise as displayed, (*batch,); zero in other dimensions.
    """

    center: Tensor
    axes: Tensor
    angle: Tensor

    @classmethod
    def of(cls, center: Tensor, matrix: Tensor) -> Ellipse:
        """The ellipse of center (*batch, d) and matrix M (*batch, d, d).

        >>> Ellipse.of(torch.zeros(2), torch.diag(torch.tensor([9.0, 4.0])))   # three rows up and down
        Ellipse(center=tensor([0., 0.]), axes=tensor([3., 2.]), angle=tensor(1.5708))
        """
        values = eigenvalues(double(matrix)).flip(-1).clamp_min(0).sqrt().to(matrix.dtype)
        return cls(center, values, major_angle(matrix))

    def rim(self, count: int = 100) -> Tensor:
        """Points (*batch, count, 2) around the rim of an ellipse of the plane, for figures.

        >>> Ellipse.of(torch.zeros(2), torch.eye(2)).rim(4).norm(dim=-1)
        tensor([1., 1., 1., 1.])
        """
        turn = torch.arange(count, dtype=self.axes.dtype, device=self.axes.device) * (2 * math.pi / count)
        along, across = self.axes[..., :1] * turn.cos(), self.axes[..., 1:] * turn.sin()
        cos, sin = self.angle.cos()[..., None], self.angle.sin()[..., None]
        return self.center[..., None, :] + torch.stack([-sin * along - cos * across, cos * along - sin * across], -1)


def major_angle(matrix: Tensor) -> Tensor:
    """The displayed angle of the longest axis of (*batch, 2, 2) in (−π/2, π/2]; zeros in other dimensions.

    >>> major_angle(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))  # up as it goes right
    tensor(0.7854)
    """
    if matrix.shape[-1] != 2:
        return matrix.new_zeros(matrix.shape[:-2])
    rows, mixed, columns = symmetric_parts(matrix)
    round = (rows == columns) & (mixed == 0)  # where every axis is the longest, and the angle has no gradient
    return torch.atan2(0 - 2 * mixed, torch.where(round, torch.ones_like(rows), columns - rows)) / 2


class Density(ABC):
    """A batch of probability densities of the plane, the line, or any number of dimensions.

    What it is given and computes is never below float32, autocast or not. Names follow `torch.distributions` where it
    has them. Points come as a list, (L, d) for all of a batch or (*batch, L, d), and give (*batch, L).
    """

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """(*batch, d)."""

    @property
    @abstractmethod
    def covariance(self) -> Tensor:
        """(*batch, d, d)."""

    @property
    @abstractmethod
    def support(self) -> Ellipse:
        """Where the density is not zero."""

    @abstractmethod
    def pdf(self, points: Tensor) -> Tensor:
        """The density at points (L, d) or (*batch, L, d): (*batch, L)."""

    @abstractmethod
    def log_prob(self, points: Tensor) -> Tensor:
        """log p at points (L, d) or (*batch, L, d): (*batch, L); −∞ outside the support."""

    @abstractmethod
    def entropy(self, alpha: float = 1.0) -> Tensor:
        """The entropy −Ω_α of continuous (3.5), (*batch,): Shannon's for α = 1, Gini–Simpson's for α = 2."""

    @abstractmethod
    def rsample(self, shape: Size = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws (*shape, *batch, d) through which gradients reach the parameters."""

    @abstractmethod
    def expect(self, basis: Basis) -> Tensor:
        """E_p[ψ(t)] of the N functions of a basis, (*batch, N): continuous (3.16)."""

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.mean.shape[:-1]

    @property
    def event_shape(self) -> torch.Size:
        """(d,)."""
        return self.mean.shape[-1:]

    def sample(self, shape: Size = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws (*shape, *batch, d) without a gradient."""
        with torch.no_grad():
            return self.rsample(shape, generator)

    def render(self, size: Size) -> Tensor:
        """The density at the pixel centres of the unit square: (*batch, H, W) for size (H, W), (*batch, L) for L."""
        sizes = (size,) if isinstance(size, int) else tuple(size)
        if len(sizes) != self.event_shape[0]:
            raise ValueError(f"a density of {self.event_shape[0]} dimensions cannot be drawn at size {sizes}")
        return self.pdf(grid_points(sizes, self.mean)).reshape(*self.batch_shape, *sizes)


def grid_points(size: Size, like: Tensor) -> Tensor:
    """Pixel centres (prod(size), d) of the unit square or line, row by row, in the type of `like`.

    >>> grid_points((1, 2), torch.zeros(()))
    tensor([[0.5000, 0.2500],
            [0.5000, 0.7500]])
    """
    sizes = (size,) if isinstance(size, int) else size
    axes = [pixel_centers(length, like) for length in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(sizes))


def checked(loc: Tensor, matrix: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """A location (*batch, d) and a matrix (*batch, d, d) brought to one type and one batch."""
    loc, matrix = at_least_single(loc, matrix)
    d = loc.shape[-1] if loc.ndim else 0
    if d < 1 or matrix.ndim < 2 or matrix.shape[-2:] != (d, d):
        raise ValueError(f"loc of shape {tuple(loc.shape)} wants {name} (..., {d}, {d}), not {tuple(matrix.shape)}")
    batch = broadcast(loc[..., 0], matrix[..., 0, 0])[0].shape
    return loc.expand(*batch, d), matrix.expand(*batch, d, d)


def sizes(shape: Size) -> tuple[int, ...]:
    """A shape given as one number or several.

    >>> sizes(3), sizes((2, 3))
    ((3,), (2, 3))
    """
    return (shape,) if isinstance(shape, int) else tuple(shape)
