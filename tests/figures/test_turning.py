from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from foveate import Gaze
from foveate.figures import Panel, Round, Strip, animate_rounds, turning
from foveate.figures.turning import element_names, map_cell, stretched
from foveate.geometry import similarity, warp
from foveate.groups import MIRROR, P4, P4M, Group, PoseGaze
from foveate.metrics.turning import Sight, Turned


def turned(group: Group, moved: bool = True) -> Turned:
    """Two gazes on an image, "a" with poses and "b" without, that turn with it or stay."""
    gaze, plain = PoseGaze.of(torch.rand(1, len(group), 6, 6), group), torch.rand(1, 1, 7, 7)
    elements = range(len(group)) if moved else [0] * len(group)
    poses = PoseGaze.join([gaze.turn(h) for h in elements])
    maps = Gaze(torch.cat([group.move(plain, h) for h in elements]))
    return Turned(group, Sight({"a": poses, "b": maps}, {"a": poses}, {"a": 0.5, "b": 1.0}, torch.zeros(len(group), 2)))


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def shown(figure: Figure, place: int) -> Tensor:
    """The picture in a cell of the figure, (3, H, W)."""
    return torch.tensor(np.asarray(figure.axes[place].images[0].get_array())).permute(2, 0, 1)


@pytest.mark.parametrize("group", [P4, P4M, MIRROR], ids=lambda group: group.name)
def test_a_column_for_each_element_and_every_cell_is_the_first_one_moved(group: Group) -> None:
    count = len(group)
    figure = turning([Panel("net", torch.rand(3, 30, 30), turned(group), ["a", "b"], ["cat, 90%"] * count)], "title")
    assert len(figure.axes) == 4 * count  # the image, a's maps and roses, b's maps: nothing is off
    assert words(figure).count("exact") == 2 * (count - 1)
    assert words(figure).count("cat, 90%") == count
    assert {"title", "net", *element_names(group)} <= set(words(figure))
    for row in (0, 1, 3):
        for h in range(count):
            expected = group.move(shown(figure, row * count), h)
            assert (shown(figure, row * count + h) - expected).abs().max() < 0.02
    petals = [len(ax.collections[0].get_paths()) for ax in figure.axes[2 * count : 3 * count]]
    assert len(set(petals)) == 1


def test_what_fails_to_turn_is_said_and_its_differences_are_shown_beside_what_does_not_fail() -> None:
    panels = [Panel(name, torch.rand(3, 9, 9), turned(P4, name == "right"), ["a"]) for name in ("wrong", "right")]
    figure = turning(panels)
    assert len(figure.axes) == 2 * 4 * 4  # the image, maps, roses, differences
    assert words(figure).count("exact") == 3
    said = [f"off by {100 * error:.1f} %" for error in panels[0].turned.errors("a")[1:].tolist()]
    assert [word for word in words(figure) if word.startswith("off by")] == said
    wrong, right = shown(figure, 13), shown(figure, 16 + 13)
    assert (right - right[:, :1, :1]).abs().max() < 0.1  # all pale
    assert wrong.min() < 0.5 < right.min()


def test_many_columns_stand_below_each_other() -> None:
    beside, below = (turning([Panel("n", torch.rand(3, 9, 9), turned(g), ["b"])] * 2) for g in (P4, P4M))
    assert beside.get_size_inches()[0] > 1.5 * beside.get_size_inches()[1]
    assert len({round(ax.get_position().y0, 4) for ax in beside.axes}) == 2
    assert len({round(ax.get_position().y0, 4) for ax in below.axes}) == 4


def test_a_map_lies_where_its_positions_are() -> None:
    ax = Figure().add_subplot()
    map_cell(ax, torch.zeros(3, 20, 20), torch.ones(5, 5), reach=0.5)
    lit = np.asarray(ax.images[0].get_array()).max(2) > 0.1
    rows, columns = lit.nonzero()
    side = len(lit)
    assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == (side / 4, 3 * side / 4) * 2


def test_scales() -> None:
    assert stretched(torch.tensor([2.0, 4.0, 3.0])).tolist() == [0, 1, 0.5]
    assert stretched(torch.full((2, 3), 0.7)).unique().tolist() == [0.5]
    few_large = stretched(torch.tensor([0.0, 5.0, 10.0, 1000.0, 8.0]), share=0.75)
    assert few_large.tolist() == pytest.approx([0, 0.5, 1, 1, 0.8])


def test_a_round_is_exact_at_the_elements_and_turns_between_them() -> None:
    image = torch.rand(3, 12, 12)
    way = Round.of(image, P4M, steps=8)
    assert way.elements[::2] == [0, 1, 2, 3, 4, 7, 6, 5]  # mirrored, it is turned on
    assert set(way.elements[1::2]) == {None}
    for frame, h in zip(way.images, way.elements, strict=True):
        if h is not None:
            assert torch.equal(frame, P4M.move(image, h))
    between = similarity(torch.tensor([torch.pi / 4]), torch.ones(1), torch.zeros(1, 2))
    assert torch.allclose(way.images[1], warp(image[None], between, "border")[0], atol=1e-6)
    after = similarity(torch.tensor([-torch.pi / 4]), torch.ones(1), torch.zeros(1, 2))
    quarter = P4M.move(image, way.elements[2])
    assert (way.images[1] - warp(quarter[None], after, "border")[0])[:, 3:9, 3:9].abs().max() < 1e-4


@pytest.mark.parametrize("group", [P4, MIRROR], ids=lambda group: group.name)
def test_an_animation_rests_at_the_elements(group: Group, tmp_path: Path) -> None:
    image = torch.rand(3, 8, 8)
    way = Round.of(image, group, steps=8)
    count = len(way.images)
    sight = Sight({"b": Gaze(torch.rand(count, 1, 7, 7))}, {}, {"b": 1.0}, torch.zeros(count, 2))
    panel = Panel("net", image, turned(group), ["b"], ["cat"] * len(group))
    path = animate_rounds(tmp_path / "round.gif", [Strip(panel, way.images, sight)], way.elements)
    seconds = []
    with Image.open(path) as animation:
        assert animation.n_frames == count
        for k in range(count):
            animation.seek(k)
            seconds.append(animation.info["duration"])
    assert [second > 500 for second in seconds] == [h is not None for h in way.elements]
