"""As many modes as there are: truncated paraboloids with disjoint supports, and mixing weights some of which are zero.

The future work of continuous 7.2, with no criterion to choose the number of modes by: components that are no modes of
their own are merged, supports shrink until no two overlap, and weights that come to nothing are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.densities.deformed import prediction_map
from foveate.densities.em import Start, fit_mixture
from foveate.densities.matrices import floored
from foveate.densities.mixture import Mixture
from foveate.densities.paraboloid import TruncatedParaboloid
from foveate.densities.precision import double, without_autocast
from foveate.densities.weights import FLOOR


def sparse_weights(scores: Tensor, temperature: float = 1.0) -> Tensor:
    """Mixing weights (..., K) by sparsemax of scores (..., K): some are 0, so that K is only the most there can be.

    >>> sparse_weights(torch.tensor([0.5, 0.4, 0.1]), temperature=0.5)
    tensor([0.6000, 0.4000, 0.0000])
    """
    return prediction_map(scores / temperature, alpha=2.0)


@without_autocast
def contact(loc: Tensor, matrix: Tensor, other: Tensor, other_matrix: Tensor) -> Tensor:
    """By how much two ellipses, or intervals or ellipsoids, grow until they touch: below 1 where they overlap.

    The square of it is the largest value of λ(1 − λ)rᵀ[(1 − λ)M + λM']⁻¹r over 0 < λ < 1, r being the centres' distance
    (Perram and Wertheim, 1985). It is found by golden sections; at the maximum its derivative by λ is zero, so that
    gradients are those at the λ found.

    Args:
        loc, other: centres (..., d).
        matrix, other_matrix: M and M' with (t − loc)ᵀM⁻¹(t − loc) ≤ 1, (..., d, d).

    Returns:
        (...), in float64.

    >>> contact(torch.zeros(2), torch.eye(2), torch.tensor([3.0, 0.0]), torch.eye(2))
    tensor(1.5000, dtype=torch.float64)
    """
    apart, first, second = double(other) - double(loc), double(matrix), double(other_matrix)

    def square(share: Tensor) -> Tensor:
        mixed = (1 - share)[..., None, None] * first + share[..., None, None] * second
        solved: Tensor = torch.linalg.solve(mixed, apart[..., None])
        return share * (1 - share) * (apart * solved[..., 0]).sum(-1)

    with torch.no_grad():
        golden = (5**0.5 - 1) / 2
        low = torch.zeros_like(square(torch.full((), 0.5, dtype=apart.dtype, device=apart.device)))
        high = torch.ones_like(low)
        for _ in range(48):
            left, right = high - golden * (high - low), low + golden * (high - low)
            up = square(left) < square(right)
            low, high = torch.where(up, left, low), torch.where(up, high, right)
    squared = square((low + high) / 2)
    together = squared <= 0
    return torch.where(together, torch.zeros_like(squared), torch.where(together, 1.0, squared).sqrt())


def fit_disjoint(
    points: Tensor,
    weights: Tensor,
    most: int = 5,
    steps: int = 20,
    start: Start = "random",
    merge: float = 0.5,
    temperature: float = 0.8,
    generator: torch.Generator | None = None,
    floor: float | None = None,
) -> Mixture:
    """Truncated paraboloids with disjoint supports, as many as the data have modes: no K and no λ to choose.

    EM fits `most` Gaussians. Two whose paraboloids would have to shrink below `merge` of their size to come apart are
    one mode and are merged, moments kept, until none are. What is left shrinks until no two supports overlap, and
    mixing weights are the sparsemax of how much of the weight each holds, divided by the temperature.

    Args:
        points: (L, d), or (*batch, L, d).
        weights: (*batch, L), none below 0.
        most: the largest number of modes.
        steps: of EM.
        start: of EM, see `fit_mixture`.
        merge: between 0, for never, and 1, for supports that overlap at all.
        temperature: below 1 leaves out weak modes; 1 keeps the weights that they have.
        generator: of a random start.
        floor: of the variances, see `fit_mixture`.

    Returns:
        a mixture of batch (*batch,) of `most` components, those that are left out with weight 0.

    >>> points = torch.rand(196, 2)
    >>> fit_disjoint(points, torch.rand(8, 196)).weights.shape
    torch.Size([8, 5])
    """
    fitted = fit_mixture(points, weights, most, steps, start, generator, floor)
    merged = _merged(fitted, merge, FLOOR if floor is None else floor)
    kept = sparse_weights(torch.where(merged.weights > 0, merged.weights, -1.0), temperature)
    return disjoint(Mixture(kept, merged.components))


def disjoint(mixture: Mixture) -> Mixture:
    """The mixture with the supports of its paraboloids shrunk until no two overlap; weights and centres stay.

    >>> loc, scale = torch.tensor([[0.4], [0.6]]), torch.full((2, 1, 1), 0.01)
    >>> apart = disjoint(Mixture(torch.tensor([0.5, 0.5]), TruncatedParaboloid(loc, scale)))
    >>> apart.support.axes
    tensor([[0.1000],
            [0.1000]])
    """
    components = mixture.components
    if not isinstance(components, TruncatedParaboloid):
        raise TypeError(f"supports can be made disjoint for truncated paraboloids, not for {type(components).__name__}")
    size = _contacts(mixture).amin(-1).clamp(1e-3, 1.0)
    covariance = double(components.covariance) * size.square()[..., None, None]
    return Mixture(mixture.weights, TruncatedParaboloid.from_moments(components.mean, covariance.to(mixture.weights)))


def _contacts(mixture: Mixture) -> Tensor:
    """`contact` of every two components, (*batch, K, K); infinite of one with itself or with what has no weight."""
    components = mixture.components
    assert isinstance(components, TruncatedParaboloid)
    loc, rim = components.loc, components.rim
    touching = contact(loc[..., :, None, :], rim[..., :, None, :, :], loc[..., None, :, :], rim[..., None, :, :, :])
    there = mixture.weights > 0
    one = torch.eye(there.shape[-1], dtype=torch.bool, device=there.device)
    other = there[..., :, None] & there[..., None, :] & ~one
    return torch.where(other, touching, torch.inf)


@without_autocast
def _merged(mixture: Mixture, least: float, floor: float) -> Mixture:
    """Truncated paraboloids with the moments of the components, nearest ones merged while they are one mode."""
    state = _Moments(mixture.weights, mixture.components.mean, mixture.components.covariance)
    for _ in range(mixture.weights.shape[-1] - 1):
        state = state.merge_nearest(least, floor)
    return state.mixture()


@dataclass(frozen=True)
class _Moments:
    """Weights (*batch, K), means (*batch, K, d) and covariances (*batch, K, d, d) of components."""

    weights: Tensor
    means: Tensor
    covariances: Tensor

    def mixture(self) -> Mixture:
        """Truncated paraboloids of these moments."""
        return Mixture(self.weights, TruncatedParaboloid.from_moments(self.means, self.covariances))

    def merge_nearest(self, least: float, floor: float) -> _Moments:
        """The two components with the least contact become the one of both's moments, if that is below `least`."""
        contacts = _contacts(self.mixture()).detach()
        count = contacts.shape[-1]
        value, index = contacts.flatten(-2).min(-1)
        first, second = index // count, index % count
        ours = torch.nn.functional.one_hot(first, count).bool() & (value < least)[..., None]
        theirs = torch.nn.functional.one_hot(second, count).bool() & (value < least)[..., None]
        both = ours | theirs
        share = torch.where(both, self.weights, 0.0)
        total = share.sum(-1, keepdim=True)
        share = share / torch.where(total > 0, total, 1.0)
        mean = (share[..., None] * self.means).sum(-2, keepdim=True)
        apart = self.means - mean
        spread = self.covariances + apart[..., :, None] * apart[..., None, :]
        covariance = floored((share[..., None, None] * spread).sum(-3, keepdim=True), floor)
        weights = torch.where(ours, total, torch.where(theirs, torch.zeros_like(total), self.weights))
        means = torch.where(ours[..., None], mean, self.means)
        return _Moments(weights, means, torch.where(ours[..., None, None], covariance, self.covariances))
