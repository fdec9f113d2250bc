"""Scenes: built-in images with one object that matters, whose place, size and angle are known exactly.

The class of a scene is the shape that is striped. Plain shapes lie around it, half of them of one wrong class: whoever
counts shapes all over the image names that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from foveate.data.drawing import Placed, background, draw, draw_striped, reach
from foveate.data.item import ImageSet, Item
from foveate.data.shapes import NAMES

CANDIDATES = 3  # places tried for a distractor, of which it takes the one with most room
SCENE_NUMBERS, SHAPE_NUMBERS = 24, 5 + 2 * CANDIDATES  # how many random numbers a scene, and each distractor, uses

# Colours in [0, 1], one for each filling.
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
DARK_RIMS = (0.4 * FILLINGS).astype(np.float32)  # a distractor's rim is a shade of its filling


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
        image = background(self.size, numbers)
        for other in self._others(thing, numbers):
            draw(image, other, FILLINGS[other.color], DARK_RIMS[other.color], self.strength)
        mask = draw_striped(image, thing, FILLINGS[thing.color], DARK_RIMS[thing.color])
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
        rows, columns = reach(extent, angle)
        centers = [
            (rows + (1 - 2 * rows) * next(numbers), columns + (1 - 2 * columns) * next(numbers)) for _ in range(spots)
        ]
        center = max(centers, key=lambda c: min((math.dist(c, p.center) - max(p.extent) for p in there), default=0))
        return Placed(shape, center, extent, angle, color)


def _wrong(label: int, number: float) -> int:
    """A class other than `label`, each with the same chance."""
    return (label + 1 + int(number * (len(NAMES) - 1))) % len(NAMES)
