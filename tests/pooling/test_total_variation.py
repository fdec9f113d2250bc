"""TVmax against a general convex solver, its Jacobian against finite differences, its regions against a flood fill."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import minimize
from torch import Tensor

from foveate.pooling import tvmax
from foveate.pooling.total_variation import _proximal, _region_mean, _regions

SIZES = [(5, 7), (14, 14), (1, 9), (6, 1)]


def by_a_convex_solver(scores: Tensor, size: tuple[int, int], weight: float) -> np.ndarray:
    """The minimiser of ½‖p − s‖² + λ Σ|p_i − p_j| over the simplex, from its dual: no proximal operator, no sparsemax.

    With u for the differences, v for p ≥ 0 and t for Σp = 1, p = s − Dᵀu + v − t, and ½‖p‖² + t is to be minimised.
    """
    places = np.arange(scores.numel()).reshape(size)
    pairs = [(places[:-1], places[1:]), (places[:, :-1], places[:, 1:])]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in pairs])
    d = np.zeros((len(edges), scores.numel()))
    d[np.arange(len(edges)), edges[:, 0]], d[np.arange(len(edges)), edges[:, 1]] = -1, 1
    m, n = d.shape

    def primal(z: np.ndarray) -> np.ndarray:
        return scores.numpy() - d.T @ z[:m] + z[m : m + n] - z[-1]

    def dual(z: np.ndarray) -> tuple[float, np.ndarray]:
        p = primal(z)
        return 0.5 * p @ p + z[-1], np.concatenate([-d @ p, p, [1 - p.sum()]])

    bounds = [(-weight, weight)] * m + [(0, None)] * n + [(None, None)]
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 50}
    return primal(minimize(dual, np.zeros(m + n + 1), jac=True, bounds=bounds, options=options, method="L-BFGS-B").x)


@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_minimiser(size: tuple[int, int], weight: float) -> None:
    scores = torch.randn(2, size[0] * size[1], dtype=torch.float64)
    weights = tvmax(scores, size, weight)
    for ours, s in zip(weights, scores, strict=True):
        assert np.abs(ours.numpy() - by_a_convex_solver(s, size, weight)).max() < 1e-7
    assert (tvmax(scores.float(), size, weight) - weights).abs().max() < 1e-5


def test_without_a_weight_it_is_sparsemax_and_with_a_large_one_uniform() -> None:
    from entmax import sparsemax

    scores = torch.randn(4, 30)
    assert torch.allclose(tvmax(scores, (5, 6), 0.0), sparsemax(scores, dim=1), atol=1e-6)
    assert torch.allclose(tvmax(scores, (5, 6), 1e3), torch.full((4, 30), 1 / 30), atol=1e-6)


@pytest.mark.parametrize("size", [(3, 4), (1, 9)])
@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_jacobian_backwards_and_forwards(size: tuple[int, int], weight: float) -> None:
    scores = torch.randn(2, size[0] * size[1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: tvmax(s, size, weight), (scores,), check_forward_ad=True)


def test_the_jacobian_is_that_of_fused_regions() -> None:
    scores = torch.randn(1, 12, dtype=torch.float64)
    weights = tvmax(scores, (3, 4), 0.2)[0]
    jacobian = torch.autograd.functional.jacobian(lambda s: tvmax(s, (3, 4), 0.2)[0], scores)[:, 0]
    values = _proximal(scores.reshape(1, 3, 4), 0.2)[0].flatten()
    region = flood(values.reshape(3, 4)).flatten()
    average = torch.stack([(region == r).double() / (region == r).sum() for r in region])
    support = (weights > 0).double()
    sparsemax = torch.diag(support) - torch.outer(support, support) / support.sum()
    assert torch.allclose(jacobian, sparsemax @ average, atol=1e-9)
    assert len(region.unique()) < 12


def flood(values: Tensor) -> Tensor:
    """Connected regions of equal values, by walking."""
    names = -torch.ones(values.shape, dtype=torch.long)
    for start in range(values.numel()):
        here = [divmod(start, values.shape[1])]
        while here:
            i, j = here.pop()
            if names[i, j] >= 0:
                continue
            names[i, j] = start
            for a, b in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                inside = 0 <= a < values.shape[0] and 0 <= b < values.shape[1]
                if inside and names[a, b] < 0 and abs(values[a, b] - values[i, j]) < 1e-9:
                    here.append((a, b))
    return names


@pytest.mark.parametrize("weight", [0.05, 0.3, 2.0])
def test_regions_are_connected_and_of_one_value(weight: float) -> None:
    scores = torch.randn(8, 14, 14, dtype=torch.float64)
    values, regions = _proximal(scores, weight)
    assert torch.allclose(_region_mean(values.flatten(1), regions), values.flatten(1), atol=1e-9)
    for value, region in zip(values, regions, strict=True):
        assert torch.equal(flood(value).flatten(), region)


def test_a_snake_is_one_region() -> None:
    board = torch.zeros(9, 9)
    board[::2] = 1
    board[1::4, -1] = board[3::4, 0] = 1  # one path from a corner to the other
    down, right = board[1:] * board[:-1] > 0, board[:, 1:] * board[:, :-1] > 0
    regions = _regions(down[None], right[None])[0].reshape(9, 9)
    assert (regions[board == 1] == 0).all()
    assert len(regions[board == 0].unique()) == (board == 0).sum()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=12, max_size=12),
    st.sampled_from([(3, 4), (12, 1), (1, 12), (2, 6)]),
    st.sampled_from([0.0, 1e-3, 0.1, 50.0]),
)
def test_finite_scores_have_finite_weights_and_gradients(scores: list[float], size: tuple[int, int], w: float) -> None:
    values = torch.tensor([scores], requires_grad=True)
    weights = tvmax(values, size, w)
    weights.square().sum().backward()
    assert torch.isfinite(values.grad).all()
    assert (weights >= 0).all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("shape", [(0, 12), (12,), (2, 3, 12)])
def test_any_batch(shape: tuple[int, ...]) -> None:
    scores = torch.randn(shape)
    weights = tvmax(scores, (3, 4), 0.1)
    assert weights.shape == shape
    if scores.ndim == 3:
        assert torch.allclose(weights[1, 2], tvmax(scores[1, 2], (3, 4), 0.1), atol=1e-6)


def test_errors_teach() -> None:
    with pytest.raises(ValueError, match=r"\(2, 10\) are not those of a map of 3 by 4"):
        tvmax(torch.zeros(2, 10), (3, 4))
    with pytest.raises(ValueError, match="must not be negative"):
        tvmax(torch.zeros(2, 12), (3, 4), -1.0)
