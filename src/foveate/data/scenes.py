"""Scenes: built-in images with one object that matters, whose place, size and angle are known exactly.

The class of a scene is the shape that is striped. Plain shapes lie around it, half of them of one wrong class: whoever
counts shapes all over the image names that one.
"""

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

from foveate.data.item import ImageSet, Item
from foveate.data.shapes import CELLS, NAMES, REACH, Floats, distance_tables

TEXTURES = 24  # pieces of background to choose from
CANDIDATES = 3  # places tried for a distractor, of which it takes the one with most room
SCENE_NUMBERS, SHAPE_NUMBERS = 24, 5 + 2 * CANDIDATES  # how many random numbers a scene, and each distractor, uses

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
FILLINGS = (
    np.array(
        [
            [231, 111, 81],
            [244, 162, 97],
            [233, 196, 106],
            [138, 177, 125],
            [42, 157, 143],
            [94, 142, 196],
            [155, 126, 189],
            [214, 122, 148],
        ],
        dtype=np.float32,
    )
    / 255
)
CREAM = (np.array([252, 247, 235]) / 255).astype(np.float32)
PERIOD = 0.85  # of the stripes, in half-extents along either side
RIM = 0.03  # width of a rim, as a share of the image
DARK_RIMS = (0.4 * FILLINGS).astype(np.float32)  # a distractor's rim is a shade of its filling


@dataclass(frozen=True)
class Placed:
    """A shape with its place: centre, half-extents (row, column of the unit square) and angle."""

    shape: int
    center: tuple[float, float]
    extent: tuple[float, float]
    angle: float
    color: int


class Scenes(ImageSet):
    """Procedurally drawn images of ten classes, each with its mask and its true rectangle; nothing to download.

    A scene depends on (seed, index) alone, so it is the same whatever the count and whichever worker draws it; another
    size draws the same scene with more pixels, another number of distractors keeps its object.

    Args:
        count: how many scenes there are.
        size: height and width of the images.
        seed: another seed, other scenes.
        distractors: how many other shapes are in each scene.
        strength: how visible they are, from 0 (not at all) to 1 (as the object is).
        scale: smallest and largest size of the object, as a half-extent in the unit square.
        rotate: range of the shapes' angles, radians; a single number a stands for (-a, a).

    Each item has `image` (3, size, size) float32 in [0, 1], `label`, `mask` (1, size, size) bool, `center` (2,),
    `extent` (2,), `angle` () and `name`.

    >>> scene = Scenes(100, size=32, seed=1)[7]
    >>> scene.image.shape, Scenes.classes[scene.label]
    (torch.Size([3, 32, 32]), 'triangle')
    """

    classes = NAMES

    def __init__(
        self,
        count: int,
        size: int = 64,
        seed: int = 0,
        *,
        distractors: int = 5,
        strength: float = 1.0,
        scale: tuple[float, float] = (0.13, 0.24),
        rotate: float | tuple[float, float] = math.pi,
    ) -> None:
        if count < 0 or size < 8 or distractors < 0 or not 0 <= seed < 2**64:
            raise ValueError(
                "scenes need count >= 0, size >= 8, distractors >= 0 and 0 <= seed < 2**64, "
                f"but got count={count}, size={size}, distractors={distractors}, seed={seed}"
            )
        if not 0 < scale[0] <= scale[1] <= 0.3 or not 0 <= strength <= 1:
            raise ValueError(f"scale must be within (0, 0.3] and strength within [0, 1], not {scale} and {strength}")
        self.count = count
        self.size = size
        self.seed = seed
        self.distractors = distractors
        self.strength = strength
        self.scale = scale
        self.rotate = rotate if isinstance(rotate, tuple) else (-rotate, rotate)

    def __len__(self) -> int:
        return self.count

    @property
    def labels(self) -> list[int]:
        """The label of every scene, without drawing it."""
        return [int(next(self._numbers(index)) * len(NAMES)) for index in range(self.count)]

    def __getitem__(self, index: int) -> Item:
        if not -self.count <= index < self.count:
            raise IndexError(f"scene {index} of {self.count}")
        index %= self.count
        numbers = self._numbers(index)
        thing = self._shape(int(next(numbers) * len(NAMES)), numbers, self.scale, 1, [])
        image = _background(self.size, numbers)
        for other in self._others(thing, numbers):
            _draw(image, other, FILLINGS[other.color], DARK_RIMS[other.color], self.strength)
        mask = _draw_striped(image, thing, FILLINGS[thing.color], DARK_RIMS[thing.color])
        return Item(
            image=torch.from_numpy(image),
            label=thing.shape,
            mask=torch.from_numpy(mask),
            center=torch.tensor(thing.center),
            extent=torch.tensor(thing.extent),
            angle=torch.tensor(thing.angle),
            name=f"scene-{self.seed}-{index}",
        )

    def _numbers(self, index: int) -> Iterator[float]:
        """Numbers in [0, 1) that depend on (seed, index) alone."""
        count = SCENE_NUMBERS + SHAPE_NUMBERS * self.distractors
        return iter(np.random.default_rng((self.seed, index)).random(count).tolist())

    def _others(self, thing: Placed, numbers: Iterator[float]) -> list[Placed]:
        """The distractors: half of them of one wrong class, the rest of any wrong class."""
        smaller = (0.7 * self.scale[0], 0.85 * self.scale[1])
        decoy = _wrong(thing.shape, next(numbers))
        others: list[Placed] = []
        for i in range(self.distractors):
            any_wrong = _wrong(thing.shape, next(numbers))
            shape = decoy if 2 * i < self.distractors else any_wrong
            others.append(self._shape(shape, numbers, smaller, CANDIDATES, [thing, *others]))
        return others

    def _shape(
        self, shape: int, numbers: Iterator[float], scale: tuple[float, float], spots: int, there: list[Placed]
    ) -> Placed:
        """A shape of random size, aspect, angle and colour, its rectangle inside the image, where most room is."""
        size = scale[0] + (scale[1] - scale[0]) * next(numbers)
        # Never as wide as it is high, so that the angle of a square or a disc means something.
        stretch = math.sqrt(1.1 + 0.4 * next(numbers))
        extent = (size * stretch, size / stretch)
        angle = self.rotate[0] + (self.rotate[1] - self.rotate[0]) * next(numbers)
        color = int(next(numbers) * len(FILLINGS))
        rows, columns = _reach(extent, angle)
        centers = [
            (rows + (1 - 2 * rows) * next(numbers), columns + (1 - 2 * columns) * next(numbers)) for _ in range(spots)
        ]
        center = max(centers, key=lambda c: min((math.dist(c, p.center) - max(p.extent) for p in there), default=0))
        return Placed(shape, center, extent, angle, color)


def _wrong(label: int, number: float) -> int:
    """A class other than `label`, each with the same chance."""
    return (label + 1 + int(number * (len(NAMES) - 1))) % len(NAMES)


def _reach(extent: tuple[float, float], angle: float) -> tuple[float, float]:
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


def _background(size: int, numbers: Iterator[float]) -> Floats:
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


def _draw(image: Floats, placed: Placed, filling: Floats, rim: Floats, opacity: float = 1.0) -> None:
    """Draw a plain shape into image (3, size, size)."""
    region, place = _region(image, placed)
    cover, inside = _edges(placed, place, image.shape[1])
    _blend(region, inside * (filling - rim)[:, None, None], rim, opacity * cover)


def _draw_striped(image: Floats, placed: Placed, filling: Floats, rim: Floats) -> NDArray[np.bool_]:
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
    rows, columns = _reach(placed.extent, placed.angle)
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
