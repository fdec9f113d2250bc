import math

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from torch import Tensor

from foveate import Gaze
from foveate.attention.rectangular import RectangleGaze, rectangle_window
from foveate.figures.overlay import contour, draw, heat, image_list, outline, rims, scaled_map, spotlight


def rectangle(shape: str = "rectangle", angle: float = 0.5, size: tuple[int, int] = (7, 7)) -> RectangleGaze:
    center, extent = torch.tensor([[0.45, 0.6]]), torch.tensor([[0.12, 0.25]])
    return RectangleGaze.draw(center, extent, torch.tensor([angle]), size, shape=shape)  # type: ignore[arg-type]


def axes(height: float = 2.0, width: float = 2.0):
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasAgg(figure)
    return figure.add_axes((0, 0, 1, 1))


def pixels(ax) -> np.ndarray:
    ax.figure.canvas.draw()
    return np.asarray(ax.figure.canvas.buffer_rgba())[..., :3] / 255


def test_corners_by_hand() -> None:
    corners = rims(rectangle(angle=math.pi / 6))[0]
    for (down, right), corner in zip([(-1, -1), (-1, 1), (1, 1), (1, -1)], corners, strict=True):
        y, x = 0.12 * down, 0.25 * right  # x to the right and y down, turned counter-clockwise as displayed
        cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
        assert corner == pytest.approx([0.45 + y * cos - x * sin, 0.6 + x * cos + y * sin], abs=1e-6)


@pytest.mark.parametrize("shape", ["rectangle", "ellipse", "superellipse"])
@pytest.mark.parametrize("size", [(200, 200), (120, 260)])
def test_rim_is_the_half_level_of_the_window(shape: str, size: tuple[int, int]) -> None:
    gaze = rectangle(shape, angle=-0.7)
    sharp = rectangle_window(gaze.center, gaze.extent, gaze.angle, size, sharpness=200.0, shape=gaze.shape)[0, 0] > 0.5
    xy = rims(gaze)[0][:, ::-1] * (size[1], size[0])
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    inside = Outline(xy).contains_points(np.stack([columns.ravel(), rows.ravel()], axis=1)).reshape(size)
    both, either = (inside & sharp.numpy()).sum(), (inside | sharp.numpy()).sum()
    assert both / either > 0.97


def test_rims_of_several_and_of_none() -> None:
    several = RectangleGaze.draw(torch.rand(2, 3, 2), torch.rand(2, 3, 2), torch.rand(2, 3), (5, 5))
    assert len(rims(several, 1)) == 3
    assert np.allclose(rims(several, 1)[2].mean(0), several.center[1, 2], atol=1e-6)
    assert rims(Gaze(torch.rand(2, 1, 5, 5))) == []


def test_outline_is_drawn_where_the_rim_is_on_an_image_that_is_not_square() -> None:
    ax = axes(height=1.0, width=2.0)
    gaze = rectangle(angle=0.0)
    draw(ax, torch.zeros(3, 100, 200), gaze, how="outline")
    seen = pixels(ax)
    assert seen.shape[:2] == (100, 200)
    top, left, right = 0.45 - 0.12, 0.6 - 0.25, 0.6 + 0.25
    for row, column in [(top, 0.5), (0.4, left), (0.4, right), (0.45, 0.6)]:  # sides and centre
        around = seen[round(row * 100) - 2 : round(row * 100) + 2, round(column * 200) - 2 : round(column * 200) + 2]
        assert around.max() > 0.9
    assert seen[round(0.4 * 100), round(0.5 * 200)].max() < 0.1
    assert seen[5, 5].max() < 0.1


def test_outline_stays_on_the_image() -> None:
    ax = axes(height=1.0, width=2.0)
    wide = RectangleGaze.draw(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.2, 0.9]]), torch.zeros(1), (7, 7))
    draw(ax, torch.zeros(3, 10, 10), wide, how="outline")
    ax.set(xlim=(-5, 15), facecolor="black")
    assert pixels(ax)[:, :45].max() < 0.1


def test_outline_draws_nothing_without_a_rim() -> None:
    ax = axes()
    outline(ax, Gaze(torch.rand(1, 1, 4, 4)), (8, 8))
    assert not ax.patches
    assert not ax.lines


