"""Rectangular attention against the paper's equations, each written a second and naive way."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import foveate as fv
from foveate.attention.rectangular import RectangleGaze, RectangleLook, rectangle_window
from foveate.geometry import inverse, move_points, pixel_centers, random_similarity, similarity, warp

units = st.floats(0, 1)
extents = st.floats(0.05, 1)
angles = st.floats(-2 * math.pi, 2 * math.pi)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
rectangles = st.tuples(units, units, extents, extents, angles)


def numbers(*rows: tuple[float, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Center, extent and angle in float64 from rows of five numbers."""
    five = torch.tensor(rows, dtype=torch.float64)
    return five[:, :2], five[:, 2:4], five[:, 4]


def some(batch: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(batch, 5, generator=generator, dtype=torch.float64)
    return 0.2 + 0.6 * u[:, :2], 0.1 + 0.4 * u[:, 2:4], 6 * u[:, 4] - 3


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t)) if t > -700 else 0.0


def naive_position(mu: list[float], angle: float, t: tuple[float, float]) -> tuple[float, float]:
    """R_{−α}(t) of (3), about the centre of the rectangle."""
    down, right = t[0] - mu[0], t[1] - mu[1]
    cos, sin = math.cos(-angle), math.sin(-angle)
    return cos * down - sin * right + mu[0], sin * down + cos * right + mu[1]


def naive_value(
    shape: str, mu: list[float], sigma: list[float], angle: float, t: tuple[float, float], s: float
) -> float:
    t1, t2 = naive_position(mu, angle, t)
    u1, u2 = (t1 - mu[0]) / sigma[0], (t2 - mu[1]) / sigma[1]
    if shape == "rectangle":
        return sigmoid(s * (1 - u1**2)) * sigmoid(s * (1 - u2**2))  # (1), (2), (4)
    power = {"ellipse": 2, "superellipse": 4}[shape]
    return sigmoid(s * (1 - (abs(u1) ** power + abs(u2) ** power)))


def naive_window(center, extent, angle, size, sharpness: float = 6.0, shape: str = "rectangle") -> Tensor:
    maps = [
        [
            [
                naive_value(shape, mu, sigma, alpha, ((i + 0.5) / size[0], (j + 0.5) / size[1]), sharpness)
                for j in range(size[1])
            ]
            for i in range(size[0])
        ]
        for mu, sigma, alpha in zip(center.tolist(), extent.tolist(), angle.tolist(), strict=True)
    ]
    return torch.tensor(maps, dtype=torch.float64)[:, None]


# --- the window (1)-(4) -------------------------------------------------------------------------------------------


@given(first=rectangles, second=rectangles, size=sizes, sharpness=st.floats(0.1, 40))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("shape", ["rectangle", "ellipse", "superellipse"])
def test_window_against_a_loop_over_pixels(shape, first, second, size, sharpness) -> None:
    five = numbers(first, second)
    window = rectangle_window(*five, size, sharpness, shape)
    assert window.shape == (2, 1, *size)
    assert torch.allclose(window, naive_window(*five, size, sharpness, shape), atol=1e-12)


def test_sharpness_is_six_by_default() -> None:
    assert torch.equal(rectangle_window(*some(), (5, 6)), rectangle_window(*some(), (5, 6), 6.0))
    assert fv.RectangularAttention(3).look.sharpness == 6.0


@pytest.mark.parametrize("shape", ["rectangle", "ellipse", "superellipse"])
def test_window_gradients(shape: str) -> None:
    five = [t.requires_grad_() for t in some(2)]
    assert torch.autograd.gradcheck(lambda *n: rectangle_window(*n, (3, 4), 6.0, shape), five)


def test_window_is_the_bell_of_appendix_a_along_each_side() -> None:
    # far inside one side, the other side's profile is Λ(s(1 − ((t − t0)/σ)²)) alone: ½ on the rim, near 1 in the middle
    five = numbers((0.5, 0.5, 0.25, 1e3, 0.0))
    profile = rectangle_window(*five, (400, 1), sharpness=10)[0, 0, :, 0]
    rim = profile[[99, 100, 299, 300]]  # around t = 0.25 and t = 0.75
    assert torch.allclose(rim, torch.full((4,), 0.5).double(), atol=0.06)
    assert profile[200] > 0.9999
    assert profile[0] < 1e-10


