"""The theory of rectangular attention as functions: section V of the paper, appendices C to F. Needs torch alone.

Maps are signs, +1 attended and −1 not, in tensors (..., H, W); the leading dimensions broadcast. Distributions are
discrete: probabilities (..., K) of K outputs, that is densities with respect to the counting measure. Everything is
computed in float64. docs/theory.md says where the paper's statements are loose, and the tests hold the examples.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


def catching_rate(a: Tensor, b: Tensor) -> Tensor:
    """Ψ(a, b), the mean of the products over the plane, rectangular (10): (..., H, W) twice to (...).

    >>> catching_rate(torch.tensor([[1, 1, -1, -1]]), torch.tensor([[1, -1, -1, -1]]))
    tensor(0.5000, dtype=torch.float64)
    """
    return (a.double() * b.double()).mean((-2, -1))


def missing_rate(a: Tensor, b: Tensor) -> Tensor:
    """Φ(a, b) = (1 − Ψ(a, b))/2, the share of pixels that differ, rectangular (11): (..., H, W) twice to (...).

    >>> missing_rate(torch.tensor([[1, 1, -1, -1]]), torch.tensor([[1, -1, -1, -1]]))
    tensor(0.2500, dtype=torch.float64)
    """
    return (1 - catching_rate(a, b)) / 2


def fitting_rate(a: Tensor, b: Tensor) -> Tensor:
    """Ψ((a + 1)/2, (b + 1)/2) / 2Φ((1 − a)/2, (1 − b)/2), rectangular (19): (..., H, W) twice to (...).

    Proposition 1: it is the intersection over union of the supports. Where both are empty the formula is 0/0; the rate
    is 1 there, for the paper has it 1 if and only if a = b.

    >>> fitting_rate(torch.tensor([[1, 1, -1, -1]]), torch.tensor([[1, -1, -1, -1]]))
    tensor(0.5000, dtype=torch.float64)
    """
    pixels = a.shape[-2] * a.shape[-1]
    both = catching_rate((a + 1) / 2, (b + 1) / 2)
    either = 2 * missing_rate((1 - a) / 2, (1 - b) / 2)
    both, either = (
        (both * pixels).round(),
        (either * pixels).round(),
    )  # whole numbers, so that a perfect fit is 1 exactly
    return torch.where(either > 0, both / either, 1.0)


def relevance_level(maps: Tensor, truths: Tensor) -> Tensor:
    """ρ of all functions valued in finitely many maps, rectangular (13): maps (M, H, W), truths (K, H, W) to a scalar.

    Such a family holds every constant function, so the infimum over functions and inputs is the least catching rate
    over the pairs of a map and a truth.

    >>> rectangles = axis_rectangles((3, 3))
    >>> relevance_level(rectangles, rectangles)
    tensor(-1., dtype=torch.float64)
    >>> relevance_level(rectangles, rectangles[(rectangles > 0).sum((1, 2)) == 4])  # the truths are squares of 2 by 2
    tensor(-0.5556, dtype=torch.float64)
    """
    if not (len(maps) and len(truths)):
        raise ValueError("the relevance level needs at least one map and one truth")
    products = maps.flatten(1).double() @ truths.flatten(1).double().T
    return products.min() / maps[0].numel()


def axis_rectangles(size: tuple[int, int]) -> Tensor:
    """Every map of signs (M, H, W) whose support is an axis-aligned rectangle, the empty one left out.

    >>> axis_rectangles((2, 3)).shape
    torch.Size([18, 2, 3])
    """
    rows, columns = (_intervals(length) for length in size)
    inside = rows[:, None, :, None] & columns[None, :, None, :]
    return 2.0 * inside.flatten(0, 1) - 1


def generalization_bound(empirical: Tensor | float, relevance: Tensor | float, count: int, delta: float) -> Tensor:
    """Theorem 1, rectangular (15): R(f) ≤ R̂(f) + (1 − ρ)/2 + 3√(log(2/δ)/2N) with probability at least 1 − δ.

    Args:
        empirical: R̂(f), the mean missing rate over the sample.
        relevance: ρ, see `relevance_level`.
        count: N, the size of the sample.
        delta: the probability that the bound fails, in (0, 1).

    >>> generalization_bound(0.1, relevance=0.5, count=1000, delta=0.05)
    tensor(0.4788, dtype=torch.float64)
    """
    relevance = torch.as_tensor(relevance, dtype=torch.float64)
    return rademacher_bound(empirical, (1 - relevance) / 4, count, delta)


def rademacher_bound(empirical: Tensor | float, complexity: Tensor | float, count: int, delta: float) -> Tensor:
    """Theorem 3 of appendix C: E g ≤ mean g + 2·R̂_S(G) + 3√(log(2/δ)/2N) with probability at least 1 − δ.

    With the true complexity of a family in the place of (1 − ρ)/4 it is the sharper form of `generalization_bound`.

    >>> rademacher_bound(0.1, complexity=0.02, count=1000, delta=0.05)
    tensor(0.2688, dtype=torch.float64)
    """
    if count < 1 or not 0 < delta < 1:
        raise ValueError(f"the bound needs a sample and delta in (0, 1), not count={count}, delta={delta}")
    empirical = torch.as_tensor(empirical, dtype=torch.float64)
    return empirical + 2 * complexity + 3 * math.sqrt(math.log(2 / delta) / (2 * count))


def rademacher_complexity(values: Tensor, draws: int | None = None, generator: torch.Generator | None = None) -> Tensor:
    """R̂_S of a finite family, (23): E over signs σ of the largest mean of σ_i·values_i in the family.

    Args:
        values: (M, N), the values of each of M functions on the N points of the sample.
        draws: how many random sign vectors to average over; None goes through all 2ᴺ of them, for N up to 20.
        generator: for the random signs.

    >>> rademacher_complexity(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))  # the largest of 0 and ±1 or 0
    tensor(0.2500, dtype=torch.float64)
    """
    count = values.shape[1]
    if draws is None and count > 20:
        raise ValueError(f"2**{count} sign vectors are too many to go through; pass draws=")
    total, seen = values.new_zeros((), dtype=torch.float64), 0
    for signs in _all_signs(count) if draws is None else _random_signs(count, draws, generator):
        total = total + (signs.to(values.device) @ values.double().T).amax(1).sum()
        seen += len(signs)
    return total / (seen * count)


def all_functions_complexity(maps: Tensor, truths: Tensor) -> Tensor:
    """R̂_S of the missing rates of all functions valued in `maps` (M, H, W), at distinct inputs with `truths` (N, H, W).

    The functions choose a map for each input by itself, so the supremum in (23) goes inside the sum, and what remains
    is a quarter of the mean range of Ψ: the equality that Proposition 2 rounds up to (1 − ρ)/4.

    >>> all_functions_complexity(axis_rectangles((2, 2)), axis_rectangles((2, 2)))
    tensor(0.4306, dtype=torch.float64)
    """
    rates = maps.flatten(1).double() @ truths.flatten(1).double().T / maps[0].numel()
    return (rates.amax(0) - rates.amin(0)).mean() / 4


def background_weight(pure: Tensor, background: Tensor, fitting: Tensor) -> Tensor:
    """η, the factor that makes (16) sum to 1, of each class: Σ(1 − λ)·pure / Σ(1 − λ)·background.

    Args:
        pure: (..., K), the class's distribution without background.
        background: (K,), the distribution that all classes share.
        fitting: λ of (17), (K,) in [0, 1].

    Returns:
        (...), never negative. Where λ is 1 on the background and on the class it is 0/0, and any η does: 0 is taken.
        Where λ is 1 on the background only, no η makes a distribution, and that is an error.

    >>> background_weight(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), torch.tensor([0.2, 0.6]))
    tensor(1.5000, dtype=torch.float64)
    """
    pure, background, fitting = pure.double(), background.double(), fitting.double()
    if ((fitting < 0) | (fitting > 1)).any():
        raise ValueError("fitting rates must lie in [0, 1]")
    lost, offered = ((1 - fitting) * pure).sum(-1), ((1 - fitting) * background).sum(-1)
    if offered == 0 and (lost > 0).any():
        raise ValueError("fitting is 1 wherever the background is, so no weight of it makes up for what a class loses")
    return lost / offered if offered > 0 else torch.zeros_like(lost)


def contaminated_density(pure: Tensor, background: Tensor, fitting: Tensor) -> Tensor:
    """The distribution of outputs given the class, rectangular (16): λ·pure + η·(1 − λ)·background.

    Args:
        pure: (..., K), background: (K,), fitting: (K,), as in `background_weight`.

    Returns:
        (..., K), which sums to 1.

    >>> contaminated_density(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), torch.tensor([0.2, 0.6]))
    tensor([0.1000, 0.9000], dtype=torch.float64)
    """
    weight = background_weight(pure, background, fitting)[..., None]
    fitting = fitting.double()
    return fitting * pure.double() + weight * (1 - fitting) * background.double()


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """The largest difference of the probabilities of one event, Definition 5.4: (..., K) twice to (...).

    >>> total_variation(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.0, 0.5]))
    tensor(0.5000, dtype=torch.float64)
    """
    return (p.double() - q.double()).abs().sum(-1) / 2


class Separation(NamedTuple):
    """Theorem 2: two lower bounds of the total variation of two contaminated classes.

    Attributes:
        by_worst: inf λ · d_TV(pure, pure').
        by_mean: the smaller of the classes' mean λ; None where the pure classes overlap, for it needs them disjoint.
    """

    by_worst: Tensor
    by_mean: Tensor | None


def theorem2_bounds(pure: Tensor, fitting: Tensor) -> Separation:
    """Theorem 2 for two classes, pure (2, K), at fitting rates (K,).

    >>> theorem2_bounds(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]), torch.tensor([0.8, 0.4, 1.0]))
    Separation(by_worst=tensor(0.4000, dtype=torch.float64), by_mean=tensor(0.7000, dtype=torch.float64))
    """
    pure, fitting = pure.double(), fitting.double()
    disjoint = not bool(((pure[0] > 0) & (pure[1] > 0)).any())
    by_mean = (pure @ fitting).min() if disjoint else None
    return Separation(fitting.min() * total_variation(pure[0], pure[1]), by_mean)


def injectivity_margin(x: Tensor, map: Tensor) -> Tensor:
    """Proposition 4 on a batch: the least 1 − ‖f(x)⊙x − f(x')⊙x'‖²/‖x − x'‖² over its pairs of different inputs.

    Above 0 the condition holds on every pair, and then x + f(x)⊙x is injective on the batch; at or below 0 it says
    nothing. Distances are sums of squared differences in a kernel that keeps no (B, B, C, H, W) array; a Gram matrix
    would drown near pairs in its rounding.

    Args:
        x: (B, C, H, W).
        map: (B, 1, H, W), as it is applied, so rescaled where it is.

    Returns:
        a scalar, at most 1; 1 where no two inputs differ.

    >>> x = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
    >>> injectivity_margin(x, torch.full((2, 1, 1, 1), 0.5))
    tensor(0.7500, dtype=torch.float64)
    """
    x = x.double()
    before, after = _squared_distances(x), _squared_distances(map.double() * x)
    different = before > 0
    return (1 - after[different] / before[different]).min() if different.any() else before.new_ones(())


def has_common_attention(x: Tensor, map: Tensor) -> bool:
    """Proposition 3 on a batch: every two different inputs differ at a position where their attention is the same.

    Stated for binary maps; it makes x + f(x)⊙x injective for any maps above −1.

    Args:
        x: (B, C, H, W).
        map: (B, 1, H, W).

    >>> x, binary = torch.tensor([[1.0, 2.0], [1.0, 0.0]]).view(2, 2, 1, 1, 1)
    >>> has_common_attention(x, torch.ones_like(x)), has_common_attention(x, binary)
    (True, False)
    """
    for i in range(len(x)):
        differs = x[i] != x[i + 1 :]
        shared = differs & (map[i] == map[i + 1 :])
        if (differs.flatten(1).any(1) & ~shared.flatten(1).any(1)).any():
            return False
    return True


def is_injective_on(x: Tensor, map: Tensor) -> bool:
    """Whether x + f(x)⊙x, rectangular (5), keeps the different inputs of a batch different.

    Args:
        x: (B, C, H, W).
        map: (B, 1, H, W), as it is applied.

    >>> x, binary = torch.tensor([[1.0, 2.0], [1.0, 0.0]]).view(2, 2, 1, 1, 1)
    >>> is_injective_on(x, torch.ones_like(x)), is_injective_on(x, binary)  # the latter maps both to 2
    (True, False)
    """
    x = x.double()
    merged = _squared_distances(x + map.double() * x) == 0
    return not bool((merged & (_squared_distances(x) > 0)).any())


def _squared_distances(x: Tensor) -> Tensor:
    return torch.pdist(x.flatten(1)).square()


def _intervals(length: int) -> Tensor:
    """Every non-empty interval of a row of pixels, (length·(length + 1)/2, length), boolean."""
    at = torch.arange(length)
    first, last = torch.triu_indices(length, length)
    inside: Tensor = (first[:, None] <= at) & (at <= last[:, None])
    return inside


def _all_signs(count: int, chunk: int = 4096) -> Iterator[Tensor]:
    for start in range(0, 2**count, chunk):
        codes = torch.arange(start, min(start + chunk, 2**count))
        yield 2.0 * (codes[:, None] >> torch.arange(count) & 1).double() - 1


def _random_signs(count: int, draws: int, generator: torch.Generator | None, chunk: int = 4096) -> Iterator[Tensor]:
    for start in range(0, draws, chunk):
        size = (min(chunk, draws - start), count)
        yield 2.0 * torch.randint(2, size, generator=generator).double() - 1
