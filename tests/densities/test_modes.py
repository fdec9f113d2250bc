"""Disjoint supports and sparse mixing weights: as many modes as the data have."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.densities import (
    Gaussian,
    Mixture,
    TruncatedParaboloid,
    disjoint,
    fit_disjoint,
    grid_points,
    sparse_weights,
)
from foveate.densities.modes import contact

POINTS = grid_points((14, 14), torch.zeros(()))


def matrices(*shape: int) -> torch.Tensor:
    a = torch.randn(*shape, 2, 2, dtype=torch.float64)
    return a @ a.mT + 0.1 * torch.eye(2, dtype=torch.float64)


def test_grown_by_their_contact_two_ellipses_touch() -> None:
    """Against a search over the rim: the least value of one's quadratic form on the rim of the other is 1."""
    loc, first, second = 3 * torch.randn(20, 2, 2, dtype=torch.float64), matrices(20), matrices(20)
    factor = contact(loc[:, 0], first, loc[:, 1], second)
    turn = torch.linspace(0, 2 * torch.pi, 20001, dtype=torch.float64)
    circle = torch.stack([turn.cos(), turn.sin()], -1)
    for i in range(20):
        rim = loc[i, 0] + factor[i] * circle @ torch.linalg.cholesky(first[i]).T
        d = (rim - loc[i, 1]) / factor[i]
        assert (d @ torch.linalg.inv(second[i]) * d).sum(-1).min().item() == pytest.approx(1, abs=1e-5)


def test_the_contact_has_a_gradient() -> None:
    loc, other = torch.randn(2, 3, 2, dtype=torch.float64)
    parameters = (loc, matrices(3), other, matrices(3))
    assert torch.autograd.gradcheck(contact, [t.requires_grad_() for t in parameters])


def test_disjoint_supports_share_no_pixel() -> None:
    loc = torch.rand(6, 4, 2)
    mixture = Mixture(torch.full((6, 4), 0.25), TruncatedParaboloid(loc, 0.01 * matrices(6, 4).float()))
    apart = disjoint(mixture).components.pdf(grid_points((60, 60), torch.zeros(())).expand(6, 1, -1, -1)) > 0
    assert (mixture.components.pdf(grid_points((60, 60), torch.zeros(())).expand(6, 1, -1, -1)) > 0).sum(1).max() > 1
    assert apart.sum(1).max() == 1


def test_supports_that_are_apart_stay() -> None:
    loc = torch.tensor([[0.2, 0.2], [0.8, 0.8]])
    mixture = Mixture(torch.tensor([0.5, 0.5]), TruncatedParaboloid(loc, 1e-4 * torch.eye(2)))
    torch.testing.assert_close(disjoint(mixture).components.scale, mixture.components.scale)
    with pytest.raises(TypeError, match="not for Gaussian"):
        disjoint(Mixture(torch.tensor([0.5, 0.5]), Gaussian(loc, torch.eye(2))))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_number_of_modes_follows_from_the_data(count: int) -> None:
    spots = torch.tensor([[0.2, 0.2], [0.8, 0.8], [0.2, 0.8], [0.8, 0.2]])[:count]
    weights = sum(torch.exp(-((POINTS - spot) ** 2).sum(-1) / 0.01) for spot in spots)
    found = fit_disjoint(POINTS, weights, generator=torch.Generator().manual_seed(0))
    there = found.weights > 0
    assert there.sum() == count
    nearest = (found.components.loc[there][:, None] - spots).norm(dim=-1).min(0).values
    assert nearest.max() < 0.05
    assert found.weights.sum().item() == pytest.approx(1, abs=1e-6)


def test_weak_modes_are_left_out() -> None:
    """Sparsemax by hand: 0.6/0.5 and 0.4/0.5 less 0.5 sum to 1 when halves of what exceeds it are taken off."""
    weights = sparse_weights(torch.tensor([0.6, 0.3, 0.1]), temperature=0.5)
    torch.testing.assert_close(weights, torch.tensor([0.8, 0.2, 0.0]))


@given(seed=st.integers(0, 999), kind=st.sampled_from(["one", "line", "even", "none", "any"]))
@settings(deadline=None, max_examples=25)
def test_degenerate_weights(seed: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = grid_points((5, 4), torch.zeros(()))
    weights = {
        "one": torch.eye(20)[3],
        "line": (points[:, 0] < 0.2).float(),
        "even": torch.ones(20),
        "none": torch.zeros(20),
        "any": torch.rand(20, generator=generator) ** 8,
    }[kind].requires_grad_()
    found = fit_disjoint(points, weights, generator=generator)
    values = found.weights.sum(), found.components.loc.sum(), found.components.scale.sum(), found.pdf(points).sum()
    assert all(torch.isfinite(v) for v in values)
    (gradient,) = torch.autograd.grad(sum(values), weights)
    assert torch.isfinite(gradient).all()