def test_angle_is_counter_clockwise_as_displayed() -> None:
    window = rectangle_window(*numbers((0.5, 0.5, 0.05, 0.5, math.pi / 4)), (21, 21))[0, 0]
    assert window[5, 15] > 0.5 > window[5, 5]  # a bar along the columns, turned, points up and right
    assert window[15, 5] > 0.5 > window[15, 15]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_window_is_computed_in_float32_at_least(dtype: torch.dtype) -> None:
    five = [t.to(dtype) for t in some()]
    expected = rectangle_window(*(t.float() for t in five), (6, 7))
    with torch.autocast("cpu", torch.bfloat16):
        window = rectangle_window(*five, (6, 7))
    assert window.dtype == torch.float32
    assert torch.equal(window, expected)


huge = st.floats(-(2.0**127), 2.0**127, width=32)


@given(huge, huge, huge, huge, huge, st.sampled_from(["rectangle", "ellipse", "superellipse"]), st.floats(0.01, 1e3))
@settings(deadline=None, max_examples=300)
def test_no_finite_numbers_give_nan(mu1, mu2, sigma1, sigma2, alpha, shape, sharpness) -> None:
    five = torch.tensor([[mu1, mu2, sigma1, sigma2, alpha]], requires_grad=True)
    window = rectangle_window(five[:, :2], five[:, 2:4], five[:, 4], (3, 5), sharpness, shape)
    window.sum().backward()
    assert ((window >= 0) & (window <= 1)).all()
    assert five.grad.isfinite().all()


@pytest.mark.parametrize("extent", [0.0, 1e-30, 1e-7])
def test_a_rectangle_without_an_inside_is_empty(extent: float) -> None:
    five = torch.tensor([[0.5, 0.5, extent, extent, 0.3]], requires_grad=True)
    window = rectangle_window(five[:, :2], five[:, 2:4], five[:, 4], (3, 3))  # its centre falls on a pixel
    window.sum().backward()
    assert window.sum() <= 1.001
    assert five.grad.isfinite().all()


# --- one rectangle, many names ------------------------------------------------------------------------------------


@given(rectangle=rectangles, shape=st.sampled_from(["rectangle", "ellipse", "superellipse"]))
@settings(deadline=None)
def test_three_names_of_one_rectangle(rectangle, shape) -> None:
    mu1, mu2, sigma1, sigma2, alpha = rectangle
    five = numbers(
        rectangle, (mu1, mu2, sigma1, sigma2, alpha + math.pi), (mu1, mu2, sigma2, sigma1, alpha + math.pi / 2)
    )
    gaze = RectangleGaze.draw(*five, (6, 5), shape=shape)
    assert torch.allclose(gaze.map[0], gaze.map[1])
    assert torch.allclose(gaze.map[0], gaze.map[2])
    first = gaze.apply(lambda t: t[:1].expand_as(t))
    assert torch.allclose(first.distance(gaze), torch.zeros(3, dtype=torch.float64), atol=1e-24)
    assert first.parameter_distance(gaze)[1] == pytest.approx(math.pi**2)


@given(one=rectangles, two=rectangles)
@settings(deadline=None)
def test_distance_is_symmetric_positive_and_blind_to_names(one, two) -> None:
    (mu1, mu2, sigma1, sigma2, alpha) = two
    a, b = (RectangleGaze.draw(*numbers(r), (3, 3)) for r in (one, two))
    renamed = RectangleGaze.draw(*numbers((mu1, mu2, sigma2, sigma1, alpha - math.pi / 2)), (3, 3))
    assert torch.allclose(a.distance(b), b.distance(a))
    assert torch.allclose(a.distance(b), a.distance(renamed))
    if (a.map - b.map).abs().max() > 1e-3:
        assert a.distance(b) > 0


@given(one=rectangles, two=rectangles, step=st.floats(-1e-6, 1e-6))
@settings(deadline=None)
def test_distance_is_continuous_in_the_angle(one, two, step) -> None:
    # where the two readings of a rectangle change places, too: |Δ| is at most the slope of sin² times the step
    a, b = RectangleGaze.draw(*numbers(one), (3, 3)), RectangleGaze.draw(*numbers(two), (3, 3))
    turned = RectangleGaze.draw(b.center, b.extent, b.angle + step, (3, 3))
    assert (a.distance(b) - a.distance(turned)).abs() <= 1.01e-6


def test_distance_for_small_differences_is_the_papers() -> None:
    five = some()
    near = [t + 1e-4 * torch.randn_like(t) for t in five]
    a, b = RectangleGaze.draw(*five, (3, 3)), RectangleGaze.draw(*near, (3, 3))
    assert torch.allclose(a.distance(b), a.parameter_distance(b), rtol=1e-4)


