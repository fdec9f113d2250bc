"""Expectation maximisation for weighted points: mixtures of Gaussians fitted to many images and restarts at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from foveate.densities.gaussian import Gaussian
from foveate.densities.matrices import floored, log_determinant
from foveate.densities.mixture import Mixture
from foveate.densities.precision import at_least_single, broadcast, double, without_autocast
from foveate.densities.weights import normalised, weighted_moments

Start = Literal["regions", "random"] | Mixture


@without_autocast
def fit_mixture(
    points: Tensor,
    weights: Tensor,
    modes: int,
    steps: int,
    start: Start = "regions",
    generator: torch.Generator | None = None,
    floor: float | None = None,
) -> Mixture:
    """A mixture of Gaussians fitted to weighted points by so many steps of EM: continuous (5.12)–(5.15).

    Gradients flow through the steps to the weights. The likelihood (5.16) of no image falls from one step to the next.

    Args:
        points: (L, d), or (*batch, L, d).
        weights: (*batch, L), none below 0.
        modes: K, the number of components.
        steps: of EM.
        start: "regions" fits each component to a part of the unit square (continuous 6.3.1: halves for K = 2, quarters
            for K = 4), "random" puts components at random points; or a mixture to go on from.
        generator: of the random points.
        floor: the least variance of a component along any direction, lest one shrinks to a point and its likelihood
            grows without end. That of a uniform density on the cell that each of L points has of the unit square or
            line, L^(−2/d)/12, unless given.

    Returns:
        a mixture of batch (*batch,); a component that no weight belongs to has weight 0.

    >>> points = torch.rand(196, 2)
    >>> fit_mixture(points, torch.rand(8, 196), modes=2, steps=5).weights.shape
    torch.Size([8, 2])
    """
    if modes < 1 or steps < 0:
        raise ValueError(f"modes must be at least 1 and steps at least 0, not {modes} and {steps}")
    points, weights = at_least_single(points, weights)
    floor = cell_variance(points) if floor is None else floor
    state = _start(points, weights, modes, start, generator, floor)
    features = _features(points)
    share = double(normalised(weights))
    for _ in range(steps):
        state = state.step(features, share, floor)
    return state.mixture(weights.dtype)


def cell_variance(points: Tensor) -> float:
    """The variance L^(−2/d)/12 along each axis of the cells of L points (..., L, d) that fill the unit square or line.

    >>> round(1 / cell_variance(torch.rand(196, 2)))   # 12 · 14²
    2352
    """
    count, d = points.shape[-2:]
    return float(max(count, 1) ** (-2 / d) / 12)


def log_likelihood(points: Tensor, weights: Tensor, mixture: Mixture) -> Tensor:
    """Σₙ wₙ log p(tₙ), continuous (5.16), (*batch,), the weights (*batch, L) as they stand.

    >>> points = torch.rand(196, 2)
    >>> log_likelihood(points, torch.ones(196), fit_mixture(points, torch.ones(196), modes=2, steps=5)).shape
    torch.Size([])
    """
    log_p = mixture.log_prob(points)
    return torch.where(weights > 0, weights * log_p, torch.zeros_like(log_p)).sum(-1)


@dataclass
class _State:
    """Parameters of mixtures in float64: weights (*batch, K), means (*batch, K, d), covariances (*batch, K, d, d)."""

    weights: Tensor
    means: Tensor
    covariances: Tensor

    def step(self, features: Tensor, share: Tensor, floor: float) -> _State:
        """One E step (5.7) and one M step (5.12)–(5.15).

        Quadratic functions of t are linear in 1, t and ttᵀ, so both steps are products with the matrix of these.

        Args:
            features: of the points, (..., L, 1 + d + d²).
            share: weights that sum to 1, (*batch, L).
            floor: the least variance.
        """
        responsibility = torch.softmax(self._logits() @ features.mT, dim=-2)  # (5.7), (*batch, K, L)
        moments = (responsibility * share[..., None, :]) @ features
        mass, d = moments[..., 0], self.means.shape[-1]  # (5.15)
        alive = mass > 1e-12
        per = torch.where(alive, mass, torch.ones_like(mass))[..., None]
        means = moments[..., 1 : 1 + d] / per  # (5.12)
        squares = (moments[..., 1 + d :] / per).reshape(self.covariances.shape)
        covariances = floored(squares - means[..., :, None] * means[..., None, :], floor)  # (5.13)
        means = torch.where(alive[..., None], means, self.means)
        covariances = torch.where(alive[..., None, None], covariances, self.covariances)
        return _State(torch.where(alive, mass, torch.zeros_like(mass)), means, covariances)  # (5.14)

    def _logits(self) -> Tensor:
        """log πₖN(t; μₖ, Σₖ) as coefficients (*batch, K, 1 + d + d²) of 1, t and ttᵀ."""
        d, precisions = self.means.shape[-1], torch.linalg.inv(self.covariances)
        linear = (precisions * self.means[..., None, :]).sum(-1)
        there = self.weights > 0
        log_weights = torch.where(there, self.weights, torch.ones_like(self.weights)).log()
        log_weights = log_weights - 1e30 * (~there).to(log_weights.dtype)  # a log of 0 whose products stay numbers
        squared = (linear * self.means).sum(-1) + log_determinant(self.covariances) + d * math.log(2 * math.pi)
        return torch.cat([(log_weights - squared / 2)[..., None], linear, -precisions.flatten(-2) / 2], -1)

    def mixture(self, dtype: torch.dtype) -> Mixture:
        """The mixture in the type of the weights that it was fitted to."""
        weights = self.weights / self.weights.sum(-1, keepdim=True)
        return Mixture(weights.to(dtype), Gaussian(self.means.to(dtype), self.covariances.to(dtype)))


def _features(points: Tensor) -> Tensor:
    """1, t and the entries of ttᵀ in float64: (..., L, d) to (..., L, 1 + d + d²)."""
    points = double(points)
    squares = points[..., :, None] * points[..., None, :]
    return torch.cat([torch.ones_like(points[..., :1]), points, squares.flatten(-2)], -1)


def _start(
    points: Tensor, weights: Tensor, modes: int, start: Start, generator: torch.Generator | None, floor: float
) -> _State:
    if isinstance(start, Mixture):
        if start.weights.shape[-1] != modes:
            raise ValueError(f"a mixture of {start.weights.shape[-1]} components cannot be the start of {modes} modes")
        given = (start.weights, start.components.mean, start.components.covariance)
        return _State(*(double(t) for t in given))
    if start == "regions":
        return _in_regions(points, weights, modes, floor)
    if start == "random":
        scores = torch.rand(*weights.shape, generator=generator, dtype=torch.float64, device=weights.device)
        return _at_random(points, weights, torch.ones(modes, device=weights.device), scores, floor)
    raise ValueError(f"start must be 'regions', 'random' or a mixture, not {start!r}")


def _in_regions(points: Tensor, weights: Tensor, modes: int, floor: float) -> _State:
    """One component for each cell of a grid over the unit square, by the moments of the weights in it."""
    d, counts = points.shape[-1], [modes]
    if d > 1:  # cells as square as K allows, more along rows than along columns: halves are upper and lower
        columns = max(c for c in range(1, math.isqrt(modes) + 1) if modes % c == 0)
        counts = [modes // columns, columns]
    cell = torch.zeros_like(points[..., 0])
    for axis, count in enumerate(counts):
        cell = cell * count + (points[..., axis] * count).floor().clamp(0, count - 1)
    inside = (cell[..., None, :] == torch.arange(modes, device=cell.device)[:, None]).to(weights.dtype)  # (..., K, L)
    own = weights[..., None, :] * inside
    mass = double(own.sum(-1))
    own = torch.where((mass > 0)[..., None], own, inside.expand_as(own))
    mean, covariance = weighted_moments(points if points.ndim == 2 else points[..., None, :, :], own, floor)
    total = mass.sum(-1, keepdim=True)
    share = torch.where(total > 0, mass / torch.where(total > 0, total, 1), torch.full_like(mass, 1 / modes))
    return _State(share, double(mean), double(covariance))


def _at_random(points: Tensor, weights: Tensor, present: Tensor, uniform: Tensor, floor: float) -> _State:
    """Components at different points drawn by their weights, each of the covariance of all but smaller.

    Args:
        points: (L, d), or (*batch, L, d).
        weights: (*batch, L).
        present: 1 for the components there are and 0 for others, (..., K).
        uniform: numbers in [0, 1), (..., *batch, L).
        floor: the least variance.
    """
    modes, share = present.shape[-1], double(normalised(weights))
    scores = share.log() - (-uniform.clamp(1e-12, 1 - 1e-12).log()).log()  # the K largest are a draw without return
    best = scores.detach().topk(min(modes, scores.shape[-1]), dim=-1).indices
    best = best[..., torch.arange(modes, device=best.device) % best.shape[-1]]
    means = torch.take_along_dim(double(points), best[..., None], dim=-2) if points.ndim > 2 else double(points)[best]
    count = present.sum(-1, keepdim=True)
    shares, _ = broadcast(double(present / count), means[..., 0])
    _, covariance = weighted_moments(points, weights, floor)
    matrices = floored(double(covariance)[..., None, :, :] / count[..., None, None], floor)
    return _State(shares, means, matrices.expand(*means.shape, means.shape[-1]))


@dataclass(frozen=True, eq=False)
class Chosen:
    """The fits that a criterion chose, one for each image.

    Attributes:
        mixture: of as many components as the largest fit; those that a smaller fit lacks have weight 0.
        modes: K*, (*batch,).
        criteria: of every fit, (1 + restarts·(most − 1), *batch), the fit with one component first.
    """

    mixture: Mixture
    modes: Tensor
    criteria: Tensor


@without_autocast
def choose_mixture(
    points: Tensor,
    weights: Tensor,
    penalty: float,
    most: int = 5,
    restarts: int = 3,
    steps: int = 20,
    observations: float | None = None,
    generator: torch.Generator | None = None,
    floor: float | None = None,
) -> Chosen:
    """The best of 1 + restarts·(most − 1) fits for each image, by −2 log-likelihood + λK: continuous (5.20), 6.3.1.

    One component is fitted by its moments, K = 2 … `most` by EM from random starts; all of them run as one batch.

    Args:
        points: (L, d).
        weights: (*batch, L), none below 0.
        penalty: λ.
        most: the largest K.
        restarts: random starts for each K.
        steps: of EM.
        observations: how many observations the weights of an image stand for, since λ is compared with a likelihood
            that grows with them. As many as there are points unless given.
        generator: of the random starts.
        floor: the least variance of a component along any direction, lest one shrinks to a point and its likelihood
            grows without end. That of a uniform density on the cell that each of L points has of the unit square or
            line, L^(−2/d)/12, unless given.

    >>> chosen = choose_mixture(torch.rand(196, 2), torch.rand(8, 196), penalty=100.0)
    >>> chosen.modes.shape, chosen.criteria.shape
    (torch.Size([8]), torch.Size([13, 8]))
    """
    points, weights = at_least_single(points, weights)
    floor = cell_variance(points) if floor is None else floor
    shape = weights.shape
    flat = weights.reshape(-1, shape[-1])
    counts = torch.tensor([1] + [k for k in range(2, most + 1) for _ in range(restarts)], device=points.device)
    present = (torch.arange(most, device=points.device) < counts[:, None]).to(points.dtype)  # (fits, K)
    scores = torch.rand(len(counts), *flat.shape, generator=generator, dtype=torch.float64, device=points.device)
    state = _at_random(points, flat, present[:, None], scores, floor)
    features, share = _features(points), double(normalised(flat))
    for _ in range(steps):
        state = state.step(features, share, floor)  # of a single component the first step is moment matching
    fits = state.mixture(weights.dtype)
    total = points.shape[-2] if observations is None else observations
    likelihood = total * log_likelihood(points, share.to(weights.dtype), fits)
    criteria = -2 * likelihood + penalty * counts[:, None]  # (5.20)
    best = criteria.detach().argmin(0)
    at = best, torch.arange(len(flat), device=best.device)
    parts = (fits.weights, fits.components.mean, fits.components.covariance)
    chosen, means, covariances = (t[at].reshape(*shape[:-1], *t.shape[2:]) for t in parts)
    mixture = Mixture(chosen, Gaussian(means, covariances))
    return Chosen(mixture, counts[best].reshape(shape[:-1]), criteria.reshape(len(counts), *shape[:-1]))
