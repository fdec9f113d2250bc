"""Drawing: shapes of any place, size, angle and colour on a clouded background, and the mask of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from foveate.data.shapes import CELLS, REACH, Floats, distance_tables

TEXTURES = 24  # pieces of background to choose from

# Colours in [0, 1], three for each background and one for each filling.
BACKGROUNDS = (
    np.array(
        [
            [[38, 70, 83], [58, 104, 110], [92, 128, 118]],
            [[72, 61, 96], [104, 86, 124], [146, 118, 140]],
            [[92, 72, 58], [132, 106, 82], [168, 142, 110]],
            [[46, 78, 62], [82, 116, 84], [134, 150, 104]],
            [[58, 72, 104], [92, 110, 140], [136, 148, 166]],
            [[104, 62, 66], [140, 92, 86], [176, 130, 112]],
        ],
        dtype=np.float32,
    )
    / 255
)
CREAM = (np.array([252, 247, 235]) / 255).astype(np.float32)
PERIOD = 0.85  # of the stripes, in half-extents along either side
RIM = 0.03  # width of a rim, as a share of the image


@dataclass(frozen=True)
class Placed:
    """A shape with its place: centre, half-extents (row, column of the unit square) and angle."""

    shape: int
    center: tuple[float, float]
    extent: tuple[float, float]
    angle: float
    color: int


def reach(extent: tuple[float, float], angle: float) -> tuple[float, float]:
    """Half the height and half the width of the upright box around a rotated rectangle."""
    cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
    return extent[0] * cos + extent[1] * sin, extent[0] * sin + extent[1] * cos


@lru_cache(maxsize=4)
def _textures(size: int) -> Floats:
    """Cloudy noise with soft edges in [0, 1], (TEXTURES, 2·size, 2·size), the same at every size but for its detail."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.zeros(TEXTURES, 1, 2 * size, 2 * size)
    for cells, weight in ((6, 1.0), (12, 0.8), (24, 0.6), (48, 0.35), (96, 0.25)):
        octave = torch.randn(TEXTURES, 1, cells, cells, generator=generator)
        noise += weight * F.interpolate(octave, noise.shape[-2:], mode="bicubic", align_corners=False)
    textures: Floats = torch.sigmoid(3 * noise[:, 0]).numpy()
    return textures


@lru_cache(maxsize=1)
def _stripes() -> Floats:
    """Slanting stripes in [0, 1], on the cells of the tables of distances."""
    axis = (np.arange(CELLS, dtype=np.float32) + 0.5) / CELLS * (2 * REACH)
    stripes: Floats = (0.5 + 2 * np.sin((2 * math.pi / PERIOD) * (axis[:, None] + axis))).clip(0, 1)
    return stripes


def background(size: int, numbers: Iterator[float]) -> Floats:
    """Three related colours (3, size, size), mixed by two pieces of texture."""
    low, middle, high = BACKGROUNDS[int(next(numbers) * len(BACKGROUNDS))][:, :, None, None]
    pieces = []
    for _ in range(2):
        texture = _textures(size)[int(next(numbers) * TEXTURES)]
        row, column = int(next(numbers) * size), int(next(numbers) * size)
        pieces.append(texture[row : row + size, column : column + size])
    image: Floats = pieces[0] * (middle - low)
    image += low
    image += pieces[1] * (0.7 * pieces[0] + 0.3) * (high - middle)
    return image


def draw(image: Floats, placed: Placed, filling: Floats, rim: Floats, opacity: float = 1.0) -> None:
    """Draw a plain shape into image (3, size, size)."""
    region, place = _region(image, placed)
    cover, inside = _edges(placed, place, image.shape[1])
    _blend(region, inside * (filling - rim)[:, None, None], rim, opacity * cover)


def draw_striped(image: Floats, placed: Placed, filling: Floats, rim: Floats) -> NDArray[np.bool_]:
    """Draw the object into image (3, size, size); return where it is, (1, size, size)."""
    mask = np.zeros((1, *image.shape[1:]), dtype=bool)
    region, place = _region(image, placed)
    cover, inside = _edges(placed, place, image.shape[1])
    color = inside * (filling - rim)[:, None, None]
    color += inside * _stripes().take(place) * (CREAM - filling)[:, None, None]
    _blend(region, color, rim, cover)
    _region(mask, placed)[0][:] = cover > 0.5
    return mask


def _region(image: NDArray[Any], placed: Placed) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The part (C, h, w) of an image around a shape, and for each pixel (h, w) its place in the tables of distances."""
    size = image.shape[1]
    row, column = placed.center[0] * size - 0.5, placed.center[1] * size - 0.5  # in pixels from the first one's centre
    rows, columns = reach(placed.extent, placed.angle)
    top, left = max(0, int(row - rows * size)), max(0, int(column - columns * size))
    bottom, right = min(size, int(row + rows * size) + 2), min(size, int(column + columns * size) + 2)

    # Position in the shape's own frame, rectangular (3) with −α, in cells of the tables.
    cos, sin = math.cos(placed.angle), math.sin(placed.angle)
    cells = CELLS / (2 * REACH * size)
    along, across = cells / placed.extent[0], cells / placed.extent[1]
    by_row = np.array([cos * along, -sin * across], dtype=np.float32)[:, None, None]
    by_column = np.array([sin * along, cos * across], dtype=np.float32)[:, None, None]
    down = by_row * np.arange(top - row, bottom - row - 0.5, dtype=np.float32)[:, None]
    position = down + (by_column * np.arange(left - column, right - column - 0.5, dtype=np.float32) + CELLS / 2)
    cell = position.clip(0, CELLS - 1, out=position).astype(np.intp)
    place = cell[0] * CELLS
    place += cell[1]
    return image[:, top:bottom, left:right], place


def _edges(placed: Placed, place: NDArray[np.intp], size: int) -> Floats:
    """How much of each pixel is in the shape, and how much of it inside the rim: (2, h, w) in [0, 1]."""
    distance = distance_tables()[placed.shape].take(place)
    distance *= size * math.sqrt(placed.extent[0] * placed.extent[1])  # from half-extents to pixels
    levels: Floats = np.array([0.5, 0.5 - max(1.2, RIM * size)], dtype=np.float32)[:, None, None] - distance
    levels.clip(0, 1, out=levels)
    return levels


def _blend(region: Floats, color: Floats, rim: Floats, cover: Floats) -> None:
    """Put `color` (3, h, w) over the colour of the rim, and both over a region of the image, where `cover` says."""
    color += rim[:, None, None]
    color -= region
    color *= cover
    region += color


def silhouette(placed: Placed, size: int) -> NDArray[np.bool_]:
    """The pixels (1, size, size) of a shape."""
    mask = np.zeros((1, size, size), dtype=bool)
    region, place = _region(mask, placed)
    region[:] = _edges(placed, place, size)[:1] > 0.5
    return mask
