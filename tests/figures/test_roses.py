import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from foveate.figures.roses import directions, few, petal_colors, petals, roses
from foveate.groups import C2, GROUPS, MIRROR, P4, P4M, TRIVIAL, Group, PoseGaze

EVERY = [*GROUPS.values(), Group("transpose", [((1, 0), (0, 1)), ((0, 1), (1, 0))])]


@pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)
def test_directions_move_as_poses_do_and_differ(group: Group) -> None:
    points = directions(group)
    for a, element in enumerate(group.elements):
        for b in range(len(group)):
            moved = torch.tensor(element, dtype=torch.float32) @ points[b]
            assert torch.allclose(moved, points[group.product(a, b)], atol=1e-5)
    assert torch.allclose(points.norm(dim=1), torch.ones(len(group)), atol=1e-5)
    if len(group) > 1:
        distances = torch.cdist(points, points) + 9 * torch.eye(len(group))
        assert distances.min() > 0.7
    assert len(set(petal_colors(group))) == len(group)


def nearest(some: list[np.ndarray], others: list[np.ndarray]) -> np.ndarray:
    """How far the middle and the tip of each petal are from those of its nearest among others."""
    points, targets = (np.array([[*shape.mean(0), *shape[11]] for shape in shapes]) for shapes in (some, others))
    return np.abs(points[:, None] - targets[None]).max(2).min(1)


@pytest.mark.parametrize("group", [P4, P4M, C2, MIRROR], ids=lambda group: group.name)
def test_roses_of_a_turned_image_are_the_turned_roses(group: Group) -> None:
    poses = torch.rand(1, len(group), 5, 5) * 0.8 + 0.1
    gaze = PoseGaze.of(poses, group)
    shapes, _ = petals(poses[0], group, (40, 40))
    for h, element in enumerate(group.elements):
        turned, _ = petals(gaze.turn(h).poses[0], group, (40, 40))
        matrix = np.array(element, dtype=np.float32)[::-1, ::-1]  # of (x, y) rather than (row, column)
        moved = [(shape - 20) @ matrix.T + 20 for shape in shapes]
        assert np.allclose(nearest(moved, turned), 0, atol=1e-3)


def test_petals_by_hand() -> None:
    strengths = torch.zeros(4, 2, 2)
    strengths[1, 0, 1] = 0.5  # the pose that turns up to the left, at the upper right
    (petal,), poses = petals(strengths, P4, (20, 20), reach=0.5)
    assert poses == [1]
    start, tip = petal[0], petal[11]
    assert start.tolist() == pytest.approx([12.5, 7.5])
    assert tip[1] == pytest.approx(7.5)
    assert tip[0] < start[0]
    (longer,), _ = petals(2 * strengths, P4, (20, 20), reach=0.5)
    assert (start - longer[11])[0] == pytest.approx(2 * (start - tip)[0])


def test_blocks_are_the_same_from_every_side() -> None:
    for size in ((26, 26), (9, 9), (10, 31), (1, 1)):
        values = torch.rand(2, *size)
        for h in range(8):
            assert torch.allclose(few(P4M.move(values, h)), P4M.move(few(values), h), atol=1e-6)
        assert max(few(values).shape[1:]) <= 9
    assert few(torch.rand(4, 8, 8), reach=0.5).shape == (4, 4, 4)


def test_roses_are_drawn() -> None:
    ax = Figure().add_subplot()
    roses(ax, torch.rand(4, 3, 3) / 2 + 0.5, P4, (30, 30))
    (collection,) = ax.collections
    assert len(collection.get_paths()) == 36
    roses(ax, torch.zeros(1, 3, 3), TRIVIAL, (30, 30))