def test_the_papers_penalty_against_its_formula() -> None:
    a, b = RectangleGaze.draw(*some(5, 1), (3, 3)), RectangleGaze.draw(*some(5, 2), (3, 3))
    for n, value in enumerate(a.parameter_distance(b)):
        first = [*a.center[n], *a.extent[n], a.angle[n]]
        second = [*b.center[n], *b.extent[n], b.angle[n]]
        assert value == pytest.approx(sum((p - q).item() ** 2 for p, q in zip(first, second, strict=True)))


def test_distances_of_several_rectangles_are_means() -> None:
    a, b = (RectangleGaze.draw(*(t.reshape(2, 3, *t.shape[1:]) for t in some(6, s)), (4, 4)) for s in (1, 2))
    for measure in (RectangleGaze.distance, RectangleGaze.parameter_distance):
        each = torch.stack([measure(a.select(k), b.select(k)) for k in range(3)])
        assert torch.allclose(measure(a, b), each.mean(0))


# --- equivariance (IV-D) ------------------------------------------------------------------------------------------


@given(
    rectangle=rectangles,
    turn=st.floats(-3.1, 3.1),
    scale=st.floats(0.3, 3),
    shift=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    shape=st.sampled_from(["rectangle", "ellipse", "superellipse"]),
)
@settings(deadline=None)
def test_the_window_of_the_moved_numbers_is_the_window_at_the_preimages(rectangle, turn, scale, shift, shape) -> None:
    five, size = numbers(rectangle), (5, 7)
    matrix = similarity(*(torch.tensor([v], dtype=torch.float64) for v in (turn, scale, shift)))
    moved = RectangleGaze.draw(*five, size, shape=shape).move(matrix)
    mu, sigma, alpha = (t[0].tolist() for t in five)
    back = inverse(matrix)
    for i in range(size[0]):
        for j in range(size[1]):
            point = torch.tensor([[(i + 0.5) / size[0], (j + 0.5) / size[1]]], dtype=torch.float64)
            t = tuple(move_points(point, back)[0].tolist())
            assert moved.map[0, 0, i, j].item() == pytest.approx(naive_value(shape, mu, sigma, alpha, t, 6.0), abs=1e-7)
    assert torch.allclose(moved.center, move_points(five[0], matrix))
    assert torch.allclose(moved.extent, scale * five[1])
    assert torch.allclose(moved.angle, five[2] + turn)


def test_moved_numbers_are_the_papers_about_the_centre() -> None:
    # δσ·R(μ − c) + c + δμ: the paper prints δσ·(R(μ − c) + c), which scales about the origin and does not fit the image
    (mu, sigma, alpha), c = some(1), 0.5
    turn, scale, shift = 0.4, 1.3, (0.1, -0.05)
    cos, sin = math.cos(turn), math.sin(turn)
    down, right = (mu[0] - c).tolist()
    expected = [
        scale * (cos * down - sin * right) + c + shift[0],
        scale * (sin * down + cos * right) + c + shift[1],
    ]
    matrix = similarity(*(torch.tensor([v], dtype=torch.float64) for v in (turn, scale, shift)))
    moved = RectangleGaze.draw(mu, sigma, alpha, (3, 3)).move(matrix)
    assert moved.center[0].tolist() == pytest.approx(expected)
    assert moved.extent[0].tolist() == pytest.approx((scale * sigma[0]).tolist())
    assert moved.angle.item() == pytest.approx(alpha.item() + turn)


def test_the_warped_window_is_the_window_of_the_moved_numbers() -> None:
    five, matrix = some(8), random_similarity(8, generator=torch.Generator().manual_seed(1)).double()
    errors = []
    for size in (16, 32, 64, 128):
        gaze = RectangleGaze.draw(*five, (size, size))
        inside = warp(torch.ones_like(gaze.map), matrix) > 0.999  # what the image knows about
        errors.append(((warp(gaze.map, matrix) - gaze.move(matrix).map).abs() * inside).max().item())
    assert errors[-1] < 6e-3
    assert all(fine < coarse / 2 for coarse, fine in pairwise(errors)), errors  # bilinear: a quarter in the limit


