"""How long expectations under truncated paraboloids take, and how exact they are: continuous Table 4.1, and a layer.

python benchmarks/expectations.py

First the five methods of continuous 4.3 and ours, on integrals (4.13) of random parameters. Then forward and backward
for a batch of densities and a grid of basis functions, against a plain loop over 100 angles. It ends with status 1
where ours is less than 15 times as fast, or less than 1,000 times as exact.
"""

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from scipy import integrate, special
from torch import Tensor

from foveate.densities import GaussianBasis, TruncatedParaboloid
from foveate.densities.overlap import paraboloid_times_gaussian
from foveate.metrics.cost import machine, ratio

FASTER, MORE_EXACT = 15, 1_000
EXACT_ANGLES = 20_000  # of the sum that others are compared with: it is periodic, so its error falls exponentially


@dataclass(frozen=True)
class Integral:
    """∫ TP(t; μ, Σ)·N(t; m, C) dt: four parameters."""

    loc: np.ndarray
    scale: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def random(cls, generator: np.random.Generator) -> "Integral":
        """A density in the unit square, and a basis function, narrow or wide, whose centre it covers."""

        def matrix(least: float) -> np.ndarray:
            factor = generator.uniform(0.03, 0.3) * generator.normal(size=(2, 2))
            return factor @ factor.T + least * np.eye(2)

        density = cls(generator.uniform(size=2), matrix(1e-4), np.zeros(2), np.eye(2))
        place = math.sqrt(generator.uniform()) * np.array([math.cos(t := generator.uniform(0, 6)), math.sin(t)])
        mean = density.loc + math.sqrt(-2 * density.lam) * np.linalg.cholesky(density.scale) @ (0.9 * place)
        return cls(density.loc, density.scale, mean, matrix(1e-4))

    @cached_property
    def lam(self) -> float:
        """λ, continuous (A.14)."""
        return -math.sqrt(1 / (math.pi * math.sqrt(np.linalg.det(self.scale))))

    @cached_property
    def white(self) -> tuple[np.ndarray, np.ndarray]:
        """μ̃ and Σ̃ of (A.15), with a Cholesky factor for the root."""
        inverse = np.linalg.inv(math.sqrt(-2 * self.lam) * np.linalg.cholesky(self.scale))
        return inverse @ (self.mean - self.loc), inverse @ self.covariance @ inverse.T

    def by_angle(self, angle: np.ndarray) -> np.ndarray:
        """−λ·s̃(θ)F(θ), continuous (A.17), (A.22), (A.23)."""
        mean, covariance = self.white
        precision = np.linalg.inv(covariance)
        a = np.stack([np.cos(angle), np.sin(angle)], -1)
        variance = 1 / np.einsum("...i,ij,...j", a, precision, a)
        r0 = variance * (a @ precision @ mean)
        s = np.sqrt(variance)
        rest = mean @ precision @ mean - r0**2 / variance
        weight = s / math.sqrt(2 * math.pi * np.linalg.det(covariance)) * np.exp(-rest / 2)
        end, start = (1 - r0) / s, -r0 / s
        at_end, at_start = (np.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (end, start))
        mass = special.erf(end / math.sqrt(2)) - special.erf(start / math.sqrt(2))
        common = 2 * s**3 + r0**2 * s
        inner = (common + r0 * s) * at_end - (common - s) * at_start - (r0**3 + (3 * s * s - 1) * r0) / 2 * mass
        return -self.lam * weight * inner

    def exact(self) -> float:
        """By so many angles that more do not matter, each of them once."""
        turn = np.arange(EXACT_ANGLES) * (2 * math.pi / EXACT_ANGLES)
        return float(self.by_angle(turn).mean() * 2 * math.pi)


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> Callable[[float, float], float]:
    """N(t; m, C) of two numbers, without arrays, for rules that ask for one point at a time."""
    (a, b), (_, c) = np.linalg.inv(covariance).tolist()
    m1, m2 = mean.tolist()
    height = 1 / (2 * math.pi * math.sqrt(np.linalg.det(covariance)))
    return lambda x, y: height * math.exp(-(a * (x - m1) ** 2 + 2 * b * (x - m1) * (y - m2) + c * (y - m2) ** 2) / 2)


