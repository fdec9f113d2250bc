import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from foveate import Gaze
from foveate.attention.rectangular import RectangleGaze
from foveate.figures import animate, grid, measure, save, sequence, sorted_strip
from foveate.geometry import similarity


def gazes(count: int) -> dict[str, Gaze]:
    rectangles = RectangleGaze.draw(torch.rand(count, 2), torch.rand(count, 2) / 2, torch.rand(count), (7, 7))
    return {"position-wise": Gaze(torch.rand(count, 1, 7, 7)), "rectangular": rectangles}


def texts(figure: Figure) -> list[str]:
    found = [part for ax in figure.axes for part in (ax.get_title(), ax.get_ylabel())]
    return [text for text in found if text]


def test_rows_are_gazes_and_columns_are_images(tmp_path: Path) -> None:
    captions = ["été", "$5$ & <b>", "柴犬" * 20]
    figure = grid(torch.rand(3, 3, 24, 24), gazes(3), captions=captions, masks=torch.ones(3, 1, 24, 24), title="T")
    assert len(figure.axes) == 9
    assert figure.axes[0].get_subplotspec().get_geometry()[:2] == (3, 3)
    assert texts(figure)[:3] == ["été", "image", "$5$ & <b>"]
    assert texts(figure)[3].endswith("…")
    assert texts(figure)[4:] == ["position-wise", "rectangular"]
    assert len(figure.axes[6].patches) == 1  # the rectangle's rim
    assert len(figure.axes[3].patches) == 0


def test_rows_are_images(tmp_path: Path) -> None:
    figure = grid(torch.rand(2, 1, 24, 32), gazes(2), images_along="rows", captions=["a", "b"])
    assert figure.axes[0].get_subplotspec().get_geometry()[:2] == (2, 3)
    assert texts(figure) == ["image", "a", "position-wise", "rectangular", "b"]


def test_each_cell_shows_its_own_image_and_gaze() -> None:
    images = torch.stack([torch.full((3, 192, 192), level) for level in (0.2, 0.8)])
    maps = torch.zeros(2, 1, 2, 2)
    maps[0, 0, 0, 0] = maps[1, 0, 1, 1] = 1
    figure = grid(images, {"p": Gaze(maps)}, how="spotlight")
    shown = [np.asarray(ax.images[0].get_array()) for ax in figure.axes]
    assert shown[0][50, 50] == pytest.approx([0.2] * 3)
    assert shown[1][50, 50] == pytest.approx([0.8] * 3)
    assert shown[2][20, 20] == pytest.approx([0.2] * 3)
    assert shown[2][170, 170].max() < 0.1
    assert shown[3][170, 170] == pytest.approx([0.8] * 3)


def test_images_of_different_sizes_stand_in_equal_cells() -> None:
    figure = grid([torch.rand(3, 20, 40), torch.rand(3, 40, 20), torch.rand(3, 30, 30)], gazes(3))
    ratios = {round(abs(np.diff(ax.get_ylim())[0]) / abs(np.diff(ax.get_xlim())[0]), 3) for ax in figure.axes}
    assert ratios == {1.0}


def test_one_way_of_drawing_for_each() -> None:
    figure = grid(torch.rand(1, 3, 9, 9), gazes(1), how={"position-wise": "contour", "rectangular": "overlay"})
    assert len(figure.axes[1].collections) == 1
    assert len(figure.axes[2].patches) == 0


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="no images"):
        grid(torch.zeros(0, 3, 8, 8), gazes(0))
    with pytest.raises(ValueError, match="'rectangular' is for 2 images, but 3 are drawn"):
        grid(torch.rand(3, 3, 8, 8), {"rectangular": gazes(2)["rectangular"]})
    with pytest.raises(ValueError, match="'captions' is for 1 images"):
        grid(torch.rand(3, 3, 8, 8), gazes(3), captions=["one"])
    with pytest.raises(ValueError, match="columns"):
        grid(torch.rand(1, 3, 8, 8), gazes(1), images_along="diagonal")
    with pytest.raises(ValueError, match="nothing to draw"):
        grid(torch.rand(1, 3, 8, 8), {}, first="")


@pytest.mark.parametrize("suffix", [".png", ".gif"])
def test_animation_has_a_frame_for_each_image(tmp_path: Path, suffix: str) -> None:
    steps = torch.linspace(0, 1, 4)
    moves = similarity(steps, 1 - steps / 2, torch.zeros(4, 2))
    first = RectangleGaze.draw(torch.full((4, 2), 0.5), torch.tensor([[0.2, 0.4]] * 4), torch.zeros(4), (7, 7))
    path = animate(tmp_path / f"moves{suffix}", torch.rand(4, 3, 24, 24), {"rectangular": first.move(moves)})
    with Image.open(path) as image:
        assert image.n_frames == 4
        frames = []
        for k in range(4):
            image.seek(k)
            frames.append(np.asarray(image.convert("RGB")).astype(float))
    assert all(np.abs(a - b).max() > 50 for a, b in pairwise(frames))
    assert all(frame[0].min() == 255 for frame in frames)  # no name is cut off at the top
    assert list(tmp_path.iterdir()) == [path]


