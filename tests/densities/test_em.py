"""Expectation maximisation against loops over the equations and against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.densities import (
    Gaussian,
    Mixture,
    choose_mixture,
    fit_mixture,
    grid_points,
    log_likelihood,
    weighted_moments,
)

GRID = grid_points((7, 6), torch.zeros((), dtype=torch.float64))


def clumps(batch: int = 3, seed: int = 0) -> Tensor:
    """Weights (batch, 42) in float64 of maps with two bright spots and some noise."""
    generator = torch.Generator().manual_seed(seed)
    spots = 0.15 + 0.7 * torch.rand(batch, 2, 1, 2, generator=generator, dtype=torch.float64)
    near = torch.exp(-((GRID - spots) ** 2).sum(-1) / 0.01).sum(1)
    return near + 0.05 * torch.rand(batch, len(GRID), generator=generator, dtype=torch.float64)


def naive_step(x: np.ndarray, w: np.ndarray, pi, mu, sigma):
    """Continuous (5.7), (5.12)–(5.15), a loop over points and components."""
    gamma = np.zeros((len(x), len(pi)))
    for n in range(len(x)):
        for k in range(len(pi)):
            d = x[n] - mu[k]
            normal = math.exp(-0.5 * d @ np.linalg.inv(sigma[k]) @ d) / (2 * math.pi * np.linalg.det(sigma[k]) ** 0.5)
            gamma[n, k] = pi[k] * normal
        gamma[n] /= gamma[n].sum()
    count = (w[:, None] * gamma).sum(0)
    mu = np.array([(w * gamma[:, k]) @ x / count[k] for k in range(len(pi))])
    sigma = np.array(
        [
            sum(w[n] * gamma[n, k] * np.outer(x[n] - mu[k], x[n] - mu[k]) for n in range(len(x))) / count[k]
            for k in range(len(pi))
        ]
    )
    return count, mu, sigma


def test_steps_against_a_loop() -> None:
    weights = clumps()
    start = fit_mixture(GRID, weights, modes=2, steps=0, floor=1e-9)
    fitted = fit_mixture(GRID, weights, modes=2, steps=4, start=start, floor=1e-9)
    for b in range(3):
        w = (weights[b] / weights[b].sum()).numpy()
        parts = (start.weights[b], start.components.mean[b], start.components.covariance[b])
        state = tuple(t.numpy() for t in parts)
        for _ in range(4):
            state = naive_step(GRID.numpy(), w, *state)
        np.testing.assert_allclose(fitted.weights[b], state[0], rtol=1e-8)
        np.testing.assert_allclose(fitted.components.mean[b], state[1], rtol=1e-8)
        np.testing.assert_allclose(fitted.components.covariance[b], state[2], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("modes", [1, 2, 4])
def test_equal_to_scikit_learn_where_weights_are_integers(modes: int) -> None:
    sklearn = pytest.importorskip("sklearn.mixture")
    generator = torch.Generator().manual_seed(modes)
    weights = torch.randint(0, 5, (len(GRID),), generator=generator).double()
    weights[10:14] += 9
    start = fit_mixture(GRID, weights, modes=modes, steps=0, floor=1e-9)
    fitted = fit_mixture(GRID, weights, modes=modes, steps=12, start=start, floor=1e-9)
    repeated = np.repeat(GRID.numpy(), weights.long().numpy(), axis=0)
    theirs = sklearn.GaussianMixture(
        modes,
        reg_covar=0,
        max_iter=12,
        tol=0,
        weights_init=start.weights.numpy(),
        means_init=start.components.mean.numpy(),
        precisions_init=torch.linalg.inv(start.components.covariance).numpy(),
    )
    with pytest.warns(Warning, match="did not converge"):
        theirs.fit(repeated)
    np.testing.assert_allclose(fitted.weights, theirs.weights_, rtol=1e-6)
    np.testing.assert_allclose(fitted.components.mean, theirs.means_, rtol=1e-6)
    np.testing.assert_allclose(fitted.components.covariance, theirs.covariances_, rtol=1e-5, atol=1e-10)
    total = log_likelihood(GRID, weights, fitted)
    assert total.item() == pytest.approx(theirs.score(repeated) * len(repeated), rel=1e-8)


@pytest.mark.parametrize("start", ["regions", "random"])
@pytest.mark.parametrize("floor", [1e-5, 1e-2])
def test_the_likelihood_never_falls(start, floor: float) -> None:
    weights = torch.cat([clumps(6), torch.eye(len(GRID), dtype=torch.float64)[:2]])
    now = fit_mixture(GRID, weights, 3, 0, start, torch.Generator().manual_seed(1), floor=floor)
    before = log_likelihood(GRID, weights, now)
    for _ in range(25):
        now = fit_mixture(GRID, weights, modes=3, steps=1, start=now, floor=floor)
        after = log_likelihood(GRID, weights, now)
        assert (after >= before - 1e-9 * before.abs()).all()
        before = after


def test_regions_are_halves_and_quarters() -> None:
    """The start of continuous 6.3.1: upper and lower half, then each of them in left and right."""
    points = grid_points((4, 4), torch.zeros(()))
    weights = torch.rand(16)
    upper = points[:, 0] < 0.5
    halves = fit_mixture(points, weights, modes=2, steps=0, floor=1e-5)
    mean, covariance = weighted_moments(points[upper], weights[upper])
    torch.testing.assert_close(halves.components.mean[0], mean)
    torch.testing.assert_close(halves.components.covariance[0], covariance)
    torch.testing.assert_close(halves.weights[0], weights[upper].sum() / weights.sum())
    left = points[:, 1] < 0.5
    quarters = fit_mixture(points, weights, modes=4, steps=0, floor=1e-5)
    for k, region in enumerate([upper & left, upper & ~left, ~upper & left, ~upper & ~left]):
        torch.testing.assert_close(quarters.components.mean[k], weighted_moments(points[region], weights[region])[0])


def test_gradients_flow_through_the_steps() -> None:
    weights = clumps(1)[0][:, None].squeeze(-1).requires_grad_()

    def fitted(w: Tensor) -> tuple[Tensor, ...]:
        mixture = fit_mixture(GRID, w, modes=2, steps=3)
        return mixture.weights, mixture.components.mean, mixture.components.covariance

    assert torch.autograd.gradcheck(fitted, weights, atol=1e-6)


# --- how many modes -----------------------------------------------------------------------------------------------


def test_every_criterion_is_that_of_its_own_fit() -> None:
    weights = clumps(4).float()
    points = GRID.float()
    chosen = choose_mixture(points, weights, penalty=7.0, generator=torch.Generator().manual_seed(3))
    assert chosen.criteria.shape == (13, 4)
    scaled = len(points) * weights / weights.sum(-1, keepdim=True)
    best = -2 * log_likelihood(points, scaled, chosen.mixture) + 7.0 * chosen.modes
    torch.testing.assert_close(best, chosen.criteria.min(0).values)
    single = Gaussian.from_weights(points, weights)  # wider than the floor
    one = -2 * (scaled * single.log_prob(points)).sum(-1) + 7.0
    torch.testing.assert_close(chosen.criteria[0], one, rtol=1e-4, atol=1e-3)
    assert ((chosen.mixture.weights > 0).sum(-1) == chosen.modes).all()


def test_modes_fall_with_the_penalty_and_are_found() -> None:
    points = grid_points((14, 14), torch.zeros(()))
    spots = torch.tensor([[0.2, 0.2], [0.8, 0.8], [0.2, 0.8]])
    weights = torch.stack(
        [sum(torch.exp(-((points - spot) ** 2).sum(-1) / 0.02) for spot in spots[:k]) for k in (1, 2, 3)]
    )
    modes = [
        choose_mixture(points, weights, penalty, generator=torch.Generator().manual_seed(0)).modes
        for penalty in (0.0, 40.0, 1e6)
    ]
    assert modes[1].tolist() == [1, 2, 3]
    assert (modes[0] >= modes[1]).all()
    assert modes[2].tolist() == [1, 1, 1]


def test_the_same_seed_chooses_the_same() -> None:
    weights = clumps(2)
    first, second = (choose_mixture(GRID, weights, 5.0, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.mixture.components.mean, second.mixture.components.mean)


@pytest.mark.parametrize("batch", [(), (0,), (1,), (2, 3)])
def test_any_batch(batch) -> None:
    weights = torch.rand(*batch, len(GRID))
    assert fit_mixture(GRID, weights, modes=3, steps=2).weights.shape == (*batch, 3)
    assert choose_mixture(GRID, weights, 5.0, steps=2).modes.shape == batch


def test_on_the_line_and_in_space() -> None:
    for d in (1, 3):
        fitted = fit_mixture(torch.rand(30, d), torch.rand(2, 30), modes=2, steps=5)
        assert fitted.components.covariance.shape == (2, 2, d, d)
        assert torch.isfinite(fitted.mean).all()


weights_of_a_map = st.lists(
    st.one_of(st.just(0.0), st.floats(0, 1, width=32), st.floats(1e-30, 1e-20), st.floats(1e10, 1e20)),
    min_size=12,
    max_size=12,
)


@given(weights=weights_of_a_map, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_degenerate_weights_give_finite_mixtures_and_gradients(weights, seed: int) -> None:
    points = grid_points((4, 3), torch.zeros(()))
    w = torch.tensor([weights, [0.0] * 11 + [1.0], [0.0] * 12, [1.0] * 12]).requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    for mixture in (
        fit_mixture(points, w, modes=2, steps=4),
        fit_mixture(points, w, modes=5, steps=4, start="random", generator=generator),
        choose_mixture(points, w, 3.0, steps=4, generator=generator).mixture,
    ):
        values = (mixture.weights, mixture.components.mean, mixture.components.covariance, mixture.pdf(points))
        assert all(torch.isfinite(v).all() for v in values)
        (gradient,) = torch.autograd.grad(sum(v.sum() for v in values), w, retain_graph=True)
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(mixture.weights.sum(-1), torch.ones(4))


def test_bad_input_is_said() -> None:
    with pytest.raises(ValueError, match="modes must be at least 1"):
        fit_mixture(GRID, torch.rand(42), modes=0, steps=1)
    one = Mixture(torch.ones(1), Gaussian(torch.zeros(1, 2), torch.eye(2)))
    with pytest.raises(ValueError, match="a mixture of 1 components cannot be the start of 2 modes"):
        fit_mixture(GRID, torch.rand(42), modes=2, steps=1, start=one)
    with pytest.raises(ValueError, match="'regions', 'random' or a mixture"):
        fit_mixture(GRID, torch.rand(42), modes=2, steps=1, start="middle")
