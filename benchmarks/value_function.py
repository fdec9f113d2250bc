"""How exact contexts are for how wide a basis: relative errors against a sum over 140×140 points.

python benchmarks/value_function.py
"""

import sys

import torch
import torch.nn.functional as F

from foveate.densities import Gaussian, GaussianBasis, grid_points
from foveate.pooling.value import regression

VARIANCES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.0123, 0.02)
FINE = 140


def error(side: int, count: int, variance: float, densities: Gaussian, features: torch.Tensor) -> float:
    """Root of the mean squared error of contexts over that of the contexts."""
    basis = GaussianBasis.grid(count, variance).double()
    contexts = densities.expect(basis) @ regression(basis, (side, side)).mT @ features.flatten(2)[0].mT
    drawn = F.interpolate(features, (FINE, FINE), mode="bilinear").flatten(2)[0]
    exact = densities.pdf(grid_points((FINE, FINE), drawn)) @ drawn.mT / FINE**2
    return float(((contexts - exact).square().mean() / exact.square().mean()).sqrt())


def main() -> int:
    generator = torch.Generator().manual_seed(0)
    mean = 0.25 + 0.5 * torch.rand(64, 2, dtype=torch.float64, generator=generator)
    factor = 0.1 * torch.randn(64, 2, 2, dtype=torch.float64, generator=generator)
    densities = Gaussian(mean, factor @ factor.mT + 1e-4 * torch.eye(2))
    print("| map, N | " + " | ".join(map(str, VARIANCES)) + " |\n|---|" + "---:|" * len(VARIANCES))
    for side in (14, 7):
        rough = torch.randn(1, 8, 4, 4, dtype=torch.float64, generator=generator)
        features = F.interpolate(rough, (side, side), mode="bicubic")
        for count in (100, 49):
            errors = [error(side, count, variance, densities, features) for variance in VARIANCES]
            print(f"| {side}×{side}, {count} | " + " | ".join(f"{e:.0%}" for e in errors) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