def test_several_rectangles_move_one_by_one() -> None:
    five = [t.reshape(2, 3, *t.shape[1:]) for t in some(6)]
    matrix = random_similarity(2).double()
    gaze = RectangleGaze.draw(*five, (6, 6))
    moved = gaze.move(matrix)
    for k in range(3):
        alone = gaze.select(k).move(matrix)
        for name in ("center", "extent", "angle"):
            assert torch.allclose(getattr(moved, name)[:, k], getattr(alone, name))


# --- several rectangles, and drawing ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["rectangle", "ellipse", "superellipse"])
def test_the_union_of_several_against_a_loop(shape: str) -> None:
    five = [t.reshape(2, 3, *t.shape[1:]) for t in some(6)]
    gaze = RectangleGaze.draw(*five, (4, 7), 6.0, shape)
    windows = torch.stack([naive_window(*(t[:, k] for t in five), (4, 7), 6.0, shape) for k in range(3)])
    naive = torch.ones(2, 1, 4, 7, dtype=torch.float64)
    for window in windows:
        naive = naive * (1 - window)
    assert gaze.map.shape == (2, 1, 4, 7)
    assert torch.allclose(gaze.map, 1 - naive)
    assert (gaze.map >= windows.max(0).values - 1e-12).all()  # a union is never less than its parts


def test_select_gives_one_of_several() -> None:
    five = [t.reshape(2, 3, *t.shape[1:]) for t in some(6)]
    gaze = RectangleGaze.draw(*five, (4, 7), 5.0, "ellipse")
    for k in range(3):
        alone = gaze.select(k)
        assert torch.allclose(alone.map, naive_window(*(t[:, k] for t in five), (4, 7), 5.0, "ellipse"))
        assert (alone.sharpness, alone.shape, alone.angle.shape) == (5.0, "ellipse", (2,))


def test_render_draws_afresh() -> None:
    gaze = RectangleGaze.draw(*some(), (3, 3), 9.0, "superellipse")
    assert torch.allclose(gaze.render((11, 8)), naive_window(*some(), (11, 8), 9.0, "superellipse"))


def test_a_rectangle_keeps_its_place_at_every_resolution() -> None:
    # pixel centres sit at (i + ½)/H: the middle one of three fine pixels is where the coarse one is
    fine, coarse = RectangleGaze.draw(*some(), (36, 45)).map, RectangleGaze.draw(*some(), (12, 15)).map
    assert torch.allclose(fine[:, :, 1::3, 1::3], coarse)


# --- the look (App. G) --------------------------------------------------------------------------------------------


def test_the_look_is_that_of_appendix_g() -> None:
    look = RectangleLook(960)
    assert [type(layer).__name__ for layer in look.features] == [
        "Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU",
    ]  # fmt: skip
    convolutions = [layer for layer in look.features if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(960, 64), (64, 128), (128, 256)]
    assert all(layer.kernel_size == 2 for layer in look.features if isinstance(layer, nn.MaxPool2d))
    assert (look.numbers.in_features, look.numbers.out_features) == (256, 5)
    sizes = []
    x = torch.zeros(1, 960, 16, 16)
    for layer in look.features:
        x = layer(x)
        sizes.append(x.shape[2])
    assert sizes == [16, 16, 8, 8, 8, 4, 4, 4]


@pytest.mark.parametrize("widths", [(8,), (8, 4), (4, 6, 8, 10)])
def test_widths_are_an_argument(widths: tuple[int, ...]) -> None:
    look = RectangleLook(3, widths)
    assert [layer.out_channels for layer in look.features if isinstance(layer, nn.Conv2d)] == list(widths)
    assert look(torch.rand(2, 3, 9, 7)).map.shape == (2, 1, 9, 7)


def test_the_look_draws_its_numbers() -> None:
    look = RectangleLook(3, count=2, sharpness=9.0, shape="ellipse")
    gaze = look(torch.randn(4, 3, 9, 7))
    drawn = RectangleGaze.draw(gaze.center, gaze.extent, gaze.angle, (9, 7), 9.0, "ellipse")
    assert torch.equal(gaze.map, drawn.map)
    assert (gaze.sharpness, gaze.shape) == (9.0, "ellipse")
    assert (gaze.center.shape, gaze.extent.shape, gaze.angle.shape) == ((4, 2, 2), (4, 2, 2), (4, 2))