def test_animation_there_and_back(tmp_path: Path) -> None:
    path = animate(tmp_path / "a.png", torch.rand(4, 3, 9, 9), gazes(4), there_and_back=True)
    with Image.open(path) as image:
        assert image.n_frames == 6  # 0 1 2 3 2 1


def test_animation_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.png or \.gif"):
        animate(tmp_path / "a.mp4", torch.rand(2, 3, 9, 9), gazes(2))


def test_sequence_leaves_out_the_images() -> None:
    assert texts(sequence(torch.rand(5, 3, 9, 9), gazes(5))) == ["position-wise", "rectangular"]


def test_measure_against_the_numbers() -> None:
    center, extent, angle = torch.rand(5, 2), torch.rand(5, 2), torch.rand(5)
    gaze = RectangleGaze.draw(center, extent, angle, (7, 7))
    assert torch.equal(measure(gaze, "center.row"), center[:, 0])
    assert torch.equal(measure(gaze, "extent.col"), extent[:, 1])
    assert torch.equal(measure(gaze, "angle"), angle)
    assert torch.allclose(measure(gaze, "center.row * center.col"), center[:, 0] * center[:, 1])
    assert torch.allclose(measure(gaze, "area"), 4 * extent[:, 0] * extent[:, 1])
    several = RectangleGaze.draw(torch.rand(5, 3, 2), torch.rand(5, 3, 2), torch.rand(5, 3), (7, 7))
    assert torch.allclose(measure(several, "center.col"), several.center[:, :, 1].mean(1))


def test_measure_the_centre_of_a_map() -> None:
    map = torch.zeros(1, 1, 4, 10)
    map[0, 0, 3, 2] = 0.7
    assert measure(Gaze(map), "center.row").item() == pytest.approx(3.5 / 4)
    assert measure(Gaze(map), "center.col").item() == pytest.approx(2.5 / 10)
    assert math.isfinite(measure(Gaze(0 * map), "center.col").item())


@pytest.mark.parametrize("name", ["middle", "center", "center.x", "angle.row", "map.row", "sharpness", ""])
def test_unknown_parameters_name_the_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"center\.row, center\.col, map, extent\.row"):
        measure(gazes(2)["rectangular"], name)
    with pytest.raises(ValueError, match="cannot be sorted by 'angle'"):
        measure(Gaze(torch.rand(2, 1, 3, 3)), "angle")


def test_sorted_strip_shows_both_ends_in_order() -> None:
    columns = torch.tensor([0.5, 0.1, 0.9, 0.3, 0.7])
    center = torch.stack([torch.full((5,), 0.5), columns], dim=1)
    gaze = RectangleGaze.draw(center, torch.full((5, 2), 0.2), torch.zeros(5), (7, 7))
    figure = sorted_strip(columns[:, None, None, None].expand(5, 3, 20, 20), gaze, "center.col", count=2)
    assert [ax.get_title() for ax in figure.axes] == ["0.10", "0.30", "0.70", "0.90"]
    shown = [float(np.asarray(ax.images[0].get_array()).mean()) for ax in figure.axes]
    assert shown == pytest.approx([0.1, 0.3, 0.7, 0.9])
    assert all(len(ax.patches) == 1 for ax in figure.axes)


@pytest.mark.parametrize(("images", "axes"), [(1, 1), (2, 2), (3, 2), (20, 12)])
def test_sorted_strip_of_few_images(images: int, axes: int) -> None:
    assert len(sorted_strip(torch.rand(images, 3, 9, 9), gazes(images)["position-wise"]).axes) == axes


def test_sorted_strip_by_given_values() -> None:
    figure = sorted_strip(torch.rand(3, 3, 9, 9), gazes(3)["rectangular"], "age", torch.tensor([3.0, 1.0, 2.0]), 1)
    assert [ax.get_title() for ax in figure.axes] == ["1.00", "3.00"]
    with pytest.raises(ValueError, match="'values' is for 2"):
        sorted_strip(torch.rand(3, 3, 9, 9), gazes(3)["rectangular"], "age", torch.zeros(2))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_save_leaves_only_the_whole_file(tmp_path: Path, suffix: str) -> None:
    path = save(grid(torch.rand(1, 3, 9, 9), gazes(1), captions=["a $ b"]), tmp_path / "new" / f"figure.{suffix}")
    assert path.stat().st_size > 1000
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        save(Figure(), tmp_path / "figure.bmp")
