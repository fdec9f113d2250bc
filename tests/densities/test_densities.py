"""Densities against sums over fine grids, torch.distributions and the paper's own formulas."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.densities import Gaussian, GaussianBasis, Mixture, TruncatedParaboloid, grid_points, weighted_moments
from foveate.densities.base import Density, Ellipse
from foveate.geometry import rotation

KINDS = [Gaussian, TruncatedParaboloid]
SIZES = {1: (4000,), 2: (400, 400), 3: (70, 70, 70)}


def some(kind: type, dimensions: int, spread: float = 0.002, batch: int = 2) -> Density:
    """Densities well inside the unit cube."""
    a = torch.randn(batch, dimensions, dimensions, dtype=torch.float64)
    matrix = a @ a.mT + torch.eye(dimensions, dtype=torch.float64)
    matrix = matrix / torch.linalg.matrix_norm(matrix, 2)[:, None, None]
    loc = 0.45 + 0.1 * torch.rand(batch, dimensions, dtype=torch.float64)
    return kind(loc, spread * matrix) if kind is Gaussian else kind.from_moments(loc, spread * matrix)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_moments_and_entropies_against_a_sum_over_a_grid(kind, dimensions: int) -> None:
    """That it integrates to 1 is (3.12), (3.15); the covariance of the paraboloid is Theorem 1, (4.1), (4.2), (4.4)."""
    density = some(kind, dimensions, 0.006 if dimensions == 3 else 0.002)
    p = density.render(SIZES[dimensions]).flatten(1)
    points = grid_points(SIZES[dimensions], p)
    cell = 1 / len(points)
    loose = dict(rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(p.sum(1) * cell, torch.ones(2, dtype=torch.float64), **loose)
    mean, covariance = weighted_moments(points, p, floor=0.0)
    torch.testing.assert_close(mean, density.mean, **loose)
    torch.testing.assert_close(covariance, density.covariance, **loose)
    torch.testing.assert_close(density.entropy(1.0), -torch.xlogy(p, p).sum(1) * cell, **loose)
    for alpha in (1.5, 2.0):
        truth = (1 - (p**alpha).sum(1) * cell) / (alpha * (alpha - 1))
        torch.testing.assert_close(density.entropy(alpha), truth, **loose)


def test_the_gaussian_is_that_of_torch() -> None:
    for dimensions in (1, 2, 4):
        density = some(Gaussian, dimensions)
        theirs = torch.distributions.MultivariateNormal(density.mean, density.covariance)
        points = torch.rand(5, dimensions, dtype=torch.float64)
        torch.testing.assert_close(density.log_prob(points), theirs.log_prob(points[:, None]).T)
        torch.testing.assert_close(density.entropy(), theirs.entropy())
        assert density.batch_shape == theirs.batch_shape
        assert density.event_shape == theirs.event_shape


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_paraboloid_is_3_14(dimensions: int) -> None:
    density = some(TruncatedParaboloid, dimensions)
    points = grid_points({1: 50, 2: (20, 20), 3: (9, 9, 9)}[dimensions], density.loc)
    for b in range(2):
        sigma, n = density.scale[b], dimensions
        lam = -((math.gamma(n / 2 + 2) / math.sqrt(torch.linalg.det(2 * math.pi * sigma))) ** (2 / (2 + n)))  # (3.15)
        d = points - density.loc[b]
        truth = (-0.5 * (d @ torch.linalg.inv(sigma) * d).sum(1) - lam).clamp_min(0)  # (3.14)
        torch.testing.assert_close(density.pdf(points)[b], truth)
        torch.testing.assert_close(density.log_prob(points)[b].exp(), truth)


def test_theorem_1_turned_round() -> None:
    """(4.3) on the line and (4.6) in the plane, as printed."""
    variance = torch.tensor([[0.013]], dtype=torch.float64)
    line = TruncatedParaboloid.from_moments(torch.zeros(1), variance)
    torch.testing.assert_close(line.scale, 2 / 3 * (5 * variance) ** 1.5)
    plane = torch.tensor([[0.02, 0.004], [0.004, 0.01]], dtype=torch.float64)
    scale = TruncatedParaboloid.from_moments(torch.zeros(2), plane).scale
    torch.testing.assert_close(scale, 9 * math.pi * torch.linalg.det(plane) ** 0.5 * plane)
    determinant = torch.linalg.det(plane)  # and (4.5) as DESIGN corrects it
    torch.testing.assert_close(determinant, torch.linalg.det(scale) ** 0.5 / (9 * math.pi))


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_by_canonical_parameters(kind) -> None:
    density = some(kind, 2)
    linear, quadratic = density.canonical
    matrix = density.covariance if kind is Gaussian else density.scale
    torch.testing.assert_close(quadratic, -torch.linalg.inv(matrix) / 2)
    torch.testing.assert_close(linear, (torch.linalg.inv(matrix) @ density.loc[..., None])[..., 0])
    back = kind.from_canonical(linear, quadratic)
    points = torch.rand(9, 2, dtype=torch.float64)
    torch.testing.assert_close(back.pdf(points), density.pdf(points))


# --- where it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [-1.2, 0.0, 0.4, 1.5])
def test_the_support_is_an_ellipse_by_its_displayed_angle(angle: float) -> None:
    """Right, turned counter-clockwise by `angle`, is the direction of the longest half-axis; the density ends there."""
    turn = rotation(torch.tensor(angle, dtype=torch.float64))
    matrix = turn @ torch.diag(torch.tensor([0.01, 0.04], dtype=torch.float64)) @ turn.T  # of columns, longer
    density = TruncatedParaboloid(torch.tensor([0.5, 0.4], dtype=torch.float64), matrix)
    support = density.support
    assert support.angle.item() == pytest.approx(angle)
    longest = support.axes[0] * (turn @ torch.tensor([0.0, 1.0], dtype=torch.float64))
    shortest = support.axes[1] * (turn @ torch.tensor([1.0, 0.0], dtype=torch.float64))
    for along in (longest, shortest, -longest, -shortest):
        inside, outside = (density.pdf((support.center + f * along)[None]) for f in (0.999, 1.001))
        assert inside > 0
        assert outside == 0
    rim = support.rim(50)
    assert density.pdf(0.999 * rim + 0.001 * support.center).min() > 0
    assert density.pdf(1.001 * rim - 0.001 * support.center).max() == 0


def test_a_gaussian_is_everywhere() -> None:
    assert torch.isinf(some(Gaussian, 2).support.axes).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_contour_holds_its_mass(kind, dimensions: int) -> None:
    density = some(kind, dimensions)
    contour = density.contour(0.6)
    p, points = density.render(SIZES[dimensions]).flatten(1), grid_points(SIZES[dimensions], density.mean)
    for b in range(2):
        d = points - density.mean[b]
        squared = (d @ torch.linalg.inv(density.covariance[b]) * d).sum(1)
        level = contour.axes[b, 0] ** 2 / torch.linalg.eigvalsh(density.covariance[b])[-1]
        assert (p[b][squared <= level].sum() / len(points)).item() == pytest.approx(0.6, abs=5e-3)


# --- draws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_draws_have_the_density(kind, dimensions: int) -> None:
    density = some(kind, dimensions)
    draws = density.sample(40_000, torch.Generator().manual_seed(0))
    assert draws.shape == (40_000, 2, dimensions)
    torch.testing.assert_close(draws.mean(0), density.mean, atol=2e-3, rtol=0)
    for b in range(2):
        spread = draws[:, b].T.cov().reshape(dimensions, dimensions)
        torch.testing.assert_close(spread, density.covariance[b], atol=1e-4, rtol=0.05)
    if kind is TruncatedParaboloid:
        assert (density.pdf(draws.permute(1, 0, 2)) > 0).all()
    again = density.sample(40_000, torch.Generator().manual_seed(0))
    assert torch.equal(draws, again)


def test_draws_carry_gradients() -> None:
    loc = torch.zeros(2, requires_grad=True)
    scale = torch.eye(2, requires_grad=True)
    TruncatedParaboloid(loc, scale).rsample((3, 4)).sum().backward()
    torch.testing.assert_close(loc.grad, torch.full((2,), 12.0))
    assert scale.grad.abs().sum() > 0


# --- mixtures -----------------------------------------------------------------------------------------------------


def test_a_mixture_against_sums() -> None:
    components = some(Gaussian, 2, batch=3)
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    mixture = Mixture(weights, components)
    p = mixture.render((300, 300)).flatten()
    points = grid_points((300, 300), p)
    each = components.pdf(points)
    torch.testing.assert_close(p, 0.5 * each[0] + 0.5 * each[1])
    torch.testing.assert_close(mixture.log_prob(points), p.log())
    mean, covariance = weighted_moments(points, p, floor=0.0)
    torch.testing.assert_close(mixture.mean, mean, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(mixture.covariance, covariance, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(mixture.entropy(), -torch.xlogy(p, p).sum() / len(p), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(mixture.entropy(2.0), (1 - (p * p).sum() / len(p)) / 2, rtol=1e-3, atol=1e-3)
    draws = mixture.sample((20_000,), torch.Generator().manual_seed(1))
    torch.testing.assert_close(draws.mean(0), mixture.mean, atol=3e-3, rtol=0)
    torch.testing.assert_close(draws.T.cov(), mixture.covariance, atol=1e-3, rtol=0.05)
    with pytest.raises(ValueError, match="want as many components"):
        Mixture(torch.ones(2), components)


def test_a_batch_of_mixtures() -> None:
    components = Gaussian(torch.rand(4, 3, 2), 0.01 * torch.eye(2))
    mixture = Mixture(torch.softmax(torch.randn(4, 3), -1), components)
    assert mixture.render((5, 6)).shape == (4, 5, 6)
    assert mixture.expect(GaussianBasis.grid(9, 0.01)).shape == (4, 9)
    assert mixture.sample((2, 3)).shape == (2, 3, 4, 2)
    assert mixture.pdf(torch.rand(4, 7, 2)).shape == (4, 7)
    assert mixture.entropy().shape == (4,)


# --- fits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_fits_have_the_moments_of_the_weights(kind, dimensions: int) -> None:
    points, weights = torch.rand(30, dimensions, dtype=torch.float64), torch.rand(4, 30, dtype=torch.float64)
    density = kind.from_weights(points, 7 * weights)
    for b in range(4):
        w = weights[b] / weights[b].sum()
        mean = w @ points
        covariance = torch.einsum("l,li,lj->ij", w, points, points) - torch.outer(mean, mean)  # Alg. 2 as printed
        torch.testing.assert_close(density.mean[b], mean)
        torch.testing.assert_close(density.covariance[b], covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_are_differentiable(kind) -> None:
    points, weights = torch.rand(9, 2, dtype=torch.float64), torch.rand(2, 9, dtype=torch.float64, requires_grad=True)
    basis = GaussianBasis.grid(4, 0.05).double()
    assert torch.autograd.gradcheck(lambda w: kind.from_weights(points, w).expect(basis), weights)


def maps(height: int, width: int) -> torch.Tensor:
    """One-hot, two kinds of line, even, empty, faint and huge weights, (7, height·width)."""
    points = grid_points((height, width), torch.zeros(()))
    even = torch.ones(len(points))
    line, diagonal = (points[:, 0] == points[0, 0]).float(), ((points[:, 0] - points[:, 1]).abs() < 1e-3).float()
    return torch.stack([torch.eye(len(points))[-1], line, diagonal, even, 0 * even, 1e-30 * even, 1e30 * even])


@given(
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    random=st.lists(st.floats(0, 1e6, width=32), min_size=49, max_size=49),
)
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_weights_give_finite_densities_and_gradients(kind, height: int, width: int, random) -> None:
    points, basis = grid_points((height, width), torch.zeros(())), GaussianBasis.grid(4, 1e-3)
    weights = torch.cat([maps(height, width), torch.tensor(random)[None, : height * width]]).requires_grad_()
    density = kind.from_weights(points, weights)
    values = density.pdf(points), density.expect(basis), density.mean, density.covariance, density.entropy()
    assert all(torch.isfinite(v).all() for v in values)
    assert torch.linalg.eigvalsh(density.covariance.double()).min() > 0
    (gradient,) = torch.autograd.grad(sum((v / v.detach().abs().amax().clamp_min(1)).sum() for v in values), weights)
    assert torch.isfinite(gradient).all()


def test_bad_input_is_said() -> None:
    with pytest.raises(ValueError, match=r"wants covariance \(..., 2, 2\), not \(3, 3\)"):
        Gaussian(torch.zeros(2), torch.eye(3))
    with pytest.raises(ValueError, match="2 dimensions cannot be drawn at size"):
        Gaussian(torch.zeros(2), torch.eye(2)).render(5)
    assert Ellipse.of(torch.zeros(1), torch.eye(1)).angle == 0
