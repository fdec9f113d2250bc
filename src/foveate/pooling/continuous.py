"""Continuous pooling: a density over the image, fitted to scores, and the expectation of the features under it.

c = B·E_p[ψ(t)] (continuous 3.16, 5.5): the features are a function Bψ(t) of the plane (`foveate.pooling.value`), the
density p is a Gaussian (α = 1), a truncated paraboloid (α = 2) or a mixture of either, fitted by moments or by EM to
the softmax of a score for each position (continuous Alg. 2, 6.3.1). A signal (B, C, L) is pooled on the line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.densities import (
    Density,
    Ellipse,
    Gaussian,
    GaussianBasis,
    Mixture,
    TruncatedParaboloid,
    choose_mixture,
    fit_mixture,
    grid_points,
    weighted_moments,
)
from foveate.geometry import move_points
from foveate.pooling.base import Pool, PoolGaze, PoolLook, Score, peak_one, plane
from foveate.pooling.value import Regressions

Alpha = Literal[1, 2]


@dataclass(eq=False)
class ContinuousGaze(PoolGaze):
    """A density, or a mixture of K.

    Attributes:
        map: (B, 1, H, W), the density at the pixels over its largest value there.
        weights: (B, 1, H, W), what each position counts in the context vector, Gr of continuous (3.16), (3.17).
        share: π, (B, K), the mixing weights; some may be 0.
        means: (B, K, d), the components' means.
        covariances: (B, K, d, d), the components' covariances.
        alpha: 1 for Gaussians, 2 for truncated paraboloids.
    """

    share: Tensor
    means: Tensor
    covariances: Tensor
    alpha: Alpha = 1

    @property
    def components(self) -> Gaussian | TruncatedParaboloid:
        """The components, a batch (B, K) of densities."""
        return density_of(self.means, self.covariances, self.alpha)

    @property
    def density(self) -> Density:
        """What is looked through: one component, or their mixture."""
        if self.share.shape[1] == 1:
            return density_of(self.means[:, 0], self.covariances[:, 0], self.alpha)
        return Mixture(self.share, self.components)

    @property
    def modes(self) -> Tensor:
        """How many components each image has, (B,)."""
        return (self.share > 0).sum(1)

    @property
    def center(self) -> Tensor:
        """The density's mean (B, 2); where there are several components, theirs (B, K, 2)."""
        return self._one(self.means)

    @property
    def extent(self) -> Tensor:
        """Half-axes, short and long, of the support or of the ellipse that holds half of a Gaussian, as `center`."""
        return self._one(self._ellipse().axes.flip(-1))

    @property
    def angle(self) -> Tensor:
        """Of the long axis, (B,) or (B, K)."""
        return self._one(self._ellipse().angle)

    @property
    def shape(self) -> str:
        """What figures draw as its rim."""
        return "ellipse"

    def _ellipse(self) -> Ellipse:
        components = self.components
        return components.contour(0.5) if isinstance(components, Gaussian) else components.support

    def _one(self, values: Tensor) -> Tensor:
        return values[:, 0] if self.share.shape[1] == 1 else values

    def render(self, size: tuple[int, int]) -> Tensor:
        """The density (B, 1, *size) over its largest value, exact at any resolution."""
        return peak_one(drawn(self.density, size))

    def move(self, matrix: Tensor) -> Self:
        """The density moved by a similarity (B, 2, 3); the weights stay those of the image it was seen on."""
        linear = matrix[:, None, :, :2].to(self.covariances)
        means = move_points(self.means, matrix.to(self.means))
        moved = replace(self, means=means, covariances=linear @ self.covariances @ linear.mT)
        return replace(moved, map=moved.render((self.map.shape[2], self.map.shape[3])))

    def distance(self, other: Self) -> Tensor:
        """(B,) squared distances: of means and roots of variances where there is one mode, of the maps elsewhere."""
        if self.share.shape[1] > 1 or other.share.shape[1] > 1:
            return super().distance(other)
        apart = (self.means - other.means).square().sum((1, 2))
        spread = (self.covariances - other.covariances).square().sum((1, 2, 3))
        return apart + spread.clamp_min(1e-12).sqrt()


def density_of(means: Tensor, covariances: Tensor, alpha: Alpha) -> Gaussian | TruncatedParaboloid:
    """The densities of a family with these means (*batch, d) and covariances (*batch, d, d)."""
    return Gaussian(means, covariances) if alpha == 1 else TruncatedParaboloid.from_moments(means, covariances)


def drawn(density: Density, size: tuple[int, int]) -> Tensor:
    """A density of the plane, or of the line where H is 1, at the pixels: (B, 1, H, W)."""
    if density.event_shape[0] == 2:
        return density.render(size)[:, None]
    return density.render(size[1])[:, None, None].expand(-1, 1, size[0], -1)


