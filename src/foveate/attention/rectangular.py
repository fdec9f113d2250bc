"""Rectangular attention: five numbers draw a soft rotated rectangle, and the map is that rectangle.

Nguyen et al., "Convolutional Rectangular Attention Module". Equations are named as `rectangular (n)`. A rectangle is
its centre (row, column), its half-extents (along its own rows, along its own columns) and its angle, all in the unit
square; so on a map that is not square it is a rectangle of the square that the map is stretched to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attention.base import CombineName, SpatialAttention, check_positive
from foveate.gaze import Gaze, Look
from foveate.geometry import determinant, move_points, pixel_centers

Shape = Literal["rectangle", "ellipse", "superellipse"]
FAR, THIN = 1e3, 1e-6  # centres beyond and extents below these draw the same empty window, and overflow nothing


def rectangle_window(
    center: Tensor,
    extent: Tensor,
    angle: Tensor,
    size: tuple[int, int],
    sharpness: float = 6.0,
    shape: Shape = "rectangle",
) -> Tensor:
    """The soft window of a shape given by five numbers: near 1 inside, ½ on the rim (of a side), near 0 outside.

    With (u1, u2) the position relative to the centre, turned by −angle and divided by the extents, the map is
    Λ(s(1 − u1²))·Λ(s(1 − u2²)) for a rectangle, Λ(s(1 − u1² − u2²)) for an ellipse and Λ(s(1 − u1⁴ − u2⁴)) for a
    superellipse, where Λ is the sigmoid and s the sharpness.

    Args:
        center: (B, 2), row and column.
        extent: (B, 2), half-extents.
        angle: (B,), radians, counter-clockwise as displayed.
        size: (H, W) of the map.
        sharpness: how steeply the map falls at the rim.
        shape: "rectangle", "ellipse" or "superellipse".

    Returns:
        the map, (B, 1, H, W), in the type of `center` but never less than float32.

    >>> window = rectangle_window(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.15, 0.35]]), torch.zeros(1), (5, 5))
    >>> (window[0, 0] > 0.5).int()
    tensor([[0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    center, extent, angle = (t if t.dtype == torch.float64 else t.float() for t in (center, extent, angle))
    center, extent = center.clamp(-FAR, FAR)[:, :, None, None], extent.clamp_min(THIN)[:, :, None, None]
    rows = pixel_centers(size[0], center)[:, None] - center[:, :1]  # (B, 1, H, 1)
    columns = pixel_centers(size[1], center) - center[:, 1:]  # (B, 1, 1, W)
    cos, sin = angle.cos(), angle.sin()
    down, right = torch.stack([cos, -sin, sin, cos], dim=1).reshape(-1, 2, 2, 1, 1).unbind(1)  # (3), turned by −α
    u = (down * rows + right * columns) / extent  # (B, 2, H, W)
    if shape == "rectangle":
        inside = torch.sigmoid(sharpness * (1 - u.square()))
        window = inside[:, :1] * inside[:, 1:]  # (4); in the gradient of torch.prod a GPU would be waited for
    else:
        power = u.square() if shape == "ellipse" else u.square().square()
        window = torch.sigmoid(sharpness * (1 - power.sum(dim=1, keepdim=True)))
    return window


@dataclass(eq=False)
class RectangleGaze(Gaze):
    """One rectangle, or `count` of them united into one map.

    Attributes:
        map: (B, 1, H, W).
        center: (B, 2), or (B, count, 2) where count > 1.
        extent: half-extents, shaped as `center`.
        angle: (B,), or (B, count).
        sharpness, shape: those of `rectangle_window`, so that the gaze can be drawn at any size.
    """

    center: Tensor
    extent: Tensor
    angle: Tensor
    sharpness: float = 6.0
    shape: Shape = "rectangle"

    @classmethod
    def draw(
        cls,
        center: Tensor,
        extent: Tensor,
        angle: Tensor,
        size: tuple[int, int],
        sharpness: float = 6.0,
        shape: Shape = "rectangle",
    ) -> Self:
        """The gaze of these rectangles, its map of size (H, W): the union 1 − Π(1 − window) where there are several."""
        if angle.ndim == 1:
            map = rectangle_window(center, extent, angle, size, sharpness, shape)
        else:
            numbers = center.flatten(0, 1), extent.flatten(0, 1), angle.flatten()
            windows = rectangle_window(*numbers, size, sharpness, shape).reshape(*angle.shape, 1, *size)
            map = 1 - reduce(torch.mul, (1 - windows).unbind(1))
        return cls(map, center, extent, angle, sharpness, shape)

    def render(self, size: tuple[int, int]) -> Tensor:
        """The map (B, 1, *size), drawn afresh at that resolution."""
        return self.draw(self.center, self.extent, self.angle, size, self.sharpness, self.shape).map

    def move(self, matrix: Tensor) -> Self:
        """The rectangles moved by a similarity (B, 2, 3): (μ̂, σ̂, α̂) of rectangular IV-D."""
        matrix = matrix.to(self.center)
        scale = determinant(matrix).sqrt()
        turn = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0])
        many = (...,) if self.angle.ndim == 1 else (..., None)
        return self.draw(
            move_points(self.center, matrix),
            self.extent * scale[:, None][many],
            self.angle + turn[many],
            (self.map.shape[2], self.map.shape[3]),
            self.sharpness,
            self.shape,
        )

    def distance(self, other: Self) -> Tensor:
        """(B,) squared distances of the rectangles, whichever of its equal names each has.

        (σ1, σ2, α), (σ1, σ2, α + π) and (σ2, σ1, α + π/2) name one rectangle: angles are compared by the squared sine
        of their difference, which has period π and is the squared difference when small, and extents either way round.
        """
        same = _squared(self.extent, other.extent) + (self.angle - other.angle).sin().square()
        swapped = _squared(self.extent, other.extent.flip(-1)) + (self.angle - other.angle).cos().square()
        return _per_image(_squared(self.center, other.center) + torch.minimum(same, swapped))

    def parameter_distance(self, other: Self) -> Tensor:
        """(B,) squared distances of the five numbers as they stand, the penalty printed in rectangular IV-D."""
        parts = _squared(self.center, other.center) + _squared(self.extent, other.extent)
        return _per_image(parts + (self.angle - other.angle).square())

    def select(self, index: int) -> Self:
        """The gaze of one of several rectangles alone."""
        size = (self.map.shape[2], self.map.shape[3])
        center, extent, angle = self.center[:, index], self.extent[:, index], self.angle[:, index]
        return replace(self.draw(center, extent, angle, size, self.sharpness, self.shape))


def _squared(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum(-1)


def _per_image(distances: Tensor) -> Tensor:
    return distances if distances.ndim == 1 else distances.mean(1)


class RectangleLook(Look):
    """Three convolutions, a global average and a linear map to five numbers for each rectangle (rectangular, App. G).

    The five numbers are bounded by sigmoids and a tanh, and start from a rectangle that covers most of the image; with
    count > 1, from smaller ones set around the centre. No half-extent falls below 0.05, nor below half a pixel of the
    map, where a rectangle would slip between the pixels and be seen by none.

    The averaged features are brought to mean 0 and deviation 1, so that the rectangle learns at the same pace behind
    any backbone. A rate of 5e-4 for Adam suits it; several times that saturates the sigmoids in the first few steps.

    A global average forgets places. Deep features tell them all the same, by what padding did to them; behind shallow
    ones pass `coordinates=True`, which gives the first convolution the row and the column of each position as well.
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int] = (64, 128, 256),
        sharpness: float = 6.0,
        count: int = 1,
        shape: Shape = "rectangle",
        coordinates: bool = False,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, widths=widths, sharpness=sharpness, count=count)
        if shape not in ("rectangle", "ellipse", "superellipse"):
            raise ValueError(f"shape must be 'rectangle', 'ellipse' or 'superellipse', not {shape!r}")
        layers: list[nn.Module] = []
        for before, after in zip((channels, *widths[:-1]), widths, strict=True):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
        self.place = nn.Conv2d(2, widths[0], 3, padding=1, bias=False) if coordinates else None
        self.features = nn.Sequential(*layers[:-1])  # the last convolution is averaged, not pooled
        self.features[3:].to(memory_format=torch.channels_last)  # CPUs convolve the smallest maps faster so
        self.numbers = nn.Linear(widths[-1], 5 * count)
        self.sharpness = sharpness
        self.count = count
        self.shape: Shape = shape
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start from a rectangle that covers most of the image, the same one for nearly every image."""
        nn.init.normal_(self.numbers.weight, std=0.002)
        ring = torch.arange(self.count) * (2 * math.pi / self.count)
        radius, extent = (0.0, 0.45) if self.count == 1 else (0.2, 0.35)
        start = torch.zeros(self.count, 5)
        start[:, :2] = torch.logit(0.5 + radius * torch.stack([-ring.cos(), ring.sin()], dim=1))
        start[:, 2:4] = math.log(extent / (1 - extent))
        with torch.no_grad():
            self.numbers.bias.copy_(start.flatten())

    def forward(self, x: Tensor) -> RectangleGaze:
        """Features (B, C, H, W) to the gaze of `count` rectangles."""
        pooled = self._features(x).mean(dim=(2, 3))
        numbers = self.numbers(F.layer_norm(pooled, pooled.shape[1:])).float()
        if self.count > 1:
            numbers = numbers.reshape(-1, self.count, 5)
        center, extent, angle = numbers.split((2, 2, 1), dim=-1)
        smallest = max(0.05, 0.5 / min(x.shape[2], x.shape[3]))
        return RectangleGaze.draw(
            center.sigmoid(),
            smallest + (1 - smallest) * extent.sigmoid(),
            math.pi / 2 * angle.squeeze(-1).tanh(),
            (x.shape[2], x.shape[3]),
            self.sharpness,
            self.shape,
        )

    def _features(self, x: Tensor) -> Tensor:
        """The convolutions, the first of which is over the features and, where it is told them, the coordinates."""
        if self.place is None:
            return cast(Tensor, self.features(x))
        rows, columns = (2 * pixel_centers(length, x) - 1 for length in x.shape[2:])
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))[None]
        return cast(Tensor, self.features[1:](self.features[0](x) + self.place(grid)))


class RectangularAttention(SpatialAttention):
    """Attention constrained to soft rotated rectangles, x + f̃(x)·x.

    Args:
        channels: channels of the features it is put behind.
        widths: output channels of the convolutions that look.
        sharpness: s of rectangular (1).
        rescale: divide the map by its mean before it is applied.
        combine: "residual" (the paper's), "multiply" or "suppress".
        count: how many rectangles are united into one map.
        shape: "rectangle", "ellipse" or "superellipse", of the same five numbers.
        coordinates: tell the convolutions where they are; for layers too shallow to know.

    >>> attention = RectangularAttention(16, count=2, shape="ellipse")
    >>> attention(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16, 7, 5])
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int] = (64, 128, 256),
        sharpness: float = 6.0,
        rescale: bool = True,
        combine: CombineName = "residual",
        count: int = 1,
        shape: Shape = "rectangle",
        coordinates: bool = False,
    ) -> None:
        super().__init__(RectangleLook(channels, widths, sharpness, count, shape, coordinates), combine, rescale)
