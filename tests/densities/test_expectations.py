"""Expectations of bases against adaptive quadrature, and their gradients against finite differences."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from foveate.densities import Gaussian, GaussianBasis, Mixture, ParaboloidBasis, TruncatedParaboloid


def ellipse(major: float, minor: float, angle: float) -> Tensor:
    """The matrix of an ellipse by its half-axes."""
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    return turn @ torch.diag(torch.tensor([major**2, minor**2], dtype=torch.float64)) @ turn.T


def paraboloid(loc: tuple[float, float], rim: Tensor) -> TruncatedParaboloid:
    """The density whose support has this matrix: −2λΣ = S, so that Σ = S/(2·2/(π√|S|))."""
    height = 2 / (math.pi * torch.linalg.det(rim).sqrt())
    return TruncatedParaboloid(torch.tensor(loc, dtype=rim.dtype), rim / (2 * height))


def adaptive(density: TruncatedParaboloid, mean: np.ndarray, covariance: np.ndarray, weighted: bool = True) -> float:
    """∫ p·N by scipy's adaptive rules: over the disc that the support is mapped to, cut where the Gaussian lives.

    Written anew: along the eigenvectors of Σ, not a Cholesky factor; chords along the first axis always.
    """
    scale, loc = density.scale.double().numpy(), density.loc.double().numpy()
    lam = -((1 / (math.pi * math.sqrt(np.linalg.det(scale)))) ** 0.5)  # continuous (A.14)
    values, vectors = np.linalg.eigh(scale)
    root = vectors @ np.diag(np.sqrt(-2 * lam * values))
    inverse = np.linalg.inv(covariance)
    constant = 1 / (2 * math.pi * math.sqrt(np.linalg.det(covariance)))
    c = np.linalg.inv(root) @ covariance @ np.linalg.inv(root).T
    m = np.linalg.inv(root) @ (mean - loc)
    deviation = math.sqrt(c[1, 1])
    conditional = math.sqrt(max(c[0, 0] - c[0, 1] ** 2 / c[1, 1], 0))

    def along(y: float) -> float:
        half = math.sqrt(max(1 - y * y, 0))
        center = m[0] + c[0, 1] / c[1, 1] * (y - m[1])
        low, high = max(-half, center - 12 * conditional), min(half, center + 12 * conditional)
        if low >= high:
            return 0.0

        def at(x: float) -> float:
            u = np.array([x, y])
            d = root @ u + loc - mean
            return (-lam * (1 - u @ u) if weighted else 1.0) * constant * math.exp(-0.5 * d @ inverse @ d)

        middle = min(max(center, low), high)
        points = [middle] if low < middle < high else None
        return integrate.quad(at, low, high, epsabs=0, epsrel=1e-11, limit=200, points=points)[0]

    low, high = max(-1.0, m[1] - 12 * deviation), min(1.0, m[1] + 12 * deviation)
    if low >= high:
        return 0.0
    inside = [y for y in np.linspace(m[1] - 6 * deviation, m[1] + 6 * deviation, 7) if low < y < high]
    total = integrate.quad(along, low, high, epsabs=0, epsrel=1e-10, limit=400, points=inside or None)[0]
    return total * abs(np.linalg.det(root))


SUPPORTS = [(0.3, 0.3, 0.0), (0.4, 0.04, 0.6), (0.5, 0.005, 1.1), (0.02, 0.01, 0.3)]


def centers(density: TruncatedParaboloid, variance: float) -> Tensor:
    """Inside the support, on its rim and outside it, near and far."""
    at = torch.tensor([[0.0, 0.0], [0.35, 0.5], [0.9, 0.1], [0.6, 0.8], [1.0, 0.0], [0.1, 1.2]], dtype=torch.float64)
    return density.loc + at @ torch.linalg.cholesky(density.rim).T


@pytest.mark.slow
@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("variance", [1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("anisotropy", [1.0, 10.0, 100.0])
def test_exact_against_adaptive_quadrature(support, variance: float, anisotropy: float) -> None:
    check_against_adaptive_quadrature(support, variance, anisotropy)


@pytest.mark.parametrize(
    ("support", "variance", "anisotropy"),
    [(SUPPORTS[0], 1e-3, 1.0), (SUPPORTS[2], 1e-4, 1.0), (SUPPORTS[1], 1.0, 100.0), (SUPPORTS[1], 1e-2, 10.0)],
)
def test_exact_against_adaptive_quadrature_in_four_places(support, variance: float, anisotropy: float) -> None:
    check_against_adaptive_quadrature(support, variance, anisotropy)


def check_against_adaptive_quadrature(support, variance: float, anisotropy: float) -> None:
    """The issue's bounds: relative to the largest value, 1e-8 in float64 and 1e-5 in float32."""
    density = paraboloid((0.45, 0.55), ellipse(*support))
    covariance = ellipse(math.sqrt(variance), math.sqrt(variance / anisotropy), 0.4)
    basis = GaussianBasis(centers(density, variance), covariance)
    truth = np.array([adaptive(density, m, covariance.numpy()) for m in basis.centers.numpy()])
    assert np.abs(density.expect(basis).numpy() - truth).max() <= 1e-8 * truth.max()
    single = TruncatedParaboloid(density.loc.float(), density.scale.float())
    coarse = GaussianBasis(basis.centers.float(), covariance.float())
    exact = TruncatedParaboloid(single.loc.double(), single.scale.double())  # of the rounded numbers
    rounded = exact.expect(GaussianBasis(coarse.centers.double(), coarse.matrices.double()))
    found = single.expect(coarse)
    assert found.dtype == torch.float32
    assert (found.double() - rounded).abs().max() <= 1e-5 * rounded.max()


