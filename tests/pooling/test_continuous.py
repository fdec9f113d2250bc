"""Continuous pooling against integrals on a fine grid, and what every pooling promises."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from scored import scored

import foveate as fv
from foveate.densities import Gaussian, GaussianBasis, TruncatedParaboloid, grid_points
from foveate.geometry import similarity
from foveate.pooling import ContinuousPool
from foveate.pooling.value import SIZES, Regressions, regression

KINDS = {
    "softmax": {"alpha": 1},
    "sparsemax": {"alpha": 2},
    "mixture": {"alpha": 1, "modes": 2, "steps": 3},
    "sparse mixture": {"alpha": 2, "modes": 4, "steps": 3},
    "selected": {"most": 3, "steps": 3, "penalty": 5.0},
}


def by_hand(pool: ContinuousPool, x: torch.Tensor, fine: int = 400) -> torch.Tensor:
    """∫ p(t) Bψ(t) dt for each image, B by the normal equations of continuous (3.17) and the integral by a sum."""
    look, (height, width) = pool.look, x.shape[2:]
    contexts = []
    for image in x:
        p = F.softmax(image.flatten(1).T @ look.score.last.weight[0], 0)
        t = torch.tensor(
            [[(i + 0.5) / height, (j + 0.5) / width] for i in range(height) for j in range(width)]
        ).double()
        mean = (p[:, None] * t).sum(0)
        covariance = sum(p[n] * torch.outer(t[n] - mean, t[n] - mean) for n in range(len(t)))
        if look.alpha == 1:
            density = Gaussian(mean, covariance)
        else:
            density = TruncatedParaboloid(mean, 9 * torch.pi * covariance.det().sqrt() * covariance)  # (4.6)
        down, across = height - height // 2, width - width // 2  # a square of twice the side, zero outside
        padded = F.pad(image, (across, across, down, down))
        where = [
            [(i - down + 0.5) / height, (j - across + 0.5) / width]
            for i in range(padded.shape[1])
            for j in range(padded.shape[2])
        ]
        f = look.basis.double()(torch.tensor(where, dtype=torch.float64)).T  # (N, L)
        gram = f @ f.T + look.regressions.ridge * torch.eye(len(f), dtype=torch.float64)
        b = padded.flatten(1) @ f.T @ torch.linalg.inv(gram)
        points = 3 * grid_points((fine, fine), t[0]) - 1  # the plane around the image
        values = b @ look.basis(points).T
        contexts.append((values * density.pdf(points)).sum(1) * 9 / fine**2)
    return torch.stack(contexts)


@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize("size", [(6, 6), (5, 8)])
def test_the_context_is_the_integral_of_the_value_function(alpha: int, size: tuple[int, int]) -> None:
    pool = scored(ContinuousPool(3, alpha=alpha, basis=16)).double()
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    assert torch.allclose(pool(x), by_hand(pool, x), rtol=1e-3, atol=1e-3)


def test_the_value_function_is_the_ridge_regression() -> None:
    basis, h = GaussianBasis.grid(9, 0.03), torch.randn(4, 30, dtype=torch.float64)
    g = regression(basis, (5, 6), ridge=0.2, padding=False)
    f = basis.double()(grid_points((5, 6), h)).mT
    b = (h @ g).requires_grad_()
    loss = (b @ f - h).square().sum() + 0.2 * b.square().sum()  # (3.17): its minimiser has no gradient
    (gradient,) = torch.autograd.grad(loss, b)
    assert gradient.abs().max() < 1e-8


def test_with_padding_the_value_function_vanishes_outside() -> None:
    basis, ones = GaussianBasis.grid(100, 0.004), torch.ones(1, 196, dtype=torch.float64)
    outside = torch.tensor([[-0.1, 0.5], [0.5, 1.12], [1.15, 1.1]], dtype=torch.float64)
    inside = torch.tensor([[0.5, 0.5], [0.2, 0.7]], dtype=torch.float64)
    value = lambda g, t: (ones @ g) @ basis.double()(t).mT  # noqa: E731
    padded = regression(basis, (14, 14))
    assert value(padded, outside).abs().max() < 0.15
    assert (value(padded, inside) - 1).abs().max() < 0.05


@pytest.mark.parametrize(("size", "variance", "error"), [((14, 14), None, 0.03), ((7, 7), None, 0.1)])
def test_by_default_a_constant_image_has_its_constant_as_context(size, variance: float | None, error: float) -> None:
    pool = ContinuousPool(2, variance=variance)
    torch.nn.init.zeros_(pool.look.score.last.weight)
    pool.look.score.last.weight.data[0, 0] = 40.0
    x = torch.ones(8, 2, *size)
    rows, columns = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in size), indexing="ij")
    x[:, 0] = -(rows**2 + columns**2)  # look at a small middle
    assert (pool(x)[:, 1] - 1).abs().max() < error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (7, 4)])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch_and_size_and_finite_gradients(kind: str, size: tuple[int, int], batch: int) -> None:
    pool = scored(ContinuousPool(5, **KINDS[kind]))
    x = torch.randn(batch, 5, *size, requires_grad=True)
    gaze = pool.look(x)
    pool(x).square().sum().backward()
    assert gaze.map.shape == gaze.weights.shape == (batch, 1, *size)
    assert x.grad.isfinite().all()
    assert gaze.map.isfinite().all()
    assert torch.allclose(gaze.share.sum(1), torch.ones(batch), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scores", ["one-hot", "uniform", "line", "huge"])
def test_degenerate_scores(kind: str, scores: str) -> None:
    pool, x = ContinuousPool(1, **KINDS[kind]), torch.zeros(2, 1, 6, 6)
    pool.look.score.last.weight.data.fill_(1.0)
    if scores == "one-hot":
        x[:, 0, 2, 3] = 200.0
    elif scores == "line":
        x[:, 0, 2] = 200.0
    elif scores == "huge":
        x = 1e4 * torch.randn(2, 1, 6, 6)
    x.requires_grad_()
    gaze = pool.look(x)
    (pool(x).sum() + gaze.map.sum()).backward()
    assert gaze.map.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [1, 2])
def test_gradcheck(alpha: int) -> None:
    pool = scored(ContinuousPool(2, alpha=alpha, basis=9)).double()
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pool, (x,), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_densities_in_float32(dtype: torch.dtype) -> None:
    pool, x = scored(ContinuousPool(8, alpha=2)), torch.randn(2, 8, 6, 6)
    with torch.autocast("cpu", dtype):
        gaze, context = pool.look(x), pool(x.to(dtype))
    assert gaze.map.dtype == gaze.covariances.dtype == torch.float32
    assert torch.allclose(context.float(), pool(x), atol=0.05)


def test_sparse_densities_have_exact_zeros_and_are_drawn_at_any_size() -> None:
    pool, x = ContinuousPool(1, alpha=2), torch.zeros(1, 1, 14, 14)
    pool.look.score.last.weight.data.fill_(1.0)
    x[0, 0, 3:6, 8:11] = 9.0
    gaze = pool.look(x)
    drawn = gaze.render((140, 140))
    assert 0.02 < (drawn > 0).float().mean() < 0.2
    row, column = divmod(int(drawn.argmax()), 140)
    assert (row / 140, column / 140) == (pytest.approx(4.5 / 14, abs=0.02), pytest.approx(9.5 / 14, abs=0.02))
    assert fv.Gaze.join([gaze, gaze]).map.shape == (2, 1, 14, 14)
    assert len(gaze.detach().density.batch_shape) == 1


@pytest.mark.parametrize("kind", ["softmax", "sparsemax", "mixture"])
def test_the_gaze_moves_with_the_image(kind: str) -> None:
    pool, x = scored(ContinuousPool(3, **KINDS[kind])), 3 * torch.randn(2, 3, 9, 9)
    gaze = pool.look(x)
    turn = similarity(torch.full((2,), torch.pi / 2), torch.ones(2), torch.zeros(2, 2))
    moved = gaze.move(turn)
    assert torch.allclose(moved.render((60, 60)), gaze.render((60, 60)).rot90(1, (2, 3)), atol=1e-4)
    assert (moved.distance(gaze) > 0).all()
    assert gaze.distance(gaze).max() < 1e-5


@pytest.mark.parametrize("alpha", [1, 2])
def test_rims_are_ellipses_that_figures_know(alpha: int) -> None:
    rims = pytest.importorskip("foveate.figures").rims
    gaze = scored(ContinuousPool(3, alpha=alpha)).look(3 * torch.randn(2, 3, 9, 9)).detach()
    rim = torch.as_tensor(rims(gaze, 1)[0])
    inside = gaze.density.pdf(rim)[1]
    expected = (
        0 if alpha == 2 else 0.5 * gaze.density.pdf(gaze.center)[1, 1]
    )  # half the mass is where p > half its peak
    assert torch.allclose(inside, torch.full_like(inside, float(expected)), rtol=1e-3, atol=2e-3)


def test_signals() -> None:
    pool = ContinuousPool(4, dimensions=1, basis=20)
    x = torch.zeros(1, 4, 60)
    x[0, 1, 40:46] = 1.0
    pool.look.score.last.weight.data = 12 * torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    gaze = pool.look(x)
    assert gaze.map.shape == (1, 1, 1, 60)
    assert int(gaze.render((1, 600)).argmax()) == pytest.approx(430, abs=8)
    assert 0.7 < pool(x)[0, 1] < 1.3
    with pytest.raises(ValueError, match="has 1 dimensions"):
        pool(torch.zeros(1, 4, 6, 6))


# --- what is remembered of the regression -------------------------------------------------------------------------


def test_the_regression_is_made_once_for_each_size_and_does_not_grow_for_ever(monkeypatch) -> None:
    pool, made = scored(ContinuousPool(2, basis=9)), []
    original = Regressions._make
    monkeypatch.setattr(
        Regressions, "_make", lambda self, b, size, like: made.append(size) or original(self, b, size, like)
    )
    for _ in range(2):
        for n in (3, 4, 5):
            pool(torch.randn(1, 2, n, n))
    assert made == [(3, 3), (4, 4), (5, 5)]
    for n in range(6, 6 + 2 * SIZES):
        pool(torch.randn(1, 2, n, 3))
        pool(torch.randn(1, 2, 3, 3))  # what is used stays
    assert made.count((3, 3)) == 1
    assert len(pool.look.regressions.known) == SIZES
    assert list(pool.state_dict()) == ["look.score.last.weight", "look.score.last.bias"]


def test_copies_and_pickles() -> None:
    pool, x = scored(ContinuousPool(2, basis=9)), torch.randn(1, 2, 5, 5)
    before = pool(x)
    assert torch.equal(copy.deepcopy(pool)(x), before)
    twin = pickle.loads(pickle.dumps(pool))
    assert len(twin.look.regressions.known) == 0
    assert torch.equal(twin(x), before)
    assert pool.double()(x.double()).dtype == torch.float64
    assert torch.allclose(pool(x.double()), before.double(), atol=1e-5)


def test_a_learned_basis_is_not_remembered() -> None:
    pool = scored(ContinuousPool(2, basis=9))
    centers = torch.nn.Parameter(pool.look.basis.centers.clone())
    del pool.look.basis.centers
    pool.look.basis.centers = centers
    pool(torch.randn(1, 2, 5, 5)).sum().backward()
    assert centers.grad.abs().sum() > 0
    assert len(pool.look.regressions.known) == 0


def test_errors_teach() -> None:
    for options, message in (
        ({"alpha": 3}, r"alpha must be 1 \(Gaussians\)"),
        ({"modes": 0}, "modes and most must be positive"),
        ({"ridge": 0.0}, "ridge and variance must be positive"),
        ({"basis": 50}, "not 50"),
    ):
        with pytest.raises(ValueError, match=message):
            ContinuousPool(4, **options)
