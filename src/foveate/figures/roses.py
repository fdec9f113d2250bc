"""Roses: at each position a petal for each pose, as long as the pose is strong, pointing where the pose turns to.

A rose is an object of the plane: where an image is turned and mirrored, an equivariant network's roses are the same
roses, turned and mirrored, in the places that theirs move to (equivariant, Figs. 7, 8, 10 and 11).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from torch import Tensor

from foveate.geometry import pixel_centers
from foveate.groups import Group

Array = NDArray[np.float32]
AT_MOST = 9  # roses along the side of an image: more cannot be told apart in a cell of a grid
_QUARTERS = ("#ffb83d", "#5cc8ff", "#ff7fb0", "#7fe3b2")  # petals up, left, down, right; hues between in between
_SLENDER = 0.5  # width of a petal over its length


@cache
def directions(group: Group) -> Tensor:
    """Where the petals of the poses point, (|H|, 2) as (row, column): up, moved by each element.

    Where up itself is mirrored into up, a direction beside it is moved instead, so that each pose has its own.

    >>> from foveate.groups import P4
    >>> directions(P4).tolist()  # up, left, down, right
    [[-1.0, 0.0], [0.0, -1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    elements = torch.tensor(group.elements, dtype=torch.float64)
    angles = [k * math.pi / 8 for k in (0, 4, 1)]  # up, left, and between up and the diagonal
    orbits = [elements @ torch.tensor([-math.cos(a), -math.sin(a)], dtype=torch.float64) for a in angles]
    return max(orbits, key=lambda orbit: round(_apart(orbit), 6)).round(decimals=6).float() + 0.0


def _apart(orbit: Tensor) -> float:
    """The smallest distance between two of several points."""
    return float((torch.cdist(orbit, orbit) + 9 * torch.eye(len(orbit), dtype=orbit.dtype)).min())


def petal_colors(group: Group) -> list[str]:
    """A colour for each pose, by its petal's direction: what points up has one colour in every figure.

    >>> from foveate.groups import P4, P4M
    >>> petal_colors(P4)
    ['#ffb83d', '#5cc8ff', '#ff7fb0', '#7fe3b2']
    """
    wheel = torch.tensor([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in _QUARTERS])
    chosen = []
    for row, column in directions(group).tolist():
        quarters = (math.atan2(-column, -row) / (math.pi / 2)) % 4
        before, share = int(quarters) % 4, quarters % 1
        mixed = (1 - share) * wheel[before] + share * wheel[(before + 1) % 4]
        chosen.append(to_hex(tuple(mixed.tolist())))
    return chosen


def few(strengths: Tensor, reach: float = 1.0) -> Tensor:
    """Means of (..., H', W') over blocks, so that roses can be told apart; the blocks are the same from every side.

    >>> few(torch.rand(2, 4, 26, 13)).shape
    torch.Size([2, 4, 9, 5])
    """
    strengths = strengths.detach().cpu().float()
    parts = math.ceil(max(strengths.shape[-2:]) / max(1, round(AT_MOST * reach)))
    rows, columns = (max(1, math.ceil(n / parts)) for n in strengths.shape[-2:])
    return F.adaptive_avg_pool2d(strengths, (rows, columns))


def petals(strengths: Tensor, group: Group, size: tuple[int, int], reach: float = 1.0) -> tuple[list[Array], list[int]]:
    """The outlines of all petals, and which pose each is of.

    Args:
        strengths: (|H|, H', W') in [0, 1]; 1 is a petal that reaches a little into the next rose's cell.
        group: of the poses.
        size: (H, W) of the image; a petal's points are (x, y) in its pixels.
        reach: the part of the image's sides that the positions lie in, about its centre.

    >>> from foveate.groups import P4
    >>> shapes, poses = petals(torch.ones(4, 2, 3), P4, (20, 30))
    >>> len(shapes), shapes[0].mean(0).round().tolist(), poses[:4]
    (24, [5.0, 2.0], [0, 1, 2, 3])
    """
    strengths = strengths.detach().cpu().float()
    rows, columns = (
        (0.5 + reach * (pixel_centers(n, strengths) - 0.5)) * side
        for n, side in zip(strengths.shape[1:], size, strict=True)
    )
    longest = 0.62 * reach * min(size[0] / len(rows), size[1] / len(columns))
    centers = torch.cartesian_prod(columns, rows).reshape(len(columns), len(rows), 1, 1, 2)
    shapes = centers + strengths.permute(2, 1, 0)[..., None, None] * _leaves(group) * longest
    poses = torch.arange(len(group)).expand(len(columns), len(rows), -1)
    drawn = strengths.permute(2, 1, 0) > 0.02
    return list(shapes[drawn].numpy()), poses[drawn].tolist()


def _leaves(group: Group, points: int = 24) -> Tensor:
    """A leaf from the centre to the length 1 for each pose, (|H|, points, 2) as (x, y)."""
    t = torch.linspace(0, 1, points // 2)
    width = _SLENDER * min(1.0, 5 / len(group)) / 2 * (math.pi * t).sin().clamp_min(0)
    along, across = torch.cat([t, t.flip(0)]), torch.cat([width, -width.flip(0)])
    row, column = directions(group).unbind(1)
    forward, aside = torch.stack([column, row], 1), torch.stack([-row, column], 1)
    return along[:, None] * forward[:, None] + across[:, None] * aside[:, None]


def roses(ax: Axes, strengths: Tensor, group: Group, size: tuple[int, int], reach: float = 1.0) -> None:
    """Draw a rose at each position, in the colours of the directions; arguments as those of `petals`.

    >>> from foveate.groups import P4
    >>> from matplotlib.figure import Figure
    >>> roses(Figure().add_subplot(), torch.rand(4, 5, 5), P4, (20, 20))
    """
    shapes, poses = petals(strengths, group, size, reach)
    colors = petal_colors(group)
    faces = [colors[pose] for pose in poses]
    ax.add_collection(PolyCollection(shapes, facecolors=faces, edgecolors="#00000090", linewidths=0.3), autolim=False)
