"""Expectations on the line, in closed form: a truncated parabola against a Gaussian and against another parabola."""

import math

import torch
from torch import Tensor

from foveate.densities.disc import legendre
from foveate.densities.precision import at_least_single, double

WIDE = 0.5  # half a support; above it the closed form cancels, and a polynomial is a Gaussian to all digits


def parabola_times_gaussian(loc: Tensor, support: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """∫ TP(t)·N(t; m, σ²) dt for the parabola ¾(1 − (t − μ)²/S)/√S: the line's continuous (A.16), by (A.18)–(A.20).

    Args:
        loc, support: μ and S, the squared half-width, (...).
        mean, variance: m and σ², (...).

    Returns:
        (...).

    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> parabola_times_gaussian(zero, one, zero, 1e-6 * one)  # the density's height
    tensor(0.7500)
    """
    loc, support, mean, variance = at_least_single(loc, support, mean, variance)
    half = double(support).sqrt()
    m, b = (double(mean) - double(loc)) / half, double(variance).sqrt() / half
    narrow = b.clamp_max(WIDE)
    above, below = (1 - m) / narrow, (-1 - m) / narrow
    mass = (torch.erf(above * math.sqrt(0.5)) - torch.erf(below * math.sqrt(0.5))) / 2
    rims = (1 + m) * _normal(above) + (1 - m) * _normal(below)
    closed = (1 - m * m - narrow * narrow) * mass + narrow * rims
    nodes, weights = (torch.tensor(t, dtype=m.dtype, device=m.device) for t in legendre(24))
    wide = b.clamp_min(WIDE)
    summed = (_normal((nodes - m[..., None]) / wide[..., None]) * weights * (1 - nodes * nodes)).sum(-1) / wide
    return (0.75 / half * torch.where(b < WIDE, closed, summed)).to(loc.dtype)


def _normal(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def parabola_times_parabola(loc: Tensor, support: Tensor, other: Tensor, other_support: Tensor) -> Tensor:
    """∫ TP(t; μ, S)·TP(t; μ', S') dt on the line, all (...): a polynomial of degree 4 where both are positive.

    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> parabola_times_parabola(zero, one, zero, one)  # 9/16 ∫ (1 − t²)²
    tensor(0.6000)
    """
    loc, support, other, other_support = at_least_single(loc, support, other, other_support)
    first, second = double(support).sqrt(), double(other_support).sqrt()
    apart = double(other) - double(loc)
    low, high = torch.maximum(-first, apart - second), torch.minimum(first, apart + second)
    nodes, weights = (torch.tensor(t, dtype=low.dtype, device=low.device) for t in legendre(3))
    half = ((high - low) / 2).clamp_min(0)[..., None]
    t = (high + low)[..., None] / 2 + half * nodes
    product = (1 - (t / first[..., None]) ** 2) * (1 - ((t - apart[..., None]) / second[..., None]) ** 2)
    return ((product * weights * half).sum(-1) * 0.5625 / (first * second)).to(loc.dtype)