class ContinuousLook(PoolLook):
    """Scores, their softmax, and a density fitted to it."""

    def __init__(
        self,
        channels: int,
        alpha: Alpha = 1,
        modes: int = 1,
        most: int | None = None,
        basis: int = 100,
        ridge: float = 0.01,
        variance: float | None = None,
        padding: bool = True,
        steps: int = 20,
        penalty: float = 10.0,
        hidden: int = 0,
        query: int = 0,
        dropout: float = 0.0,
        dimensions: Literal[1, 2] = 2,
    ) -> None:
        super().__init__()
        if alpha not in (1, 2):
            raise ValueError(f"alpha must be 1 (Gaussians) or 2 (truncated paraboloids), not {alpha}")
        if modes < 1 or (most is not None and most < 1):
            raise ValueError(f"modes and most must be positive, not {modes} and {most}")
        if variance is None:  # as wide as a grid needs to have no gaps, see docs/pooling.md
            variance = 1 / (3 * max(1.0, basis ** (1 / dimensions) - 1) ** 2)
        if not (ridge > 0 and variance > 0):
            raise ValueError(f"ridge and variance must be positive, not {ridge} and {variance}")
        self.score = Score(channels, hidden, query, dropout)
        self.basis = GaussianBasis.grid(basis, variance, dimensions)
        self.regressions = Regressions(ridge, padding)
        self.alpha: Alpha = alpha
        self.modes, self.most = modes, most
        self.steps, self.penalty = steps, penalty

    def forward(self, x: Tensor, query: Tensor | None = None) -> ContinuousGaze:
        """Features (B, C, H, W), or (B, C, L) where it was built for one dimension, and a query (B, Q), to a gaze."""
        size = plane(x)
        if x.ndim - 2 != self.basis.centers.shape[1]:
            raise ValueError(f"this look has {self.basis.centers.shape[1]} dimensions, but got {tuple(x.shape)}")
        probabilities = F.softmax(self.score(x, query), dim=1)
        share, means, covariances = self._fit(grid_points(tuple(x.shape[2:]), probabilities), probabilities)
        expected = density_of(means, covariances, self.alpha).expect(self.basis)
        r = (share[:, :, None] * expected).sum(1)  # continuous (5.4)
        weights = r @ self.regressions(self.basis, tuple(x.shape[2:]), r).mT  # c = Br = H(Gr)
        gaze = ContinuousGaze(weights, weights.reshape(-1, 1, *size), share, means, covariances, self.alpha)
        return replace(gaze, map=gaze.render(size))

    def _fit(self, points: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mixing weights (B, K), means (B, K, d) and covariances (B, K, d, d) for probabilities (B, L)."""
        if self.most is not None:
            generator = torch.Generator(points.device).manual_seed(0)  # the same image, the same gaze
            chosen = choose_mixture(
                points, probabilities, self.penalty, self.most, steps=self.steps, generator=generator
            )
            mixture = chosen.mixture
        elif self.modes > 1:
            mixture = fit_mixture(points, probabilities, self.modes, self.steps)
        else:
            mean, covariance = weighted_moments(points, probabilities)
            return torch.ones_like(mean[:, :1]), mean[:, None], covariance[:, None]
        return mixture.weights, mixture.components.mean, mixture.components.covariance


class ContinuousPool(Pool):
    """The expectation of the features under a density over the image.

    Args:
        channels: of the features it pools.
        alpha: 1, continuous softmax (Gaussians), or 2, continuous sparsemax (truncated paraboloids, exact zeros).
        modes: components of the density.
        most: where it is given, one to so many components, chosen for each image by continuous (5.20).
        basis: how many Gaussian basis functions the features are written in, a square number.
        ridge: penalty of the regression.
        variance: of each basis function; nothing means a third of the squared distance between their centres, which
            makes contexts ten times as exact as the 0.001 of continuous Table 6.1.
        padding: let the features vanish outside the image.
        steps: of EM, where there are several modes.
        penalty: λ of (5.20).
        hidden: width of a hidden layer before the scores; 0 for none.
        query: width of a query that the scores depend on; 0 for none.
        dropout: of the hidden layer.
        dimensions: 1 for signals (B, C, L).

    >>> ContinuousPool(16, alpha=2)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16])
    >>> ContinuousPool(16, dimensions=1, basis=20)(torch.rand(2, 16, 50)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        channels: int,
        alpha: Alpha = 1,
        modes: int = 1,
        most: int | None = None,
        basis: int = 100,
        ridge: float = 0.01,
        variance: float | None = None,
        padding: bool = True,
        steps: int = 20,
        penalty: float = 10.0,
        hidden: int = 0,
        query: int = 0,
        dropout: float = 0.0,
        dimensions: Literal[1, 2] = 2,
    ) -> None:
        look = ContinuousLook(
            channels,
            alpha,
            modes,
            most,
            basis,
            ridge,
            variance,
            padding,
            steps,
            penalty,
            hidden,
            query,
            dropout,
            dimensions,
        )
        super().__init__(look)