def test_numbers_are_bounded_for_any_features() -> None:
    look = RectangleLook(3, count=64)  # on 8×8, where half a pixel is 0.0625
    with torch.no_grad():
        look.numbers.weight.normal_(std=100)
    gaze = look(100 * torch.randn(4, 3, 8, 8))
    assert ((gaze.center >= 0) & (gaze.center <= 1)).all()
    assert ((gaze.extent >= 0.0625) & (gaze.extent <= 1)).all()
    assert (gaze.angle.abs() <= math.pi / 2 + 1e-6).all()
    for values, low, high in ((gaze.center, 0, 1), (gaze.extent, 0.0625, 1), (gaze.angle, -1.57, 1.57)):
        assert values.min().item() == pytest.approx(low, abs=0.01)  # and the bounds are used
        assert values.max().item() == pytest.approx(high, abs=0.01)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_no_rectangle_slips_between_the_pixels(size: int) -> None:
    look = RectangleLook(3)
    for seed in range(20):
        torch.manual_seed(seed)
        with torch.no_grad():
            look.numbers.weight.normal_(std=10)
            look.numbers.bias[2:4] = -100.0
        assert look(torch.randn(4, 3, size, size)).map.amax(dim=(1, 2, 3)).min() > 1e-3


def test_the_pace_of_learning_does_not_depend_on_the_scale_of_the_features() -> None:
    look = RectangleLook(3)
    for layer in look.features:
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.bias)
    x = torch.randn(2, 3, 8, 8).abs()
    with torch.no_grad():
        look.numbers.weight.normal_()
    assert torch.allclose(look(x).center, look(1000 * x).center, atol=1e-2)


def test_told_its_coordinates_a_look_can_say_where_a_point_is_and_otherwise_it_cannot() -> None:
    # One bright pixel, far from the border: to convolutions and an average all places are alike.
    def centers(coordinates: bool) -> Tensor:
        torch.manual_seed(0)
        look = RectangleLook(1, widths=(16,), coordinates=coordinates)
        with torch.no_grad():
            look.numbers.weight.normal_(std=5)
        points = torch.zeros(2, 1, 16, 16)
        points[0, 0, 4, 4] = points[1, 0, 11, 10] = 100.0
        return look(points).center.detach()

    unknowing, told = centers(False), centers(True)
    assert torch.allclose(unknowing[0], unknowing[1], atol=1e-5)
    assert (told[0] - told[1]).abs().max() > 1e-3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 4])
def test_training_starts_from_a_map_that_covers_most_of_the_image(count: int, seed: int) -> None:
    torch.manual_seed(seed)
    gaze = RectangleLook(16, count=count)(torch.randn(8, 16, 14, 14))
    covered = (gaze.render((50, 50)) > 0.5).float().mean(dim=(1, 2, 3))
    assert (covered > 0.6).all()
    assert torch.allclose(gaze.center.reshape(8, -1, 2).mean(1), torch.full((8, 2), 0.5), atol=0.1)


def test_several_rectangles_start_apart_and_get_different_gradients() -> None:
    look = RectangleLook(4, count=3)
    gaze = look(torch.randn(2, 4, 8, 8))
    apart = torch.cdist(gaze.center[0], gaze.center[0]) + torch.eye(3)
    assert apart.min() > 0.1
    target = (pixel_centers(8, gaze.map) < 0.5).float()
    (gaze.map - target).square().sum().backward()
    first, second, third = look.numbers.bias.grad.reshape(3, 5)
    assert not torch.allclose(first, second, atol=1e-4)
    assert not torch.allclose(second, third, atol=1e-4)


def test_the_same_seed_gives_the_same_attention() -> None:
    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return fv.RectangularAttention(4)(torch.ones(1, 4, 6, 6))

    assert torch.equal(run(3), run(3))
    assert not torch.equal(run(3), run(4))


# --- the module (5), the rescaling step, Appendix B ---------------------------------------------------------------


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("combine", ["residual", "multiply", "suppress"])
def test_the_module_against_a_loop(combine: str, rescale: bool) -> None:
    attention = fv.RectangularAttention(3, combine=combine, rescale=rescale)
    x = torch.randn(2, 3, 5, 6)
    with torch.no_grad():
        f = attention.look(x).map
        output = attention(x)
    for b in range(2):
        total = sum(f[b, 0, i, j].item() for i in range(5) for j in range(6))
        for i in range(5):
            for j in range(6):
                value = f[b, 0, i, j].item() * (30 / total if rescale else 1)  # f̃ = f·HW/Σf
                for c in range(3):
                    old = x[b, c, i, j].item()
                    new = {"residual": old + value * old, "multiply": value * old, "suppress": old - value * old}
                    assert output[b, c, i, j].item() == pytest.approx(new[combine], abs=1e-5)


