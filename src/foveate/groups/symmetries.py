"""Finite symmetry groups of the square grid: elements, product, inverse, and how an element moves planes and poses.

An element is the matrix that moves (row, column) vectors, so the quarter turn of `P4` is that of `foveate.geometry`:
counter-clockwise as displayed, `torch.rot90(x, 1, (-2, -1))`. Written for any group that its elements spell out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Matrix = tuple[tuple[int, int], tuple[int, int]]

IDENTITY: Matrix = ((1, 0), (0, 1))
QUARTER: Matrix = ((0, -1), (1, 0))
FLIP_ROWS: Matrix = ((-1, 0), (0, 1))
FLIP_COLUMNS: Matrix = ((1, 0), (0, -1))


@dataclass(frozen=True)
class Group:
    """A finite group of rotations and mirrorings that leave the square grid as it is.

    Attributes:
        name: as in names of networks.
        elements: its matrices, the identity first; an element is known elsewhere by its index here, its pose.

    >>> P4.product(1, 3), P4.inverse(1), len(P4M)
    (0, 3, 8)
    >>> half_turn = Group("half-turn", [IDENTITY, ((-1, 0), (0, -1))])  # a group of one's own
    """

    name: str
    elements: Sequence[Matrix]

    def __post_init__(self) -> None:
        elements: tuple[Matrix, ...] = tuple(((p, q), (r, s)) for (p, q), (r, s) in self.elements)
        object.__setattr__(self, "elements", elements)  # hashable, however they were given
        for matrix in elements:
            if sorted(abs(n) for row in matrix for n in row) != [0, 0, 1, 1] or not _determinant(matrix):
                raise ValueError(f"{matrix} does not map the square grid to itself")
        if not elements or elements[0] != IDENTITY or len(set(elements)) < len(elements):
            raise ValueError(f"the elements of a group differ, and the first is the identity {IDENTITY}")
        for a in elements:
            for b in elements:
                if _times(a, b) not in elements:
                    raise ValueError(f"not a group: {a} times {b} is {_times(a, b)}, which is missing")

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def measure(self) -> float:
        """The weight of a pose in the integral over poses: 2π/|H|, as the paper's authors have it, and 1 for |H| = 1.

        The trivial group has no angle to integrate over, and with 1 its layers are ordinary convolutions.
        """
        return 2 * torch.pi / len(self) if len(self) > 1 else 1.0

    def product(self, a: int, b: int) -> int:
        """The index of ab: first b, then a."""
        return self.elements.index(_times(self.elements[a], self.elements[b]))

    def inverse(self, h: int) -> int:
        """The index of h⁻¹."""
        return next(k for k in range(len(self)) if self.product(h, k) == 0)

    def sources(self, h: int) -> list[int]:
        """Where each pose comes from when h moves features: the pose k̃ of the moved ones was h⁻¹k̃.

        >>> P4.sources(1)
        [3, 0, 1, 2]
        """
        back = self.inverse(h)
        return [self.product(back, k) for k in range(len(self))]

    @property
    def flips(self) -> tuple[bool, bool]:
        """Whether an element turns rows, or columns, back to front; a stride along such an axis has to be symmetric."""
        rows, columns = (any(row[axis] < 0 for matrix in self.elements for row in matrix) for axis in (0, 1))
        return rows, columns

    @property
    def transposes(self) -> bool:
        """Whether an element makes columns of rows, so that a map that is not square changes its shape."""
        return any(matrix[0][0] == 0 for matrix in self.elements)

    def transform(self, x: Tensor, h: int) -> Tensor:
        """L_h[x], equivariant (6): planes (B, C, H, W), or features (B, C, |H|, H, W) with their poses, moved by h.

        The moved plane at a position is the plane at h⁻¹ of it, about the centre; the moved features at (x, k̃) are
        the features at (h⁻¹x, h⁻¹k̃).

        >>> x = torch.arange(4.0).view(1, 1, 2, 2)
        >>> torch.equal(P4.transform(x, 1), torch.rot90(x, 1, (-2, -1)))
        True
        """
        if not 0 <= h < len(self):
            raise ValueError(f"{self.name} has the elements 0 to {len(self) - 1}, not {h}")
        if x.ndim == 4:
            return self.move(x, h)
        if x.ndim != 5 or x.shape[2] != len(self):
            raise ValueError(
                f"{self.name} moves planes (B, C, H, W) or features (B, C, {len(self)}, H, W), not {tuple(x.shape)}"
            )
        return self.permute(self.move(x, h), h, dim=2)

    def move(self, planes: Tensor, h: int) -> Tensor:
        """Planes (..., H, W) moved by h, whatever the dimensions before them."""
        (a, b), (c, d) = self.elements[h]
        if a:
            rows, columns = a, d
        else:
            planes, rows, columns = planes.mT, b, c
        dims = [dim for dim, sign in ((-2, rows), (-1, columns)) if sign < 0]
        return planes.flip(dims) if dims else planes

    def permute(self, x: Tensor, h: int, dim: int) -> Tensor:
        """The poses along a dimension of x moved by h, and nothing else."""
        return torch.stack([x.select(dim, k) for k in self.sources(h)], dim) if h else x


def _times(a: Matrix, b: Matrix) -> Matrix:
    columns = ((b[0][0], b[1][0]), (b[0][1], b[1][1]))
    first, second = ([row[0] * column[0] + row[1] * column[1] for column in columns] for row in a)
    return (first[0], first[1]), (second[0], second[1])


def _determinant(matrix: Matrix) -> int:
    return matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0]


_TURNS = (IDENTITY, QUARTER, _times(QUARTER, QUARTER), _times(_times(QUARTER, QUARTER), QUARTER))

TRIVIAL = Group("trivial", (IDENTITY,))
P4 = Group("p4", _TURNS)
P4M = Group("p4m", (*_TURNS, *(_times(FLIP_ROWS, turn) for turn in _TURNS)))
C2 = Group("c2", (IDENTITY, _TURNS[2]))
MIRROR = Group("mirror", (IDENTITY, FLIP_COLUMNS))

GROUPS = {group.name: group for group in (TRIVIAL, P4, P4M, C2, MIRROR)}
