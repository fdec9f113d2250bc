"""Continuous self-attention against its formulas one by one, and how its cost grows."""

import copy
import math
import pickle

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from foveate.densities import Gaussian, GaussianBasis, TruncatedParaboloid, grid_points
from foveate.densities.attention import ContinuousSelfAttention
from foveate.densities.deformed import prediction_map


@pytest.mark.parametrize("alpha", [1, 2])
def test_against_a_loop_over_heads_and_queries(alpha: int) -> None:
    layer = ContinuousSelfAttention(6, heads=2, basis=9, alpha=alpha).double()
    x = torch.randn(2, 5 * 4, 6, dtype=torch.float64)
    basis, points = layer.basis, grid_points((5, 4), x)
    f, n = basis(points).mT, 9  # (N, L)
    ridge = layer.ridge * 20 / 9 * basis(basis.centers).diagonal().mean() ** 2
    g = f.mT @ torch.linalg.inv(f @ f.mT + ridge * torch.eye(n, dtype=torch.float64))  # (3.17)
    at_centers = basis(basis.centers)
    ridge = layer.ridge * at_centers.diagonal().mean() ** 2
    interpolate = basis(points) @ torch.linalg.inv(at_centers.mT @ at_centers + ridge * torch.eye(n)) @ at_centers.mT
    family = Gaussian if alpha == 1 else TruncatedParaboloid
    for image, found in zip(x, layer(x, (5, 4)), strict=True):
        b = image.mT @ g  # B = HG, (C, N)
        values = (b @ at_centers.mT).mT  # V at the centres, (N, C)
        query, key = (values @ layer.query_key.weight.T + layer.query_key.bias).split(6, -1)
        context = torch.zeros(n, 6, dtype=torch.float64)
        for head in range(2):
            own = slice(3 * head, 3 * head + 3)
            for i in range(n):
                scores = key[:, own] @ query[i, own] / math.sqrt(3)
                density = family.from_weights(basis.centers, prediction_map(scores, alpha), 0.25 / 9)
                context[i, own] = (layer.value.weight @ b)[own] @ density.expect(basis)
        expected = (interpolate @ context) @ layer.output.weight.T + layer.output.bias
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_smooth_function_survives_the_way_there_and_back() -> None:
    """With every query attending to itself alone, and identities for maps, the tokens come back."""
    layer = ContinuousSelfAttention(2, heads=1, basis=100)
    with torch.no_grad():
        for linear in (layer.value, layer.output):
            linear.weight.copy_(torch.eye(2))
        layer.output.bias.zero_()
    points = grid_points((12, 12), torch.zeros(()))
    x = torch.stack([(3 * points[:, 0]).sin(), (2 * points[:, 1]).cos()], -1)[None]
    regress, sample, spread = layer._matrices((12, 12), x)
    torch.testing.assert_close(spread @ (sample @ (regress @ x)), x, rtol=0, atol=0.05)


def test_the_cost_of_positions_is_linear_and_that_of_attention_is_not_theirs() -> None:
    layer = ContinuousSelfAttention(32, heads=4, basis=16)

    def work(side: int) -> int:
        x = torch.rand(1, side * side, 32)
        layer(x)
        with FlopCounterMode(display=False) as counter:
            layer(x)
        return counter.get_total_flops()

    small, middle, large = work(14), work(28), work(56)
    assert (large - middle) == pytest.approx(4 * (middle - small), rel=1e-6)  # linear in the number of positions


@pytest.mark.parametrize("shape", [(0, 12), (1, 1), (2, 35)])
def test_signals_images_and_empty_batches(shape) -> None:
    batch, count = shape
    assert ContinuousSelfAttention(8, heads=2, basis=7, dimensions=1)(torch.rand(batch, count, 8)).shape == (*shape, 8)
    assert ContinuousSelfAttention(8, heads=2, basis=4)(torch.rand(batch, count, 8), (1, count)).shape == (*shape, 8)


def test_gradients_reach_everything() -> None:
    for alpha in (1, 2):
        layer = ContinuousSelfAttention(8, heads=2, basis=9, alpha=alpha)
        x = torch.rand(2, 36, 8, requires_grad=True)
        layer(x).square().sum().backward()
        assert all(p.grad.abs().sum() > 0 for p in (x, *layer.parameters()))


def test_it_copies_pickles_and_runs_under_autocast() -> None:
    layer = ContinuousSelfAttention(8, heads=2, basis=9)
    x = torch.rand(2, 36, 8)
    y = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), y)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), y)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(x).float(), y, rtol=0.05, atol=0.05)
    assert set(layer.state_dict()) == {
        "query_key.weight", "query_key.bias", "value.weight", "output.weight", "output.bias"
    }  # fmt: skip


def test_no_more_than_a_few_sizes_are_remembered() -> None:
    layer = ContinuousSelfAttention(4, heads=1, basis=GaussianBasis.grid(4, 0.1))
    for side in range(1, 20):
        layer(torch.rand(1, side * side, 4))
    assert len(layer._known) <= 8


def test_bad_input_is_said() -> None:
    with pytest.raises(ValueError, match="heads must divide channels"):
        ContinuousSelfAttention(10, heads=3)
    with pytest.raises(ValueError, match=r"12 tokens do not make a grid of size \(5, 5\)"):
        ContinuousSelfAttention(8, heads=2, basis=4)(torch.rand(1, 12, 8), (5, 5))