def test_rescaling_leaves_a_map_of_ones_and_survives_a_map_of_zeros() -> None:
    combine = fv.attention.Combine("multiply", rescale=True)
    x = torch.randn(1, 2, 3, 3)
    assert torch.equal(combine(x, torch.ones(1, 1, 3, 3)), x)
    assert torch.equal(combine(x, torch.zeros(1, 1, 3, 3)), torch.zeros_like(x))


@pytest.mark.parametrize(("combine", "direct"), [("residual", 1.0), ("multiply", 0.0)])
def test_the_gradient_of_appendix_b(combine: str, direct: float) -> None:
    # (7), (8): ∂L/∂θ = Σ ∂L/∂x̂·(direct + f)·∂x/∂θ + Σ ∂L/∂x̂·x·∂f/∂θ, both sums from Jacobians
    torch.manual_seed(0)
    attention = fv.RectangularAttention(2, widths=(3, 4), rescale=False, combine=combine).double()
    image, theta = torch.randn(1, 2, 4, 4).double(), torch.randn(3).double()

    def features(theta: Tensor) -> Tensor:
        return torch.tanh(theta[0] * image + theta[1] * image.square() + theta[2])

    weights = torch.randn(1, 2, 4, 4).double()  # L = Σ w·x̂², so that ∂L/∂x̂ = 2·w·x̂
    point = theta.clone().requires_grad_()
    (weights * attention(features(point)).square()).sum().backward()
    x, f = features(theta), attention.look(features(theta)).map
    slope = 2 * weights * attention(x)
    dx = torch.autograd.functional.jacobian(features, theta)  # (1, 2, 4, 4, 3)
    df = torch.autograd.functional.jacobian(lambda t: attention.look(features(t)).map, theta)
    naive = ((slope * (direct + f))[..., None] * dx + (slope * x)[..., None] * df).sum(dim=(0, 1, 2, 3))
    assert torch.allclose(point.grad, naive.detach(), atol=1e-8)


def test_with_the_residual_connection_positions_outside_the_support_still_teach() -> None:
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    map = rectangle_window(*(t.float() for t in numbers((0.1, 0.1, 0.05, 0.05, 0.0))), (8, 8))
    for mode, teaches in (("residual", True), ("multiply", False)):
        (gradient,) = torch.autograd.grad(fv.attention.Combine(mode)(x, map).sum(), x)
        assert (gradient[:, :, 5:, 5:].abs().min() > 0.5).item() is teaches


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 2])
def test_autocast_keeps_the_numbers_in_float32(dtype: torch.dtype, count: int) -> None:
    attention = fv.RectangularAttention(4, count=count)
    x = torch.randn(2, 4, 8, 8)
    with torch.autocast("cpu", dtype):
        gaze, output = attention.look(x), attention(x.to(dtype))
    for value in (gaze.map, gaze.center, gaze.extent, gaze.angle):
        assert value.dtype == torch.float32
    assert output.dtype == dtype
    assert torch.equal(gaze.map, RectangleGaze.draw(gaze.center, gaze.extent, gaze.angle, (8, 8)).map)
    assert torch.allclose(output.float(), attention(x), atol=0.1)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (3, 3), (16, 9)])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 3])
def test_any_shape_in_any_memory_format(size: tuple[int, int], batch: int, count: int) -> None:
    attention = fv.RectangularAttention(4, count=count)
    x = torch.randn(batch, 4, *size)
    output = attention(x)
    last = attention(x.contiguous(memory_format=torch.channels_last))
    strided = attention(torch.randn(batch, 4, *size[::-1]).mT.copy_(x))
    assert output.shape == x.shape
    assert output.isfinite().all()
    assert torch.allclose(last, output, atol=1e-6)
    assert torch.allclose(strided, output, atol=1e-6)
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels must be positive, not 0"),
        ({"sharpness": 0.0}, "sharpness must be positive"),
        ({"sharpness": float("nan")}, "sharpness must be positive"),
        ({"count": 0}, "count must be positive"),
        ({"shape": "star"}, "shape must be 'rectangle', 'ellipse' or 'superellipse', not 'star'"),
        ({"combine": "add"}, "combine must be 'multiply', 'residual' or 'suppress', not 'add'"),
        ({"widths": ()}, "widths must name at least one"),
        ({"widths": (64, 0)}, "widths must be positive"),
    ],
)
def test_bad_options_say_what_was_expected(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fv.RectangularAttention(**{"channels": 4, **options})
