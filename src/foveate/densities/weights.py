"""Moments of points with weights: what a density is fitted to."""

import torch
from torch import Tensor

from foveate.densities.matrices import floored
from foveate.densities.precision import at_least_single, without_autocast

FLOOR = 1e-5  # the least variance along any direction: 0.003 of the side of an image, finer than its pixels


@without_autocast
def weighted_moments(points: Tensor, weights: Tensor, floor: float = FLOOR) -> tuple[Tensor, Tensor]:
    """Mean (*batch, d) and covariance (*batch, d, d) of points under weights: moment matching, continuous Alg. 2.

    Weights are divided by their sum; where that is 0, they count as equal. Covariances with an eigenvalue below `floor`
    (one point, points on a line) have it raised.

    Args:
        points: (L, d), or (*batch, L, d).
        weights: (*batch, L), none below 0.
        floor: the least variance along any direction.

    >>> mean, covariance = weighted_moments(torch.tensor([[0.0], [1.0]]), torch.tensor([3.0, 1.0]))
    >>> mean, covariance
    (tensor([0.2500]), tensor([[0.1875]]))
    """
    points, weights = at_least_single(points, weights)
    weights = normalised(weights)
    mean = (weights[..., None] * points).sum(-2)
    centered = points - mean[..., None, :]
    squares = centered[..., :, None] * centered[..., None, :]  # no matrix product, for a GPU might do it in less digits
    return mean, floored((weights[..., None, None] * squares).sum(-3), floor)


def normalised(weights: Tensor) -> Tensor:
    """Weights (..., L) divided by their sum; equal weights where that is 0.

    >>> normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.5000, 0.5000]])
    """
    largest = weights.amax(-1, keepdim=True) if weights.shape[-1] else weights.sum(-1, keepdim=True)
    nothing = largest <= 0
    scaled = weights / torch.where(nothing, torch.ones_like(largest), largest).detach()
    scaled = torch.where(nothing, torch.ones_like(weights), scaled)
    return scaled / scaled.sum(-1, keepdim=True)
