"""∫ TP(t; μ, S)·N(t; m, C) dt in the plane: an expectation under a truncated paraboloid, or of one.

S is the matrix of the support {(t − μ)ᵀS⁻¹(t − μ) ≤ 1}; the density is 2/(π|S|^½)·(1 − (t − μ)ᵀS⁻¹(t − μ)) on it. With
S = LLᵀ and u = L⁻¹(t − μ) the integral is one over the unit disc, continuous (A.15), whose derivatives are, by parts,
moments under the uniform measure of the support: the 0-escort of continuous (3.20), (A.24), (A.25). No derivative
divides by the covariance of a narrow Gaussian, but those by m and C, which only a learned basis asks for.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foveate.densities.disc import DiscIntegrals, Discs, disc_integrals, disc_moments
from foveate.densities.matrices import symmetric_parts
from foveate.densities.precision import at_least_single, broadcast, double, without_autocast

CHUNK = 16_384  # pairs at once, lest many of them need much memory


@without_autocast
def paraboloid_times_gaussian(loc: Tensor, support: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """∫ TP(t; μ, S)·N(t; m, C) dt, with gradients of every order by all four.

    Args:
        loc: μ (..., 2).
        support: S (..., 2, 2), the matrix of the rim.
        mean: m (..., 2), broadcasting with μ.
        covariance: C (..., 2, 2).

    Returns:
        (...), in the type of the arguments but never less than float32.

    >>> origin = torch.zeros(2)
    >>> paraboloid_times_gaussian(origin, torch.eye(2), origin, 1e-4 * torch.eye(2))  # the density's height, nearly 2/π
    tensor(0.6365)
    """
    loc, support, mean, covariance = at_least_single(loc, support, mean, covariance)
    parts = (*loc.unbind(-1), *symmetric_parts(support), *mean.unbind(-1), *symmetric_parts(covariance))
    result: Tensor = _Overlap.apply(*parts)[0]
    return result


class Pair(NamedTuple):
    """What `_Overlap` takes, in float64: tensors that broadcast."""

    loc1: Tensor
    loc2: Tensor
    s11: Tensor
    s12: Tensor
    s22: Tensor
    mean1: Tensor
    mean2: Tensor
    c11: Tensor
    c12: Tensor
    c22: Tensor


class Whitened(NamedTuple):
    """L = ((l11, 0), (l21, l22)) with S = LLᵀ, the density's height 2/(π|S|^½), and the Gaussian in u = L⁻¹(t − μ)."""

    l11: Tensor
    l21: Tensor
    l22: Tensor
    height: Tensor
    discs: Discs

    @classmethod
    def of(cls, pair: Pair) -> "Whitened":
        """Continuous (A.15), with a Cholesky factor in place of the root."""
        area = pair.s11 * pair.s22 - pair.s12 * pair.s12
        l11 = pair.s11.sqrt()
        l21, l22 = pair.s12 / l11, (area / pair.s11).sqrt()
        tilt = l21 / l11
        m1 = (pair.mean1 - pair.loc1) / l11
        m2 = (pair.mean2 - pair.loc2 - l21 * m1) / l22
        c11 = pair.c11 / pair.s11
        c12 = (pair.c12 - tilt * pair.c11) / (l11 * l22)
        c22 = (pair.c22 - 2 * tilt * pair.c12 + tilt * tilt * pair.c11) / (l22 * l22)
        determinant = (pair.c11 * pair.c22 - pair.c12 * pair.c12) / area
        height = 2 / (math.pi * area.sqrt())  # with the determinant |S|^½ of du, −λ·(A.15)
        return cls(l11, l21, l22, height, Discs(*broadcast(m1, m2, c11, c12, c22, determinant)))