def box(one: Integral) -> float:
    """2D-Num: over a box of 10×10."""
    (a, b), (_, c) = np.linalg.inv(one.scale).tolist()
    m1, m2 = one.loc.tolist()
    bell = gaussian(one.mean, one.covariance)

    def at(y: float, x: float) -> float:
        height = -one.lam - (a * (x - m1) ** 2 + 2 * b * (x - m1) * (y - m2) + c * (y - m2) ** 2) / 2
        return height * bell(x, y) if height > 0 else 0.0

    return float(integrate.dblquad(at, -5, 5, -5, 5)[0])


def circle(one: Integral) -> float:
    """2D-Num-Circle: the support made the unit disc, over the square around it."""
    bell, factor = gaussian(*one.white), -one.lam

    def at(y: float, x: float) -> float:
        return factor * max(1 - x * x - y * y, 0.0) * bell(x, y)

    return float(integrate.dblquad(at, -1, 1, -1, 1)[0])


def polar(one: Integral) -> float:
    """2D-Num-Polar: the unit disc in polar coordinates."""
    bell, factor = gaussian(*one.white), -one.lam

    def at(r: float, angle: float) -> float:
        return factor * r * (1 - r * r) * bell(r * math.cos(angle), r * math.sin(angle))

    return float(integrate.dblquad(at, 0, 2 * math.pi, 0, 1)[0])


def angles(one: Integral) -> float:
    """1D-Num: (A.23) by scipy's adaptive rule."""
    return float(integrate.quad(lambda angle: float(one.by_angle(np.array(angle))), 0, 2 * math.pi)[0])


def naive(one: Integral) -> float:
    """1D-Naive: (A.23) by a sum over 100 angles, 0 and 2π among them."""
    return float(one.by_angle(np.linspace(0, 2 * math.pi, 100)).mean() * 2 * math.pi)


def ours(integrals: list[Integral], dtype: torch.dtype, device: str) -> Callable[[], Tensor]:
    """All integrals at once."""
    parts = [np.stack([getattr(one, name) for one in integrals]) for name in ("loc", "scale", "mean", "covariance")]
    loc, scale, mean, covariance = (torch.as_tensor(part).to(device, dtype) for part in parts)
    density = TruncatedParaboloid(loc, scale)
    return lambda: paraboloid_times_gaussian(density.loc, density.rim, mean, covariance)


def table_4_1(count: int, slow: int) -> None:
    generator = np.random.default_rng(0)
    integrals = [Integral.random(generator) for _ in range(count)]
    truth = np.array([one.exact() for one in integrals])
    print(f"| method | seconds for {count} | median error | largest error | runs on |\n|---|---:|---:|---:|---|")

    def row(name: str, seconds: float, values: np.ndarray, where: str) -> None:
        error = np.abs(values - truth[: len(values)]) / truth[: len(values)]
        print(f"| {name} | {seconds:.4g} | {np.median(error):.1e} | {error.max():.1e} | {where} |", flush=True)

    methods = {"2D-Num": box, "2D-Num-Circle": circle, "2D-Num-Polar": polar, "1D-Num": angles, "1D-Naive": naive}
    for name, method in methods.items():
        some = integrals[:slow] if method in (box, circle, polar) else integrals
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", integrate.IntegrationWarning)
            values = np.array([method(one) for one in some])
        row(name, (time.process_time() - start) * count / len(some), values, "CPU" if method is not naive else "any")
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        for dtype in (torch.float64, torch.float32):
            run = ours(integrals, dtype, device)
            measured = ratio(run, lambda: None, seconds=1.0)
            row(f"ours, {str(dtype)[6:]}", measured.seconds, run().double().cpu().numpy(), device.upper())


