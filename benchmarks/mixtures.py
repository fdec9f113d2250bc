"""How long test-MCA's 13 fits of 20 steps take for a batch of maps: all at once, and one by one with scikit-learn.

python benchmarks/mixtures.py

It ends with status 1 where all at once take half a second or more.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from foveate.densities import choose_mixture, fit_mixture, grid_points
from foveate.metrics.cost import machine, ratio

BOUND = 0.5
OBSERVATIONS = 2_000  # scikit-learn knows no weights: points are repeated, so many in all


def maps(batch: int, size: int) -> tuple[Tensor, Tensor]:
    """Points of a grid, and maps of one to four spots and some noise, (batch, size²)."""
    generator = torch.Generator().manual_seed(0)
    points = grid_points((size, size), torch.zeros(()))
    spots = torch.rand(batch, 4, 1, 2, generator=generator)
    there = torch.arange(4) < torch.randint(1, 5, (batch, 1), generator=generator)
    near = torch.exp(-((points - spots) ** 2).sum(-1) / 0.01) * there[..., None]
    return points, near.sum(1) + 0.02 * torch.rand(batch, len(points), generator=generator)


def one_by_one(points: Tensor, weights: Tensor, most: int, restarts: int, steps: int) -> None:
    """The same fits of one map with scikit-learn."""
    counts = (weights / weights.sum() * OBSERVATIONS).round().long()
    repeated = np.repeat(points.numpy(), counts.numpy(), axis=0)
    for modes in [1] + [k for k in range(2, most + 1) for _ in range(restarts)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            GaussianMixture(modes, max_iter=steps, tol=0, init_params="random_from_data").fit(repeated)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5, help="for each measurement")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    points, weights = (t.to(options.device) for t in maps(options.batch, options.size))
    start = time.process_time()
    one_by_one(points.cpu(), weights[0].cpu(), 5, 3, options.steps)
    theirs = (time.process_time() - start) * options.batch
    learned = weights.clone().requires_grad_()

    def choose() -> Tensor:
        with torch.no_grad():
            return choose_mixture(points, weights, 10.0, steps=options.steps).modes

    def differentiate(modes: int, steps: int) -> Callable[[], object]:
        return lambda: torch.autograd.grad(
            fit_mixture(points, learned, modes, steps).components.mean.square().sum(), learned
        )

    print(f"{machine()}, {options.device}: {options.batch} maps of {options.size}×{options.size}\n")
    print("| what | seconds for the batch |\n|---|---:|")
    runs: dict[str, Callable[[], object]] = {
        f"test-MCA: 13 fits of {options.steps} steps, all at once": choose,
        "2-MCA: 2 steps, forward and backward": differentiate(2, 2),
        "4-MCA: 5 steps, forward and backward": differentiate(4, 5),
    }
    seconds = {name: ratio(run, lambda: None, options.seconds).seconds for name, run in runs.items()}
    for name, taken in seconds.items():
        print(f"| {name} | {taken:.3f} |")
    print(f"| scikit-learn, the 13 fits of {options.steps} steps one by one, from one map | {theirs:.1f} |")
    return 0 if next(iter(seconds.values())) < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
