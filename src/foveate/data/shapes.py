"""The shapes that scenes are made of, as tables of signed distances, so that drawing one is looking it up."""

import math
from collections.abc import Callable
from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Points = NDArray[np.float64]

CELLS = 320  # cells along a side of a table
REACH = 1.25  # a table covers [-REACH, REACH]² around a shape, whose own box is [-1, 1]²


def _around(*radii: float, count: int) -> Points:
    """Points on circles about the origin, cycling through the radii, the first of them at the top."""
    turn = np.arange(count) * (2 * math.pi / count)
    radius = np.resize(np.asarray(radii), count)
    return np.stack([-radius * np.cos(turn), -radius * np.sin(turn)], axis=1)


def _moon() -> Points:
    """A crescent: an arc out and a flatter arc back."""
    outer = np.linspace(-2.2, 2.2, 60)
    tip_row, tip_column = math.sin(2.2), math.cos(2.2)
    depth = 0.45  # how far right the inner arc bulges at its middle
    radius = (tip_row**2 + (depth - tip_column) ** 2) / (2 * (depth - tip_column))
    reach = math.atan2(tip_row, tip_column - depth + radius)
    inner = np.linspace(reach, -reach, 60)[1:-1]  # its ends are those of the outer arc
    return np.concatenate(
        [
            np.stack([np.sin(outer), np.cos(outer)], axis=1),
            np.stack([radius * np.sin(inner), depth - radius + radius * np.cos(inner)], axis=1),
        ]
    )


def _heart() -> Points:
    turn = np.linspace(0, 2 * math.pi, 120, endpoint=False)
    rows = -(13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn))
    return np.stack([rows, 16 * np.sin(turn) ** 3], axis=1)


def _cross() -> Points:
    arm = 0.36
    quarter = np.array([[-1.0, -arm], [-1.0, arm], [-arm, arm]])
    turns = [np.array([[0, -1], [1, 0]]), np.array([[-1, 0], [0, -1]]), np.array([[0, 1], [-1, 0]])]
    return np.concatenate([quarter, *(quarter @ turn for turn in turns)])


OUTLINES: dict[str, Callable[[], list[Points]]] = {
    "disc": lambda: [_around(1, count=90)],
    "ring": lambda: [_around(1, count=90), _around(0.48, count=90)],
    "square": lambda: [np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])],
    "triangle": lambda: [_around(1, count=3)],
    "cross": lambda: [_cross()],
    "star": lambda: [_around(1, 0.42, count=10)],
    "heart": lambda: [_heart()],
    "moon": lambda: [_moon()],
    "arrow": lambda: [np.array([[-1, 0], [0.1, 1], [0.1, 0.36], [1, 0.36], [1, -0.36], [0.1, -0.36], [0.1, -1.0]])],
    "hourglass": lambda: [np.array([[-1, -1], [-1, 1], [0, 0.2], [1, 1], [1, -1], [0, -0.2]])],
}
NAMES = tuple(OUTLINES)


def outlines(name: str) -> list[Points]:
    """The closed polygons of a shape, (row, column) points stretched so that the first fills [-1, 1]²."""
    polygons = OUTLINES[name]()
    low, high = polygons[0].min(axis=0), polygons[0].max(axis=0)
    return [(2 * polygon - low - high) / (high - low) for polygon in polygons]


def signed_distance(points: Points, polygons: list[Points]) -> Points:
    """Distances of points (..., 2) to the rim of polygons, negative inside (by the even-odd rule).

    >>> square = [np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])]
    >>> signed_distance(np.array([[0.0, 0.0], [0.0, 1.5]]), square).tolist()
    [-1.0, 0.5]
    """
    rows, columns = np.ascontiguousarray(points[..., 0]), np.ascontiguousarray(points[..., 1])
    nearest = np.full(rows.shape, np.inf)  # squared, until the end
    inside = np.zeros(rows.shape, dtype=bool)
    for polygon in polygons:
        for (top, left), (bottom, right) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            down, across = bottom - top, right - left
            row, column = rows - top, columns - left  # from the start of the edge
            along = (row * down + column * across) / (down * down + across * across)
            along.clip(0, 1, out=along)
            away = np.square(row - along * down) + np.square(column - along * across)
            np.minimum(nearest, away, out=nearest)
            if down != 0:
                inside ^= ((top > rows) != (bottom > rows)) & (column < row / down * across)
    distance = np.sqrt(nearest)
    signed: Points = np.where(inside, -distance, distance)
    return signed


_ONE_AT_A_TIME = Lock()  # or threads that draw their first scenes would each make the tables


def distance_tables() -> Floats:
    """Signed distances (classes, CELLS, CELLS) of every shape, in units of its half-extents."""
    with _ONE_AT_A_TIME:
        return _distance_tables()


@cache
def _distance_tables() -> Floats:
    axis = ((np.arange(CELLS) + 0.5) / CELLS * 2 - 1) * REACH
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    tables = np.stack([signed_distance(grid, outlines(name)) for name in NAMES]).astype(np.float32)
    tables.flags.writeable = False
    return tables