# --- gradients ----------------------------------------------------------------------------------------------------


def some_parameters(batch: int = 2, functions: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Locations and matrices, thin and wide, of densities and of basis functions, all asking for gradients."""

    def matrices(count: int, size: float) -> Tensor:
        a = torch.randn(count, 2, 2, dtype=torch.float64)
        return size * (a @ a.mT + 0.05 * torch.eye(2, dtype=torch.float64))

    loc, mean = (torch.rand(count, 2, dtype=torch.float64) for count in (batch, functions))
    parameters = (loc, matrices(batch, 0.02), mean, matrices(functions, 0.02))
    return tuple(t.requires_grad_() for t in parameters)  # type: ignore[return-value]


def expectation(density: type, basis: type):
    def function(loc: Tensor, matrix: Tensor, centers: Tensor, matrices: Tensor) -> Tensor:
        functions = basis(torch.zeros(len(centers), 2), torch.eye(2))
        functions.centers, functions.matrices = centers, matrices
        return density(loc, matrix).expect(functions)

    return function


@pytest.mark.parametrize(
    ("density", "basis"),
    list(product([Gaussian, TruncatedParaboloid], [GaussianBasis, ParaboloidBasis])),
)
def test_gradients_by_the_density_and_by_the_basis(density, basis) -> None:
    function, parameters = expectation(density, basis), some_parameters()
    assert gradcheck(function, parameters, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("density", "basis"),
    list(product([Gaussian, TruncatedParaboloid], [GaussianBasis, ParaboloidBasis])),
)
def test_second_derivatives(density, basis) -> None:
    function, parameters = expectation(density, basis), some_parameters(1, 2)
    assert gradgradcheck(function, parameters, atol=1e-5, rtol=1e-4)


def test_the_jacobian_is_a_covariance_under_the_escort() -> None:
    """Continuous (3.20), (A.24), (A.25) by a sum over the support, for θ = [Σ⁻¹μ, −½Σ⁻¹]."""
    density = paraboloid((0.4, 0.5), ellipse(0.4, 0.15, 0.5))
    basis = GaussianBasis(torch.tensor([[0.5, 0.6]], dtype=torch.float64), ellipse(0.2, 0.1, 1.0))
    theta = [t.requires_grad_() for t in density.canonical]
    jacobian = torch.autograd.grad(TruncatedParaboloid.from_canonical(*theta).expect(basis).sum(), theta)
    radii, weights = (torch.tensor(t) for t in np.polynomial.legendre.leggauss(60))
    turn = torch.arange(200, dtype=torch.float64) * (2 * math.pi / 200)
    radii, weights = (radii + 1) / 2, weights / 2
    disc = radii[:, None, None] * torch.stack([turn.cos(), turn.sin()], -1)
    t = (density.loc + disc.reshape(-1, 2) @ torch.linalg.cholesky(density.rim).T).detach()
    area = (radii * weights)[:, None].expand(-1, 200).reshape(-1) * (2 * math.pi / 200)
    area = area * torch.linalg.det(density.rim).sqrt().detach()
    psi = basis(t)[:, 0]
    statistics = torch.cat([t, (t[:, :, None] * t[:, None, :]).flatten(1)], 1)
    mean = (area[:, None] * statistics).sum(0) / area.sum()
    covariance = (area[:, None] * statistics * psi[:, None]).sum(0) - mean * (area * psi).sum()
    torch.testing.assert_close(torch.cat([jacobian[0], jacobian[1].flatten()]), covariance, rtol=1e-8, atol=1e-10)


# --- closed forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_the_gaussian_in_any_dimension(dimensions: int) -> None:
    """Continuous (4.9)–(4.12) against torch.distributions."""
    generator = torch.Generator().manual_seed(dimensions)
    a = torch.randn(4, dimensions, dimensions, generator=generator, dtype=torch.float64)
    matrices = a @ a.mT + 0.1 * torch.eye(dimensions, dtype=torch.float64)
    loc, centers = torch.randn(2, 4, dimensions, generator=generator, dtype=torch.float64)
    theta = [t.detach().requires_grad_() for t in Gaussian(loc[:1], matrices[:1]).canonical]
    density = Gaussian.from_canonical(*theta)
    value = density.expect(GaussianBasis(centers[1:2], matrices[1:2]))
    sum_of_both = torch.distributions.MultivariateNormal(centers[1], matrices[0] + matrices[1])
    torch.testing.assert_close(value[0, 0], sum_of_both.log_prob(loc[0]).exp())
    jacobian = torch.autograd.grad(value.sum(), theta)
    precision, other = torch.linalg.inv(matrices[0]), torch.linalg.inv(matrices[1])
    merged = torch.linalg.inv(precision + other)
    middle = merged @ (precision @ loc[0] + other @ centers[1])
    first = value * (middle - loc[0])  # (4.11)
    second = value * (merged + torch.outer(middle, middle) - matrices[0] - torch.outer(loc[0], loc[0]))  # (4.12)
    torch.testing.assert_close(jacobian[0], first.detach())
    torch.testing.assert_close(jacobian[1][0], second.detach())


@pytest.mark.parametrize("variance", [1e-6, 1e-4, 1e-2, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("half", [1e-3, 0.05, 0.7])
def test_the_parabola_on_the_line(half: float, variance: float) -> None:
    """Closed on the line, against adaptive quadrature; on both sides of the width where the closed form cancels."""
    rim = torch.tensor([[half**2]], dtype=torch.float64)
    scale = (2 / 3) * half**3 * torch.ones(1, 1, dtype=torch.float64)  # of a density of that support
    density = TruncatedParaboloid(torch.tensor([0.4], dtype=torch.float64), scale)
    torch.testing.assert_close(density.rim, rim)
    places = 0.4 + half * torch.tensor([[0.0], [0.5], [1.0], [1.4], [-3.0]], dtype=torch.float64)
    basis = GaussianBasis(places, torch.tensor([[variance]], dtype=torch.float64))

    def value(m: float) -> float:
        deviation = math.sqrt(variance)
        low, high = max(0.4 - half, m - 12 * deviation), min(0.4 + half, m + 12 * deviation)
        if low >= high:
            return 0.0

        def at(t: float) -> float:
            bell = math.exp(-0.5 * ((t - m) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
            return 0.75 / half * (1 - ((t - 0.4) / half) ** 2) * bell

        points = [m] if low < m < high else None
        return integrate.quad(at, low, high, epsabs=0, epsrel=1e-12, points=points, limit=200)[0]

    truth = np.array([value(m) for m in places[:, 0].tolist()])
    found = density.expect(basis)
    assert np.abs(found.numpy() - truth).max() <= 1e-10 * truth.max()
    single = TruncatedParaboloid(density.loc.float(), density.scale.float())
    coarse = GaussianBasis(places.float(), basis.matrices.float())
    exact = TruncatedParaboloid(single.loc.double(), single.scale.double())
    rounded = exact.expect(GaussianBasis(coarse.centers.double(), coarse.matrices.double()))
    assert (single.expect(coarse).double() - rounded).abs().max() <= 1e-6 * rounded.max()


def test_gradients_on_the_line() -> None:
    loc, scale = torch.rand(2, 1, dtype=torch.float64), 0.01 + 0.05 * torch.rand(2, 1, 1, dtype=torch.float64)
    for basis in (GaussianBasis, ParaboloidBasis):
        functions = basis(torch.rand(4, 1, dtype=torch.float64), torch.tensor([[0.004]], dtype=torch.float64))
        for density in (Gaussian, TruncatedParaboloid):
            inputs = (loc.clone().requires_grad_(), scale.clone().requires_grad_())
            assert gradcheck(lambda *p, d=density, f=functions: d(*p).expect(f), inputs)
            assert gradgradcheck(lambda *p, d=density, f=functions: d(*p).expect(f), inputs)


def test_paraboloids_of_paraboloids() -> None:
    """The future work of 7.2 against a fine sum over the support."""
    density = paraboloid((0.5, 0.5), ellipse(0.4, 0.2, 0.3))
    basis = ParaboloidBasis(centers(density, 0), ellipse(0.05, 0.01, 1.0))
    radii, weights = (torch.tensor(t) for t in np.polynomial.legendre.leggauss(400))
    turn = torch.arange(1600, dtype=torch.float64) * (2 * math.pi / 1600)
    radii, weights = (radii + 1) / 2, weights / 2
    for j, function in enumerate(basis.functions.loc):
        own = TruncatedParaboloid(function, basis.matrices[j])
        disc = radii[:, None, None] * torch.stack([turn.cos(), turn.sin()], -1)
        t = function + disc.reshape(-1, 2) @ torch.linalg.cholesky(own.rim).T
        area = (radii * weights)[:, None].expand(-1, 1600).reshape(-1) * (2 * math.pi / 1600)
        truth = (area * own.pdf(t) * density.pdf(t)).sum() * torch.linalg.det(own.rim).sqrt()
        torch.testing.assert_close(density.expect(basis)[j], truth, rtol=2e-7, atol=1e-9)


def test_a_mixture_is_linear() -> None:
    components = paraboloid((0.3, 0.3), torch.stack([ellipse(0.3, 0.1, 0.2), ellipse(0.2, 0.1, 1.2)]))
    basis = GaussianBasis.grid(9, 0.01).double()
    mixture = Mixture(torch.tensor([0.3, 0.7], dtype=torch.float64), components)
    each = components.expect(basis)
    torch.testing.assert_close(mixture.expect(basis), 0.3 * each[0] + 0.7 * each[1])


# --- the house's rules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [Gaussian, TruncatedParaboloid])
@pytest.mark.parametrize("batch", [(), (0,), (1,), (3, 2)])
def test_any_batch(density, batch) -> None:
    loc, matrix = torch.rand(*batch, 2), 0.01 * torch.eye(2)
    for basis in (GaussianBasis.grid(9, 0.01), ParaboloidBasis.grid(9, 0.01)):
        assert density(loc, matrix).expect(basis).shape == (*batch, 9)


def test_more_pairs_than_a_chunk() -> None:
    loc, scale = torch.rand(90, 2), 0.01 * torch.eye(2)
    basis = GaussianBasis.grid(100, 0.001)
    whole = TruncatedParaboloid(loc, scale).expect(basis)
    torch.testing.assert_close(whole[37], TruncatedParaboloid(loc[37], scale).expect(basis))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_leaves_it_alone(dtype: torch.dtype) -> None:
    points, weights, basis = torch.rand(50, 2), torch.rand(4, 50), GaussianBasis.grid(16, 0.002)
    for density in (Gaussian, TruncatedParaboloid):
        plain = density.from_weights(points, weights).expect(basis)
        with torch.autocast("cpu", dtype):
            found = density.from_weights(points, weights).expect(basis)
        assert found.dtype == torch.float32
        assert torch.equal(found, plain)


def test_a_basis_and_a_density_of_different_dimensions() -> None:
    with pytest.raises(ValueError, match="a density of 1 dimensions and a basis of 2"):
        Gaussian(torch.zeros(1), torch.eye(1)).expect(GaussianBasis.grid(9, 0.01))
    with pytest.raises(NotImplementedError, match="one and two dimensions, not 3"):
        TruncatedParaboloid(torch.zeros(3), torch.eye(3)).expect(GaussianBasis.grid(8, 0.01, 3))
    with pytest.raises(ValueError, match=r"k\*\*2 functions for a whole k, not 10"):
        GaussianBasis.grid(10, 0.01)
