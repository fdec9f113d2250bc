"""The regularised prediction map: its equations, the entmax package, and the densities that are its special cases."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from foveate.densities import Gaussian, GaussianBasis, TruncatedParaboloid, grid_points, prediction_map
from foveate.densities.deformed import covariance_beta, escort, exp_beta, log_beta, negentropy, normaliser

ALPHAS = [1.0, 1.2, 1.5, 1.9, 2.0]


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_exponential_and_logarithm_are_inverse(beta: float) -> None:
    u = torch.linspace(-0.9, 2, 30, dtype=torch.float64)
    torch.testing.assert_close(log_beta(exp_beta(u, beta), beta), u)
    if beta < 1:  # (3.3) by hand, and zero below
        assert exp_beta(u, beta)[7].item() == pytest.approx((1 + (1 - beta) * u[7].item()) ** (1 / (1 - beta)))
        assert exp_beta(torch.tensor(-1 / (1 - beta) - 1e-9), beta) == 0


def test_the_limit_is_the_exponential() -> None:
    u = torch.linspace(-3, 3, 20, dtype=torch.float64)
    torch.testing.assert_close(exp_beta(u, 1 - 1e-6), u.exp(), rtol=1e-4, atol=1e-4)
    p = torch.softmax(u, 0)
    torch.testing.assert_close(negentropy(p, 1 + 1e-6), (p * p.log()).sum() + 1 * 0, rtol=1e-4, atol=1e-4)


def test_it_is_softmax_entmax_and_sparsemax() -> None:
    entmax = pytest.importorskip("entmax")
    scores = 3 * torch.randn(20, 30, dtype=torch.float64)
    torch.testing.assert_close(prediction_map(scores, 1.0), torch.softmax(scores, -1))
    torch.testing.assert_close(prediction_map(scores, 1.5), entmax.entmax15(scores, -1))
    torch.testing.assert_close(prediction_map(scores, 2.0), entmax.sparsemax(scores, -1))
    torch.testing.assert_close(prediction_map(scores, 1.3), entmax.entmax_bisect(scores, 1.3, n_iter=80))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_is_a_deformed_exponential_and_maximises(alpha: float) -> None:
    """Continuous (3.6) with the normaliser (3.7); and (3.2): no other density does better."""
    cell, scores = 0.05, torch.randn(20, dtype=torch.float64)
    p = prediction_map(scores, alpha, cell)
    assert (p.sum() * cell).item() == pytest.approx(1)
    shifted = scores - normaliser(scores, p, alpha, cell)
    torch.testing.assert_close(exp_beta(shifted, 2 - alpha), p, rtol=1e-7, atol=1e-9)

    def objective(q: torch.Tensor) -> torch.Tensor:
        return cell * (q * scores).sum() - negentropy(q, alpha, cell)

    for _ in range(50):
        other = torch.softmax(4 * torch.randn(20, dtype=torch.float64), 0) / cell
        for mix in (1e-3, 0.1, 1.0):
            assert objective(p) >= objective((1 - mix) * p + mix * other) - 1e-12


@pytest.mark.parametrize("dimensions", [1, 2])
def test_gaussian_and_paraboloid_are_its_special_cases(dimensions: int) -> None:
    """Continuous (3.12), (3.14): what the map makes of −½(t − μ)ᵀΣ⁻¹(t − μ) on a fine grid."""
    size = (2000,) if dimensions == 1 else (300, 300)
    points = grid_points(size, torch.zeros((), dtype=torch.float64))
    loc = torch.tensor([0.45, 0.55], dtype=torch.float64)[:dimensions]
    a = torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)[:dimensions, :dimensions]
    for density, alpha, spread in ((Gaussian, 1.0, 0.004), (TruncatedParaboloid, 2.0, 0.004)):
        matrix = spread * a
        d = points - loc
        scores = -0.5 * (d @ torch.linalg.inv(matrix) * d).sum(-1)
        mapped = prediction_map(scores, alpha, cell=1 / len(points))
        truth = density(loc, matrix).pdf(points)
        assert (mapped - truth).abs().max() < 1e-3 * truth.max()
        assert density(loc, matrix).entropy(alpha).item() == pytest.approx(
            -negentropy(mapped, alpha, 1 / len(points)).item(), rel=1e-3
        )


def test_the_escort_and_the_covariance_by_hand() -> None:
    """Continuous (3.9), (3.19)."""
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    phi, psi = torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    for beta in (0.0, 0.5, 1.0):
        power = torch.tensor([x**beta if x > 0 else 0.0 for x in p.tolist()], dtype=torch.float64)
        own = power / power.sum()
        torch.testing.assert_close(escort(p, beta), own)
        mixed = sum(own[i] * torch.outer(phi[i], psi[i]) for i in range(4))
        product = torch.outer(own @ phi, own @ psi)
        torch.testing.assert_close(covariance_beta(p, phi, psi, beta), power.sum() * (mixed - product))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_jacobian_of_attention_is_the_covariance(alpha: float) -> None:
    """Continuous (3.20), for θ ↦ E_p[ψ] with p the map of θᵀφ, against autograd."""
    phi, psi = torch.randn(25, 4, dtype=torch.float64), torch.randn(25, 3, dtype=torch.float64)
    cell = 0.04

    def attention(theta: torch.Tensor) -> torch.Tensor:
        return cell * prediction_map(phi @ theta, alpha, cell) @ psi

    theta = torch.randn(4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(attention, theta)
    p = prediction_map(phi @ theta, alpha, cell)
    torch.testing.assert_close(jacobian.mT, covariance_beta(p, phi, psi, 2 - alpha, cell))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients(alpha: float) -> None:
    scores = torch.randn(2, 5, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda s: prediction_map(s, alpha, 0.2), scores)
    assert gradgradcheck(lambda s: prediction_map(s, alpha, 0.2), scores)


def test_gaussian_expectations_are_the_maps_on_a_grid() -> None:
    """Both closed forms again as sums over the map's density: (3.16)."""
    points = grid_points((200, 200), torch.zeros((), dtype=torch.float64))
    loc, matrix = torch.tensor([0.5, 0.45], dtype=torch.float64), 0.003 * torch.eye(2, dtype=torch.float64)
    basis = GaussianBasis.grid(9, 0.01).double()
    scores = -0.5 * ((points - loc) ** 2).sum(-1) / 0.003
    for density, alpha in ((Gaussian, 1.0), (TruncatedParaboloid, 2.0)):
        p = prediction_map(scores, alpha, 1 / len(points))
        torch.testing.assert_close(
            density(loc, matrix).expect(basis), p @ basis(points) / len(points), rtol=1e-3, atol=1e-4
        )


@given(
    scores=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9),
    alpha=st.sampled_from([1.0, 1.01, 1.5, 2.0]),
)
@settings(deadline=None, max_examples=60)
def test_any_scores_give_a_density_and_finite_gradients(scores, alpha: float) -> None:
    f = torch.tensor(scores, requires_grad=True)
    p = prediction_map(f, alpha)
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    (gradient,) = torch.autograd.grad((p * torch.arange(len(p))).sum(), f)
    assert torch.isfinite(gradient).all()


def test_bad_input_is_said() -> None:
    with pytest.raises(ValueError, match=r"alpha must lie in \[1, 2\]"):
        prediction_map(torch.zeros(3), alpha=math.e)
