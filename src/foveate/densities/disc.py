"""Integrals of Gaussians over the unit disc, exact to rounding for Gaussians of every width, place and direction.

continuous (A.15) maps the support of a truncated paraboloid to the unit disc, where its basis functions become
Gaussians N(u; m, C) from far narrower to far wider than the disc. What is needed are ∫ (1 − |u|²)·N over the disc and
the moments ∫ uᵅ·N, by two nested Gauss–Legendre rules:

- inside, along parallel chords of the disc; the part of a chord where the Gaussian lives is an interval, on which the
  integrand is analytic;
- outside, across the chords, over the interval where the Gaussian lives. Where that reaches the end of the disc, and
  the chords shrink as a square root, a substitution takes the root away.

The direction of the chords makes the inner integral smooth in the outer variable: along the major axis of C; but where
the disc is all but a half plane for the Gaussian, or C all but round, so that the Gaussian across the chords is
independent of the distance to the rim. Without either, the rim would cut the Gaussian at a slant and the outer
integrand would have a kink. The number of nodes is fixed by the type: errors are below 2e-9 of the largest value in
float64 and 2e-6 in float32 (tests/densities/test_expectations.py), and nothing waits for the device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foveate.densities.precision import double


class Rule(NamedTuple):
    """How finely to integrate.

    Attributes:
        across, along: nodes across the chords and along them.
        reach: deviations within which a Gaussian lives.
        end: an end of the disc is one where the Gaussian's mean is nearer to it than so many deviations.
        faintest: −log of what counts as nothing, so that no product of two is too small for the type to be quick.
    """

    across: int
    along: int
    reach: float
    end: float
    faintest: float


RULES = {torch.float32: Rule(18, 16, 5.1, 3.0, 38.0), torch.float64: Rule(32, 24, 6.4, 4.0, 340.0)}
BLOCK = 512  # Gaussians whose nodes are computed at once: they stay in the cache of a core
ROUND, CURVED = 2.0, 0.2  # chords follow the major axis where it is over ROUND minor ones and over √(CURVED·minor)


class Discs(NamedTuple):
    """Gaussians on the unit disc: mean (m1, m2), covariance (c11, c12, c22) and its determinant, each of one shape."""

    m1: Tensor
    m2: Tensor
    c11: Tensor
    c12: Tensor
    c22: Tensor
    determinant: Tensor


@dataclass
class Frame:
    """Axes for each Gaussian: e across the chords and f along them, and N(u; m, C) as N(y)·N(x | y) in u = x·f + y·e.

    Attributes:
        e1, e2: e; f is (−e2, e1).
        y, y_deviation: mean, never below 0, and deviation of y.
        x, x_deviation: mean of x at the mean of y, and deviation of x given y.
        slope: how the mean of x changes with y.
    """

    e1: Tensor
    e2: Tensor
    y: Tensor
    y_deviation: Tensor
    x: Tensor
    x_deviation: Tensor
    slope: Tensor

    @classmethod
    def of(cls, discs: Discs) -> "Frame":
        """The axes that suit each Gaussian, see above."""
        m1, m2, c11, c12, c22, determinant = discs
        half, tiny = (c11 - c22) / 2, torch.finfo(c11.dtype).tiny
        spread = _length(half, c12)
        major = (c11 + c22) / 2 + spread
        minor = determinant / major
        angle = torch.atan2(c12, half) / 2
        d1, d2 = c12 * m1 + c22 * m2, -(c11 * m1 + c12 * m2)  # across Cm, in which y is independent of m·u
        length = _length(d1, d2)
        slanted = ((major < ROUND**2 * minor) | (major.square() < CURVED**2 * minor)) & (length > tiny)
        length = length.clamp_min(tiny)
        e1, e2 = torch.where(slanted, d1 / length, -angle.sin()), torch.where(slanted, d2 / length, angle.cos())
        sign = torch.where(e1 * m1 + e2 * m2 < 0, -1.0, 1.0)
        e1, e2 = e1 * sign, e2 * sign
        across = torch.where(slanted, e1 * e1 * c11 + 2 * e1 * e2 * c12 + e2 * e2 * c22, minor)
        mixed = torch.where(slanted, e1 * e2 * (c22 - c11) + (e1 * e1 - e2 * e2) * c12, torch.zeros_like(e1))
        return cls(
            e1, e2, e1 * m1 + e2 * m2, across.sqrt(), e1 * m2 - e2 * m1, (determinant / across).sqrt(), mixed / across
        )


@dataclass
class Chords:
    """Nodes of the outer rule, (across, pairs), and of each the interval of its chord, see `Frame`.

    Nodes come first: what varies fastest in memory is then long, which makes all that follows several times quicker.

    Attributes:
        y: position of the chord.
        weight: quadrature weight times N(y), divided by the deviation and the root of 2π of x given y.
        half: half the length of the chord.
        center, radius: of the interval of the chord where the Gaussian lives.
        shift, stretch: at center + radius·ξ the Gaussian is exp(−(shift + stretch·ξ)²).
    """

    y: Tensor
    weight: Tensor
    half: Tensor
    center: Tensor
    radius: Tensor
    shift: Tensor
    stretch: Tensor

    @classmethod
    def of(cls, frame: Frame, dtype: torch.dtype) -> "Chords":
        """The chords for each Gaussian of shape (pairs,)."""
        rule = RULES[dtype]
        offsets, steps = _substitution(frame, rule)
        table = _table(_outer_rows, rule.across, dtype, offsets.device)
        nodes, derivatives = table[:, :4], table[:, 4:]
        deviation = frame.y_deviation
        z = _product(nodes, (offsets / deviation).to(dtype))  # (y − mean)/deviation, without cancellation
        steps = steps / (2 * math.pi * deviation * frame.x_deviation)
        weight = _product(derivatives, steps.to(dtype)) * _bell(z * math.sqrt(0.5), rule)
        off = z * deviation.to(dtype)
        y = off + frame.y.to(dtype)
        half = ((1 - y) * (1 + y)).clamp_min(0).sqrt()
        mean = torch.addcmul(frame.x.to(dtype), frame.slope.to(dtype), off)
        x_deviation = frame.x_deviation.to(dtype)
        outside = (mean.abs() - half).clamp_min(0)
        reach = _length(outside, rule.reach * x_deviation)
        low = torch.maximum(mean - reach, -half)
        high = torch.maximum(torch.minimum(mean + reach, half), low)
        center, radius = (low + high) / 2, (high - low) / 2
        scale = math.sqrt(0.5) / x_deviation
        return cls(y, weight, half, center, radius, (center - mean) * scale, radius * scale)


def _substitution(frame: Frame, rule: Rule) -> tuple[Tensor, Tensor]:
    """Coefficients (4, pairs), (3, pairs) of y − mean and of dy in the functions of `_outer_rows`.

    Far from the ends of the disc y = low + (high − low)·s with s in [0, 1]; near the upper one y = 1 − (1 − low)·s²;
    near both y = sin(πξ/2) with ξ = 2s − 1.
    """
    mean, deviation = frame.y, frame.y_deviation
    reach = _length((mean - 1).clamp_min(0), rule.reach * deviation)
    low, high = (-reach).maximum(-1 - mean), reach.minimum(1 - mean)  # from the mean on, for narrow Gaussians' sake
    low = low.minimum(high)
    both = mean + 1 < rule.end * deviation
    top = (1 - mean < rule.end * deviation) & ~both
    neither = ~both & ~top
    nothing = torch.zeros_like(mean)
    one = torch.where(both, -mean, torch.where(top, 1 - mean, low))
    linear = torch.where(neither, high - low, nothing)
    square = torch.where(top, 1 - mean - low, nothing)
    sine = both.to(mean.dtype)
    return torch.stack([one, linear, -square, sine]), torch.stack([linear, square, sine])


@cache
def legendre(count: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the Gauss–Legendre rule on [−1, 1].

    >>> nodes, weights = legendre(2)
    >>> [round(x, 4) for x in nodes], [round(w, 4) for w in weights]
    ([-0.5774, 0.5774], [1.0, 1.0])
    """
    nodes, weights = [], []
    for k in range(count, 0, -1):
        x = math.cos(math.pi * (k - 0.25) / (count + 0.5))
        slope = 1.0
        for _ in range(8):  # Newton's method doubles the digits
            before, here = 0.0, 1.0
            for n in range(1, count + 1):
                before, here = here, ((2 * n - 1) * x * here - (n - 1) * before) / n
            slope = count * (x * here - before) / (x * x - 1)
            x -= here / slope
        nodes.append(x)
        weights.append(2 / ((1 - x * x) * slope * slope))
    return nodes, weights


