"""Discrete pooling: each transform against its definition, and what every pooling promises."""

import entmax
import pytest
import torch
from scored import scored

import foveate as fv
from foveate.pooling import DiscretePool
from foveate.pooling.discrete import _entmax

TRANSFORMS = ["softmax", "sparsemax", "entmax15", "entmax", "tvmax"]


def weights_by_bisection(scores: torch.Tensor, alpha: float) -> torch.Tensor:
    """p = exp_{2−α}(f − A) of continuous (3.6), by bisection on A; softmax where α = 1."""
    if alpha == 1:
        return scores.exp() / scores.exp().sum()
    low, high = scores.max() - 1, scores.max() + 1 / (alpha - 1)
    for _ in range(200):
        middle = (low + high) / 2
        p = (1 + (alpha - 1) * (scores - middle)).clamp_min(0) ** (1 / (alpha - 1))
        low, high = (middle, high) if p.sum() > 1 else (low, middle)
    return p


@pytest.mark.parametrize(
    ("transform", "alpha"), [("softmax", 1), ("sparsemax", 2), ("entmax15", 1.5), ("entmax", None)]
)
def test_the_context_is_the_average_under_the_transform(transform: str, alpha: float | None) -> None:
    pool = scored(DiscretePool(4, transform)).double()
    x = 3 * torch.randn(3, 4, 5, 2, dtype=torch.float64)
    alpha = pool.look.alpha.item() if alpha is None else alpha
    for image, context in zip(x, pool(x), strict=True):
        scores = torch.stack([image[:, i, j] @ pool.look.score.last.weight[0] for i in range(5) for j in range(2)])
        # entmax's own convention is exp of f/(…): p = [(α−1)f − τ]₊^{1/(α−1)}, which is (3.6) with τ for A
        p = weights_by_bisection(scores, alpha)
        assert torch.allclose(context, image.flatten(1) @ p, atol=1e-5)


def test_a_query_enters_the_hidden_layer() -> None:
    pool = scored(DiscretePool(4, hidden=3, query=2))
    x, query = torch.randn(2, 4, 3, 3), torch.randn(2, 2)
    score = pool.look.score
    context = []
    for image, q in zip(x, query, strict=True):
        f = [
            (score.last(torch.relu(score.hidden(image[:, i, j]) + score.query.weight @ q)))[0]
            for i in range(3)
            for j in range(3)
        ]
        context.append(image.flatten(1) @ torch.stack(f).softmax(0))
    assert torch.allclose(pool(x, query), torch.stack(context), atol=1e-6)
    with pytest.raises(ValueError, match="needs one"):
        pool(x)
    with pytest.raises(ValueError, match="no query was built in"):
        DiscretePool(4)(x, query)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (7, 4), (9,)])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_batch_and_size_and_finite_gradients(transform: str, size: tuple[int, ...], batch: int) -> None:
    pool = scored(DiscretePool(5, transform))
    x = torch.randn(batch, 5, *size, requires_grad=True)
    gaze = pool.look(x)
    pool(x).square().sum().backward()
    assert gaze.map.shape == (batch, 1, *((1, *size) if len(size) == 1 else size))
    assert torch.isfinite(x.grad).all()
    assert torch.allclose(gaze.weights.sum(dim=(1, 2, 3)), torch.ones(batch), atol=1e-5)
    assert batch == 0 or gaze.map.amax() == 1


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_the_weights_in_float32(transform: str, dtype: torch.dtype) -> None:
    pool, x = scored(DiscretePool(8, transform)), torch.randn(2, 8, 6, 6)
    with torch.autocast("cpu", dtype):
        gaze, context = pool.look(x), pool(x.to(dtype))
    assert gaze.weights.dtype == torch.float32
    assert torch.allclose(context.float(), pool(x), atol=0.05)


@pytest.mark.parametrize("transform", ["sparsemax", "entmax15", "entmax"])
def test_gradients_against_finite_differences_and_the_package(transform: str) -> None:
    scores = torch.randn(3, 9, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor({"sparsemax": 2.0, "entmax15": 1.5, "entmax": 1.3}[transform], dtype=torch.float64)
    alpha.requires_grad_(transform == "entmax")
    assert torch.autograd.gradcheck(lambda s, a: _entmax(s, a, transform), (scores, alpha), atol=1e-4)
    theirs = entmax.entmax_bisect(scores, alpha.expand(3, 1), dim=1, n_iter=100)
    ours = _entmax(scores, alpha, transform)
    wanted = [scores, alpha] if alpha.requires_grad else [scores]
    for a, b in zip(*(torch.autograd.grad(p.square().sum(), wanted) for p in (ours, theirs)), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_learned_alpha_learns() -> None:
    pool = scored(DiscretePool(4, "entmax"))
    pool(torch.randn(3, 4, 4, 4)).square().sum().backward()
    assert pool.look.power.grad.abs() > 0
    assert 1 < pool.look.alpha < 2


def test_the_grid_is_drawn_in_cells_and_moved_with_the_image() -> None:
    pool, x = scored(DiscretePool(4, "sparsemax")), 5 * torch.randn(1, 4, 3, 5)
    gaze = pool.look(x)
    drawn = gaze.render((12, 20))
    assert torch.equal(drawn, gaze.map.repeat_interleave(4, 2).repeat_interleave(4, 3))
    quarter = fv.geometry.similarity(torch.tensor([torch.pi]), torch.ones(1), torch.zeros(1, 2))
    assert torch.allclose(gaze.move(quarter).map, gaze.map.flip(2, 3), atol=1e-5)
    assert gaze.move(quarter).weights.sum().item() == pytest.approx(1, abs=1e-5)


def test_errors_teach() -> None:
    with pytest.raises(ValueError, match="must be one of softmax, sparsemax"):
        DiscretePool(4, "sofmax")
    with pytest.raises(ValueError, match=r"has shape \(B, C, H, W\)"):
        DiscretePool(4)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="channels must be positive"):
        DiscretePool(0)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_training_starts_from_a_look_at_everything(transform: str) -> None:
    """The average of all positions, and a gradient from each of them, sparse transforms included."""
    pool, x = DiscretePool(4, transform, hidden=6), torch.randn(2, 4, 5, 7)
    torch.testing.assert_close(pool(x), x.mean(dim=(2, 3)))
    pool(x).square().sum().backward()
    assert (pool.look.score.last.weight.grad != 0).any()