class _Overlap(torch.autograd.Function):
    """Value by `disc_integrals`; the gradient from moments that the same sweep gives."""

    @staticmethod
    def forward(*parts: Tensor) -> tuple[Tensor, ...]:
        white = Whitened.of(Pair(*(double(t) for t in parts)))
        integrals = _in_chunks(white.discs, parts[0].dtype)
        return ((white.height * integrals.value).to(parts[0].dtype), *integrals)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, moments = ctx.saved_tensors[:10], DiscIntegrals(*ctx.saved_tensors[10:])
        with torch.autocast(inputs[0].device.type, enabled=False):
            pair = Pair(*(double(t) for t in inputs))
            white = Whitened.of(pair)
            if torch.is_grad_enabled():  # the gradient shall be differentiated in turn
                moments = _differentiable(white.discs)
            found = _gradients(pair, white, moments, double(gradients[0]), any(ctx.needs_input_grad[5:]))
            return tuple(
                g.sum_to_size(t.shape).to(t.dtype) if g is not None and needed else None
                for g, t, needed in zip(found, inputs, ctx.needs_input_grad, strict=True)
            )


def _in_chunks(discs: Discs, dtype: torch.dtype) -> DiscIntegrals:
    """`disc_integrals`, not too many at once."""
    shape, flat = discs.m1.shape, [t.reshape(-1) for t in discs]
    if flat[0].numel() <= CHUNK or flat[0].device.type != "cpu":
        return DiscIntegrals(*(t.reshape(shape) for t in disc_integrals(Discs(*flat), dtype)))
    parts = [disc_integrals(Discs(*chunk), dtype) for chunk in zip(*(torch.split(t, CHUNK) for t in flat), strict=True)]
    return DiscIntegrals(*(torch.cat(ts).reshape(shape) for ts in zip(*parts, strict=True)))


def _differentiable(discs: Discs) -> DiscIntegrals:
    """The same integrals as functions that can be differentiated again, at the price of more moments."""
    m00, m01, m10, m02, m11, m20 = disc_moments(*discs[:5], order=2).unbind(0)
    return DiscIntegrals(m00 - m20 - m02, m00, m10, m01, m20, m11, m02)


def _gradients(
    pair: Pair, white: Whitened, moments: DiscIntegrals, gradient: Tensor, basis: bool
) -> tuple[Tensor | None, ...]:
    """The gradient by each of the ten parts; those by the Gaussian where `basis` asks for them.

    By μ 2h·L⁻ᵀ∫uN, by S h·L⁻ᵀ(∫uuᵀN − ½∫(1 − |u|²)N)L⁻¹, continuous (3.20); by m that by μ negated; by C what is left
    when μ, S, m and C move with one affine map, −h·L⁻ᵀ(∫u(u − m)ᵀN)C̃⁻¹L⁻¹, with h the height and C̃ = L⁻¹CL⁻ᵀ.
    """
    g = gradient * white.height
    p, s = 1 / white.l11, 1 / white.l22
    q = -white.l21 * p * s
    value, _, m10, m01, m20, m11, m02 = moments
    first, second = 2 * g * (p * m10 + q * m01), 2 * g * s * m01
    by_support = _congruent(p, q, s, g * (m20 - value / 2), g * m11, g * (m02 - value / 2))
    if not basis:
        return first, second, *by_support, None, None, None, None, None
    m1, m2, c11, c12, c22, determinant = white.discs
    t11, t12, t21, t22 = m20 - m10 * m1, m11 - m10 * m2, m11 - m01 * m1, m02 - m01 * m2
    g = -g / determinant
    d11, d22 = t11 * c22 - t12 * c12, t22 * c11 - t21 * c12
    d12 = (t12 * c11 - t11 * c12 + t21 * c22 - t22 * c12) / 2  # the two are equal
    return first, second, *by_support, -first, -second, *_congruent(p, q, s, g * d11, g * d12, g * d22)


def _congruent(p: Tensor, q: Tensor, s: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L⁻ᵀ((a, b), (b, c))L⁻¹ with L⁻¹ = ((p, 0), (q, s)), as derivatives by three entries: the mixed one twice."""
    return p * p * a + 2 * p * q * b + q * q * c, 2 * s * (p * b + q * c), s * s * c