def _outer_rows(count: int) -> list[list[float]]:
    """A row for each node: 1, s, s², sin(πξ/2), and the weight times the derivatives of the last three."""
    xi, weight = legendre(count)
    s = [(x + 1) / 2 for x in xi]
    nodes = [[1.0] * count, s, [t * t for t in s], [math.sin(math.pi / 2 * x) for x in xi]]
    slopes = [[1.0] * count, [2 * t for t in s], [math.pi * math.cos(math.pi / 2 * x) for x in xi]]
    columns = nodes + [[w / 2 * d for w, d in zip(weight, row, strict=True)] for row in slopes]
    return [list(row) for row in zip(*columns, strict=True)]


def _inner_rows(count: int) -> list[list[float]]:
    """Nodes ξ, and weights times 1, ξ, ξ²."""
    xi, weight = legendre(count)
    return [xi, *([w * x**p for w, x in zip(weight, xi, strict=True)] for p in range(3))]


_TABLES: dict[object, Tensor] = {}  # a few hundred numbers for each type and device, so that none is sent twice


def _table(rows: Callable[[int], list[list[float]]], count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Those rows as a tensor; kept, unless a compiler is looking or nothing could be differentiated with it."""
    key = (rows, count, dtype, device)
    if key in _TABLES and not torch.compiler.is_compiling():
        return _TABLES[key]
    table = torch.tensor(rows(count), dtype=dtype, device=device)
    if not torch.compiler.is_compiling() and type(table) is Tensor and not table.is_inference():
        _TABLES[key] = table
    return table


def _bell(x: Tensor, rule: Rule) -> Tensor:
    """exp(−x²), in place; no less than the faintest, for numbers below the normal ones cost a hundred times more."""
    return x.square_().clamp_max_(rule.faintest).neg_().exp_()


def _length(a: Tensor, b: Tensor) -> Tensor:
    """√(a² + b²); torch.hypot is many times slower."""
    return torch.addcmul(a * a, b, b).sqrt_()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in all digits of its type, also where matrix products are allowed less."""
    asked = a.device.type == "cpu" and not torch.compiler.is_compiling()  # a graph cannot ask what is allowed
    if asked and torch.get_float32_matmul_precision() == "highest":
        return a @ b
    return (a[..., None] * b).sum(-2)


class DiscIntegrals(NamedTuple):
    """∫ (1 − |u|²)·N and ∫ N, ∫ u₁N, ∫ u₂N, ∫ u₁²N, ∫ u₁u₂N, ∫ u₂²N over the unit disc."""

    value: Tensor
    m00: Tensor
    m10: Tensor
    m01: Tensor
    m20: Tensor
    m11: Tensor
    m02: Tensor


def disc_integrals(discs: Discs, dtype: torch.dtype) -> DiscIntegrals:
    """The integrals of each Gaussian that its expectation and the gradients of that need, computed in `dtype`.

    >>> one, nothing = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> wide = Discs(nothing, nothing, 1e8 * one, nothing, 1e8 * one, 1e16 * one)
    >>> disc_integrals(wide, torch.float64).value * 2e8 * math.pi     # of 1 − |u|²
    tensor([1.5708], dtype=torch.float64)
    """
    shape = discs.m1.shape
    discs = Discs(*(t.reshape(-1) for t in discs))
    frame, rule = Frame.of(discs), RULES[dtype]
    chords = Chords.of(frame, dtype)
    table = _table(_inner_rows, rule.along, dtype, discs.m1.device)
    p0, p1, p2 = _along(chords, table, rule)
    y, half, c, r = chords.y, chords.half, chords.center, chords.radius
    weight = chords.weight * r
    along = [p0, c * p0 + r * p1, c * c * p0 + r * (2 * c * p1 + r * p2)]  # of 1, x and x²
    value = (weight * ((half - c) * (half + c) * p0 - r * (2 * c * p1 + r * p2))).sum(0)
    weight_y = weight * y
    m0, mx, mxx = ((weight * a).sum(0) for a in along)
    my, mxy, myy = ((weight_y * a).sum(0) for a in (along[0], along[1], y * p0))
    e1, e2 = frame.e1.to(dtype), frame.e2.to(dtype)
    turned = (
        value,
        m0,
        e1 * my - e2 * mx,
        e2 * my + e1 * mx,
        e1 * e1 * myy - 2 * e1 * e2 * mxy + e2 * e2 * mxx,
        e1 * e2 * (myy - mxx) + (e1 * e1 - e2 * e2) * mxy,
        e2 * e2 * myy + 2 * e1 * e2 * mxy + e1 * e1 * mxx,
    )
    return DiscIntegrals(*(t.reshape(shape) for t in turned))


def _along(chords: Chords, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """∫ ξᵖ exp(−(shift + stretch·ξ)²) dξ over [−1, 1] for p = 0, 1, 2, each (across, pairs)."""
    xi, weights = table[0, :, None, None], table[1:]
    pairs = chords.shift.shape[1]
    blocks = chords.shift.device.type == "cpu" and not torch.compiler.is_compiling()
    count = BLOCK if blocks else max(pairs, 1)
    found = []
    for shift, stretch in zip(*(torch.split(t, count, 1) for t in (chords.shift, chords.stretch)), strict=True):
        gaussian = _bell(torch.addcmul(shift, stretch, xi), rule)
        found.append(_product(weights, gaussian.flatten(1)).reshape(3, *shift.shape))
    p0, p1, p2 = (found[0] if len(found) == 1 else torch.cat(found, 2)).unbind(0)
    return p0, p1, p2


def disc_moments(m1: Tensor, m2: Tensor, c11: Tensor, c12: Tensor, c22: Tensor, order: int) -> Tensor:
    """∫ u₁ⁱu₂ʲ·N(u; m, C) du over the unit disc for i + j ≤ order, with gradients of every order.

    Args:
        m1, m2: the mean, (...).
        c11, c12, c22: the covariance, (...).
        order: the highest power.

    Returns:
        (count, ...) as `powers` sorts them.

    >>> zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    >>> disc_moments(zero, zero, 1e-4 * one, zero, 1e-4 * one, order=2)[::3, 0]  # of 1 and of u₁u₁
    tensor([1.0000e+00, 1.0000e-04], dtype=torch.float64)
    """
    moments: Tensor = _Moments.apply(m1, m2, c11, c12, c22, order)
    return moments


def powers(order: int) -> list[tuple[int, int]]:
    """The powers (i, j) of u₁ and u₂ with i + j ≤ order, lower ones first.

    >>> powers(1)
    [(0, 0), (0, 1), (1, 0)]
    """
    return [(i, n - i) for n in range(order + 1) for i in range(n + 1)]


class _Moments(torch.autograd.Function):
    """Moments by the two rules; derivatives of a Gaussian by its mean and covariance are moments two orders higher."""

    @staticmethod
    def forward(m1: Tensor, m2: Tensor, c11: Tensor, c12: Tensor, c22: Tensor, order: int) -> Tensor:
        shape = m1.shape
        entries = (m1, m2, c11, c12, c22, c11 * c22 - c12 * c12)
        discs = Discs(*(double(t).reshape(-1) for t in entries))
        frame, dtype = Frame.of(discs), discs.m1.dtype
        chords, rule = Chords.of(frame, dtype), RULES[dtype]
        xi, weight, *_ = _table(_inner_rows, rule.along, dtype, m1.device)
        xi, weight = xi[:, None, None], weight[:, None, None]  # (along, across, pairs) from here on
        gaussian = _bell(torch.addcmul(chords.shift, chords.stretch, xi), rule)
        weights = chords.weight * chords.radius * weight * gaussian
        x, y = torch.addcmul(chords.center, chords.radius, xi), chords.y
        u1, u2 = frame.e1 * y - frame.e2 * x, frame.e2 * y + frame.e1 * x
        return torch.stack([(weights * u1**i * u2**j).sum((0, 1)).reshape(shape) for i, j in powers(order)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:5])
        ctx.order = inputs[5]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        m1, m2, c11, c12, c22 = ctx.saved_tensors
        higher = dict(zip(powers(ctx.order + 2), disc_moments(m1, m2, c11, c12, c22, ctx.order + 2), strict=True))

        def moment(a: int, b: int) -> Tensor:
            terms = [g * higher[i + a, j + b] for g, (i, j) in zip(gradient, powers(ctx.order), strict=True)]
            return torch.stack(terms).sum(0)

        zeroth, at1, at2 = moment(0, 0), moment(1, 0), moment(0, 1)
        v1, v2 = at1 - m1 * zeroth, at2 - m2 * zeroth  # about the mean of the Gaussian
        w11 = moment(2, 0) - 2 * m1 * at1 + m1 * m1 * zeroth
        w12 = moment(1, 1) - m1 * at2 - m2 * at1 + m1 * m2 * zeroth
        w22 = moment(0, 2) - 2 * m2 * at2 + m2 * m2 * zeroth
        determinant = c11 * c22 - c12 * c12
        d11, d12, d22 = c22 / determinant, -c12 / determinant, c11 / determinant
        k11, k12, k22 = d11 * w11 + d12 * w12, d11 * w12 + d12 * w22, d12 * w12 + d22 * w22  # C⁻¹W, but k21
        k21 = d12 * w11 + d22 * w12
        return (
            d11 * v1 + d12 * v2,
            d12 * v1 + d22 * v2,
            (k11 * d11 + k12 * d12 - d11 * zeroth) / 2,
            k11 * d12 + k12 * d22 - d12 * zeroth,
            (k21 * d12 + k22 * d22 - d22 * zeroth) / 2,
            None,
        )