@pytest.mark.parametrize("how", ["overlay", "spotlight"])
def test_brighter_inside(how: str) -> None:
    ax = axes()
    draw(ax, torch.full((3, 64, 64), 0.4), rectangle(), how=how)
    seen = pixels(ax)
    inside, outside = seen[90, 120], seen[10, 10]
    if how == "spotlight":
        assert inside == pytest.approx([0.4] * 3, abs=0.02)
        assert outside.max() < 0.2
    else:
        assert inside[0] - inside[2] > 0.2  # warm where it looked
        assert outside == pytest.approx([0.4] * 3, abs=0.02)  # the image itself elsewhere


def test_blends_by_hand() -> None:
    image, nothing, all = torch.rand(4, 5, 3).numpy(), np.zeros((4, 5)), np.ones((4, 5))
    assert np.allclose(spotlight(image, all), image)
    grey = image @ [0.299, 0.587, 0.114]
    assert np.allclose(heat(image, nothing), 0.5 * image + 0.5 * grey[..., None], atol=1e-6)
    assert spotlight(image, nothing).max() < 0.3
    assert heat(image, all).min() >= 0
    assert heat(image, all).max() <= 1


def test_map_is_drawn_at_its_place_and_scaled() -> None:
    map = torch.zeros(2, 1, 4, 4)
    map[1, 0, 0, 3] = 0.02
    scaled = scaled_map(Gaze(map), (40, 80), index=1)
    assert scaled.shape == (40, 80)
    assert scaled.max() == pytest.approx(1)
    assert np.unravel_index(scaled.argmax(), scaled.shape)[0] < 10
    assert np.unravel_index(scaled.argmax(), scaled.shape)[1] >= 60
    assert scaled_map(Gaze(map), (4, 4), index=0).max() == 0
    with pytest.raises(ValueError, match="the gaze is of 2 images"):
        scaled_map(Gaze(map), (4, 4), index=2)


def test_contour_lies_where_the_values_cross_the_level() -> None:
    ax = axes()
    values = torch.zeros(10, 20)
    values[:, 10:] = 1.0
    contour(ax, values, (100, 50), levels=(0.5,))
    points = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    assert np.isclose(points[:, 0].min(), 25.0, atol=0.1)  # the middle of 50 columns
    assert points[:, 1].min() >= 0
    assert points[:, 1].max() <= 100


def test_contour_of_a_constant_map_is_no_line() -> None:
    ax = axes()
    draw(ax, torch.rand(3, 16, 16), Gaze(torch.zeros(1, 1, 4, 4)), how="contour")
    assert not ax.collections


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 16, 16), (3, 9, 31), (3, 1, 1), (3, 1500, 40)])
def test_any_image(shape: tuple[int, ...]) -> None:
    ax = axes()
    mask = torch.zeros(1, *shape[1:])
    draw(ax, torch.rand(shape), rectangle(), "overlay+outline+contour", mask=mask, truth=rectangle("ellipse"))
    assert ax.get_xlim() == (0, shape[2])
    assert ax.get_ylim() == (shape[1], 0)
    pixels(ax)


def test_masks_and_truth_are_drawn() -> None:
    ax = axes()
    mask = torch.zeros(1, 32, 32)
    mask[:, 8:24, 8:24] = 1
    draw(ax, torch.zeros(3, 32, 32), mask=mask)
    seen = pixels(ax)
    assert seen[100, 48:53].max() > 0.5
    assert seen[100, 100].max() < 0.05
    draw(ax, torch.zeros(3, 32, 32), truth=rectangle())
    assert len(ax.patches) == 1


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        (torch.zeros(0, 3, 8, 8), "no images"),
        ([], "no images"),
        (torch.zeros(8, 8), r"shape \(3, H, W\)"),
        (torch.zeros(2, 4, 8, 8), r"shape \(3, H, W\)"),
        (torch.zeros(3, 0, 8), r"shape \(3, H, W\)"),
        (torch.randn(3, 8, 8) * 3, "undo its normalisation"),
        (torch.full((3, 8, 8), torch.nan), "values in"),
    ],
)
def test_bad_images(images: Tensor | list[Tensor], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        image_list(images)


def test_bytes_and_grey_images() -> None:
    (image,) = image_list(torch.full((1, 4, 5), 255, dtype=torch.uint8))
    assert torch.equal(image, torch.ones(3, 4, 5))


def test_unknown_way_of_drawing() -> None:
    with pytest.raises(ValueError, match="overlay, spotlight, outline, contour"):
        draw(axes(), torch.rand(3, 8, 8), rectangle(), how="overlay+halo")