class Loop(torch.autograd.Function):
    """A layer as one writes it from the paper: (A.23) and its Jacobian (A.24)–(A.41), angle by angle.

    From θ = [Σ⁻¹μ, −½Σ⁻¹] of B densities, (B, 2) and (B, 2, 2), to expectations (B, N).
    """

    @staticmethod
    def forward(ctx: Any, linear: Tensor, quadratic: Tensor, basis: GaussianBasis, turn: Tensor) -> Tensor:
        scale = torch.linalg.inv(-2 * quadratic)
        loc = (scale @ linear[..., None])[..., 0]
        ctx.save_for_backward(loc, scale, turn)
        ctx.basis = basis
        disc = Disc.of(loc, scale, basis)
        total = sum(disc.weighted(angle, lambda i1, i2, i3: i1 - i3) for angle in turn)
        return cast(Tensor, -disc.lam * total * (2 * math.pi / len(turn)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        loc, scale, turn = ctx.saved_tensors
        disc = Disc.of(loc, scale, ctx.basis)
        mu = loc[:, None]
        mass, first, second = 0, 0, 0
        for angle in turn:
            out = disc.root @ torch.stack([angle.cos(), angle.sin()])  # (−2λ)^½Σ^½a
            both = out[:, :, None] * loc[:, None] + loc[:, :, None] * out[:, None]
            squares = [(x[:, :, None] * x[:, None])[:, None] for x in (loc, out)]
            mass = mass + disc.weighted(angle, lambda i1, i2, i3: i1)  # (A.34)
            first = first + disc.weighted(  # (A.31)
                angle,
                lambda i1, i2, i3: mu * i1[..., None] + out[:, None] * i2[..., None],  # noqa: B023
            )
            second = second + disc.weighted(  # (A.40)
                angle,
                lambda i1, i2, i3: (
                    squares[0] * i1[..., None, None]  # noqa: B023
                    + both[:, None] * i2[..., None, None]  # noqa: B023
                    + squares[1] * i3[..., None, None]  # noqa: B023
                ),
            )
        spread = loc[:, :, None] * loc[:, None] + disc.root @ disc.root.mT / 4  # (A.26)
        step = 2 * math.pi / len(turn)
        first = step * (first - mu * mass[..., None])  # (A.24)
        second = step * (second - spread[:, None] * mass[..., None, None])  # (A.25)
        by = gradient[..., None]
        return (by * first).sum(1), (by[..., None] * second).sum(1), None, None


@dataclass(frozen=True)
class Disc:
    """Densities (B,) and N basis functions on the unit disc: λ (B, 1), (−2λ)^½ times a root of Σ (B, 2, 2), (A.17)."""

    lam: Tensor
    root: Tensor
    precision: Tensor
    determinant: Tensor
    pull: Tensor
    rest: Tensor

    @classmethod
    def of(cls, loc: Tensor, scale: Tensor, basis: GaussianBasis) -> "Disc":
        """Continuous (A.15)."""
        lam = -1 / torch.sqrt(math.pi * torch.linalg.det(scale).sqrt())[:, None]
        root = torch.linalg.cholesky(scale) * torch.sqrt(-2 * lam)[..., None]
        inverse = torch.linalg.inv(root)[:, None]
        mean = (inverse @ (basis.centers - loc[:, None])[..., None])[..., 0]
        covariance = inverse @ basis.matrices @ inverse.mT
        precision = torch.linalg.inv(covariance)
        pull = (precision @ mean[..., None])[..., 0]
        return cls(lam, root, precision, torch.linalg.det(covariance), pull, (mean * pull).sum(-1))

    def weighted(self, angle: Tensor, inner: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """s̃(θ) times what `inner` makes of ∫₀¹ rᵏN(r; r₀, σ²) dr for k = 1, 2, 3, (B, N, …)."""
        a = torch.stack([angle.cos(), angle.sin()])
        variance = 1 / (self.precision @ a @ a)
        s, r0 = variance.sqrt(), variance * (self.pull @ a)
        weight = s / self.determinant.sqrt() * torch.exp(-(self.rest - r0**2 / variance) / 2) / math.sqrt(2 * math.pi)
        end, start = (1 - r0) / s, -r0 / s
        at_end, at_start = (torch.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (end, start))
        i0 = (torch.erf(end / math.sqrt(2)) - torch.erf(start / math.sqrt(2))) / 2
        i1 = r0 * i0 + s * (at_start - at_end)
        i2 = r0 * i1 + variance * i0 - s * at_end
        i3 = r0 * i2 + 2 * variance * i1 - s * at_end
        value = inner(i1, i2, i3)
        return weight.reshape(*weight.shape, *[1] * (value.ndim - 2)) * value


def settle_allocator() -> None:
    """Let the allocator keep what is freed, as it does in any process that has trained a network for a step.

    glibc gives memory back to the system until it has seen one large block freed; fetching it again costs more than
    the integrals.
    """
    torch.empty(30 << 20, dtype=torch.uint8).fill_(0)


def layer(batch: int, functions: int, variance: float, seconds: float, device: str, compiled: bool) -> bool:
    """Forward and backward for a batch of densities, against the loop; whether the bounds hold."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.rand(batch, 2, generator=generator)
    factor = 0.15 * torch.randn(batch, 2, 2, generator=generator)
    density = TruncatedParaboloid.from_moments(mean, factor @ factor.mT + 1e-3 * torch.eye(2))
    theta = [t.to(device).requires_grad_() for t in density.canonical]
    basis = GaussianBasis.grid(functions, variance).to(device)
    weights = torch.randn(batch, functions, generator=generator).to(device)
    twice = torch.linspace(0, 2 * math.pi, 100, device=device)
    once = torch.arange(100, device=device) * (2 * math.pi / 100)

    def results(expectation: Callable[..., Tensor]) -> list[Tensor]:
        expected = expectation(*theta)
        return [expected.detach(), *torch.autograd.grad((expected * weights).sum(), theta)]

    def fast(linear: Tensor, quadratic: Tensor) -> Tensor:
        return TruncatedParaboloid.from_canonical(linear, quadratic).expect(basis)

    def plain(turn: Tensor) -> list[Tensor]:
        return results(lambda *theta: cast(Tensor, Loop.apply(*theta, basis, turn)))  # type: ignore[no-untyped-call]

    ways = {"ours": fast, **({"ours, compiled": torch.compile(fast)} if compiled else {})}
    measured = {name: ratio(lambda: plain(twice), lambda way=way: results(way), seconds) for name, way in ways.items()}
    for name, m in measured.items():
        times = f"{1e3 * m.reference_seconds:.1f} | {1e3 * m.seconds:.1f}"
        print(f"| {name} | {device.upper()} | {times} | {m.value:.1f} ({m.low:.1f} to {m.high:.1f}) |")
    found = {"ours": results(fast), "twice": plain(twice), "once": plain(once)}
    theta, weights, basis = [t.detach().double().requires_grad_() for t in theta], weights.double(), basis.double()
    exact = plain(torch.arange(4_000, dtype=torch.float64, device=device) * (2 * math.pi / 4_000))
    errors = {
        name: [float((t - e).abs().max() / e.abs().max()) for t, e in zip(parts, exact, strict=True)]
        for name, parts in found.items()
    }
    print("\n| float32, relative error | of expectations | of gradients by Σ⁻¹μ | by −½Σ⁻¹ |\n|---|---:|---:|---:|")
    names = {"ours": "ours", "twice": "loop, 0 and 2π both", "once": "loop, each angle once"}
    for name, label in names.items():
        print(f"| {label} | " + " | ".join(f"{error:.1e}" for error in errors[name]) + " |")
    return measured["ours"].value >= FASTER and errors["twice"][0] >= MORE_EXACT * errors["ours"][0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="random integrals")
    parser.add_argument("--slow", type=int, default=10, help="how many of them scipy's rules in two dimensions do")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--functions", type=int, default=100)
    parser.add_argument("--variance", type=float, default=0.001, help="of the basis functions")
    parser.add_argument("--seconds", type=float, default=20, help="for the comparison with the loop")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled layer")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(machine() + "\n")
    table_4_1(options.count, options.slow)
    print(f"\nForward and backward, {options.batch} densities × {options.functions} functions, float32:\n")
    print("| way | device | it (ms) | loop (ms) | times as fast (quartiles) |\n|---|---|---:|---:|---:|")
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    settle_allocator()
    wanted = (options.batch, options.functions, options.variance, options.seconds)
    hold = [layer(*wanted, device, not options.no_compile) for device in devices]
    return 0 if all(hold) else 1


if __name__ == "__main__":
    sys.exit(main())
