"""∫ TP(t; μ, S)·TP(t; μ', S') dt in the plane: truncated paraboloids as basis functions of one another."""

import math

import torch
from torch import Tensor

from foveate.densities.disc import legendre
from foveate.densities.matrices import symmetric_parts
from foveate.densities.precision import at_least_single, double, without_autocast

ACROSS = 80  # nodes between two crossings of the rims, where the outer integrand has kinks


@without_autocast
def paraboloid_times_paraboloid(loc: Tensor, support: Tensor, other: Tensor, other_support: Tensor) -> Tensor:
    """The integral of a product of two truncated paraboloids, differentiable by all four.

    In coordinates where the first support is the unit disc, chords along the major axis of the second ellipse meet both
    in an interval. On it the product is a polynomial of degree 4, which three nodes integrate exactly. Across the
    chords, Gauss–Legendre rules run from one crossing of the rims to the next, in the sine of the position, which takes
    away the roots at the ends.

    Args:
        loc, other: μ and μ', (..., 2), which broadcast.
        support, other_support: matrices S and S' of the rims, (..., 2, 2).

    Returns:
        (...).

    >>> origin, one = torch.zeros(2), torch.eye(2)
    >>> paraboloid_times_paraboloid(origin, one, origin, one)  # ∫ p² = 4/(3π), with p = 2/π(1 − r²)
    tensor(0.4244)
    """
    loc, support, other, other_support = at_least_single(loc, support, other, other_support)
    s11, s12, s22 = symmetric_parts(double(support))
    area = s11 * s22 - s12 * s12
    l11 = s11.sqrt()
    tilt, l22 = s12 / s11, (area / s11).sqrt()
    apart = double(other) - double(loc)
    m1 = apart[..., 0] / l11
    m2 = (apart[..., 1] - tilt * apart[..., 0]) / l22
    o11, o12, o22 = symmetric_parts(double(other_support))
    c11, c12 = o11 / s11, (o12 - tilt * o11) / (l11 * l22)
    c22 = (o22 - 2 * tilt * o12 + tilt * tilt * o11) / (l22 * l22)
    integral = _disc_and_ellipse(m1, m2, c11, c12, c22, (o11 * o22 - o12 * o12) / area)
    return (4 / math.pi**2 / (o11 * o22 - o12 * o12).sqrt() * integral).to(loc.dtype)


def _disc_and_ellipse(m1: Tensor, m2: Tensor, c11: Tensor, c12: Tensor, c22: Tensor, determinant: Tensor) -> Tensor:
    """∫ (1 − |u|²)(1 − (u − m)ᵀC⁻¹(u − m)) du where both factors are positive, all (...)."""
    with torch.no_grad():  # the integral is the same in every frame, so its derivative by the frame is zero
        angle = torch.atan2(c12, (c11 - c22) / 2) / 2
        cos, sin = angle.cos(), angle.sin()
    along, across = cos * m1 + sin * m2, cos * m2 - sin * m1
    major = cos * cos * c11 + 2 * cos * sin * c12 + sin * sin * c22
    mixed = cos * sin * (c22 - c11) + (cos * cos - sin * sin) * c12
    minor = (determinant + mixed * mixed) / major
    reach = minor.sqrt()
    low, high = (across - reach).clamp_min(-1)[..., None], (across + reach).clamp_max(1)[..., None]
    cuts = torch.minimum(torch.maximum(_crossings(along, across, major, minor), low), high)
    ends = torch.cat([low, cuts.sort(-1).values, high], -1)[..., None]
    nodes, weights = (torch.tensor(t, dtype=m1.dtype, device=m1.device) for t in legendre(ACROSS))
    half = ((ends[..., 1:, :] - ends[..., :-1, :]) / 2).clamp_min(0)
    y = ((ends[..., 1:, :] + ends[..., :-1, :]) / 2 + half * torch.sin(math.pi / 2 * nodes)).flatten(-2)
    step = (half * weights * math.pi / 2 * torch.cos(math.pi / 2 * nodes)).flatten(-2)
    tiny = 1e-30  # a root of no less, for the gradient's sake
    disc = (1 - y * y).clamp_min(tiny).sqrt()
    off = (y - across[..., None]) / reach[..., None]
    center = along[..., None] + (mixed / minor)[..., None] * (y - across[..., None])
    width = (determinant / minor).sqrt()[..., None]
    chord = width * (1 - off * off).clamp_min(tiny).sqrt()
    start, end = torch.maximum(-disc, center - chord), torch.minimum(disc, center + chord)
    radius, middle = ((end - start) / 2).clamp_min(0), (start + end) / 2
    xi, inner = (torch.tensor(t, dtype=m1.dtype, device=m1.device) for t in legendre(3))
    total = torch.zeros_like(y)
    for node, weight in zip(xi, inner, strict=True):
        x = middle + radius * node
        first = disc * disc - x * x
        second = (chord * chord - (x - center) ** 2) / (width * width)
        total = total + weight * first * second
    return (total * radius * step).sum(-1)


@torch.no_grad()
def _crossings(m1: Tensor, m2: Tensor, major: Tensor, minor: Tensor) -> Tensor:
    """Where the unit circle meets the ellipse (u₁ − m₁)²/major + (u₂ − m₂)²/minor = 1: the four u₂, (..., 4).

    With z = e^{iφ} on the circle it is a quartic in z; its roots off the circle are no crossings and do no harm.
    """
    a, d = 1 / major, 1 / minor
    scale = a.abs() + d.abs()
    second = torch.complex((a - d) / 4, torch.zeros_like(a))
    second = torch.where(second.abs() < 1e-10 * scale, 1e-10 * scale.to(second.dtype), second)  # two circles
    first = torch.complex(-a * m1, d * m2)
    middle = ((a + d) / 2 + a * m1 * m1 + d * m2 * m2 - 1).to(second.dtype)
    companion = torch.diag_embed(torch.ones_like(second)[..., None].expand(*a.shape, 3), -1)
    rest = torch.stack([first, middle, first.conj(), second.conj()], -1) / second[..., None]
    companion = torch.cat([-rest[..., None, :], companion[..., 1:, :]], -2)
    roots: Tensor = torch.linalg.eigvals(companion)
    return roots.angle().sin()
