"""Questions about scenes: pictures of a few shapes, a question in words, its answer, and the shapes it asks about.

Four kinds: the colour of a shape, the shape of a colour, how many there are, and how two lie to each other. The mask of
an item is of the shapes that the question names or counts, so it can be judged whether a network looked at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foveate.data.drawing import Placed, background, draw, silhouette
from foveate.data.item import ImageSet, Item
from foveate.data.shapes import NAMES

COLORS = {  # in [0, 1], far from each other and from the backgrounds
    name: (np.array(rgb) / 255).astype(np.float32)
    for name, rgb in {
        "red": (226, 62, 62),
        "yellow": (250, 213, 70),
        "green": (96, 196, 84),
        "blue": (64, 126, 232),
        "purple": (168, 84, 214),
        "white": (247, 245, 240),
    }.items()
}
SHAPES = ("disc", "square", "triangle", "cross", "star", "heart")
RELATIONS: dict[str, Callable[[Placed, Placed], bool]] = {
    "left of": lambda a, b: a.center[1] < b.center[1],
    "right of": lambda a, b: a.center[1] > b.center[1],
    "above": lambda a, b: a.center[0] < b.center[0],
    "below": lambda a, b: a.center[0] > b.center[0],
}
KINDS = ("color", "shape", "count", "position")
ANSWER_TYPES = {"color": "other", "shape": "other", "count": "number", "position": "yes/no"}  # in VQA-v2's words
MOST = 4  # things that are counted
LENGTH = 9  # words of a question at most
CELLS = 3  # shapes lie in the cells of a grid, so that they never overlap

_GRAMMAR = "what color shape is the thing things how many are there left right of above below disc square"
_WORDS = sorted({*_GRAMMAR.split(), *COLORS, *SHAPES, *(f"{s}es" if s == "cross" else f"{s}s" for s in SHAPES)})
WORDS = ("", *_WORDS)  # the empty word fills a question up


@dataclass(frozen=True)
class Asked:
    """A question in words, its answer, and which of the scene's shapes it is about."""

    kind: str
    words: str
    answer: str
    about: tuple[int, ...]


class SceneQuestions(ImageSet):
    """Procedurally drawn pictures of three to seven shapes, each with one question; nothing to download.

    Everything depends on (seed, index) alone.

    Args:
        count: how many there are.
        size: height and width of the images.
        seed: another seed, other pictures.

    Each item has `image` (3, size, size) float32 in [0, 1], `label` (the answer, an index into `classes`), `question`
    (LENGTH,) word numbers, `words`, `kind` (an index into `KINDS`), `mask` (1, size, size) bool of the shapes that are
    asked about, `things` (colours + shapes, size, size) bool, where each colour and each shape is, and `name`.

    >>> item = SceneQuestions(100, size=56)[7]
    >>> item.words, SceneQuestions.classes[item.label]
    ('is the cross above the purple thing', 'yes')
    """

    classes = (*COLORS, *SHAPES, *map(str, range(MOST + 1)), "yes", "no")

    def __init__(self, count: int, size: int = 56, seed: int = 0) -> None:
        if count < 0 or size < 16 or not 0 <= seed < 2**64:
            raise ValueError(f"questions need count >= 0, size >= 16, 0 <= seed < 2**64, not {count}, {size}, {seed}")
        self.count, self.size, self.seed = count, size, seed

    def __len__(self) -> int:
        return self.count

    @property
    def labels(self) -> list[int]:
        """The answer to every question, without drawing."""
        return [self.classes.index(self._ask(index)[1].answer) for index in range(self.count)]

    def __getitem__(self, index: int) -> Item:
        if not -self.count <= index < self.count:
            raise IndexError(f"question {index} of {self.count}")
        shapes, asked, generator = self._ask(index % self.count)
        image = background(self.size, iter(generator.random(8).tolist()))
        mask = np.zeros((1, self.size, self.size), dtype=bool)
        things = np.zeros((len(COLORS) + len(SHAPES), self.size, self.size), dtype=bool)
        fillings = list(COLORS.values())
        for number, shape in enumerate(shapes):
            draw(image, shape, fillings[shape.color], 0.55 * fillings[shape.color])
            place = silhouette(shape, self.size)
            things[[shape.color, len(COLORS) + _own(shape)]] |= place
            if number in asked.about:
                mask |= place
        return Item(
            image=torch.from_numpy(image),
            label=self.classes.index(asked.answer),
            question=encode(asked.words),
            words=asked.words,
            kind=KINDS.index(asked.kind),
            mask=torch.from_numpy(mask),
            things=torch.from_numpy(things),
            name=f"question-{self.seed}-{index}",
        )

    def _ask(self, index: int) -> tuple[list[Placed], Asked, np.random.Generator]:
        """The shapes of a picture, what is asked about them, and the generator that goes on from there."""
        generator = np.random.default_rng((self.seed, index))
        kind = KINDS[generator.integers(len(KINDS))]
        cells = generator.permutation(CELLS**2)
        if kind == "count":
            return *_count(cells, generator), generator
        if kind == "position":
            return *_position(cells, generator), generator
        return *_attribute(kind, cells, generator), generator


def encode(words: str) -> Tensor:
    """A question as word numbers (LENGTH,), filled up with zeros.

    >>> encode("how many stars are there")
    tensor([13, 16, 25,  2, 27,  0,  0,  0,  0])
    """
    numbers = [WORDS.index(word) for word in words.split()]
    return torch.tensor(numbers + [0] * (LENGTH - len(numbers)))


def _attribute(kind: str, cells: np.ndarray, generator: np.random.Generator) -> tuple[list[Placed], Asked]:
    """The colour of the one shape of its kind, or the shape of the one thing of its colour."""
    shape, color = _any(SHAPES, generator), _any(COLORS, generator)
    thing = _place(cells[0], shape, color, generator)
    others = []
    for cell in cells[1 : generator.integers(4, 7)]:
        other_shape = _other(shape, len(SHAPES), generator) if kind == "color" else _any(SHAPES, generator)
        other_color = _other(color, len(COLORS), generator) if kind == "shape" else _any(COLORS, generator)
        others.append(_place(cell, other_shape, other_color, generator))
    if kind == "color":
        return [thing, *others], Asked(kind, f"what color is the {SHAPES[shape]}", list(COLORS)[color], (0,))
    return [thing, *others], Asked(kind, f"what shape is the {list(COLORS)[color]} thing", SHAPES[shape], (0,))


def _count(cells: np.ndarray, generator: np.random.Generator) -> tuple[list[Placed], Asked]:
    """How many things there are of a colour, or of a shape."""
    count, others = int(generator.integers(MOST + 1)), int(generator.integers(2, 4))
    by_color = generator.random() < 0.5
    names = list(COLORS) if by_color else list(SHAPES)
    wanted = _any(names, generator)
    shapes = []
    for number, cell in enumerate(cells[: count + others]):
        own = wanted if number < count else _other(wanted, len(names), generator)
        free = _any(SHAPES if by_color else COLORS, generator)
        shape, color = (free, own) if by_color else (own, free)
        shapes.append(_place(cell, shape, color, generator))
    plural = f"{names[wanted]} things" if by_color else names[wanted] + ("es" if names[wanted] == "cross" else "s")
    return shapes, Asked("count", f"how many {plural} are there", str(count), tuple(range(count)))


def _position(cells: np.ndarray, generator: np.random.Generator) -> tuple[list[Placed], Asked]:
    """Whether one thing lies left of, right of, above or below another; each the one of its shape, or of its colour."""
    words = list(RELATIONS)[generator.integers(len(RELATIONS))]
    axis = 0 if words in ("above", "below") else 1
    lines = np.stack([cells // CELLS, cells % CELLS])[axis]
    first = cells[0]
    second = cells[1:][lines[1:] != lines[0]][0]  # in another row, or column, so that the answer is plain to see
    a_shape, a_color = _any(SHAPES, generator), _any(COLORS, generator)
    b_shape, b_color = _other(a_shape, len(SHAPES), generator), _other(a_color, len(COLORS), generator)
    a, b = _place(first, a_shape, a_color, generator), _place(second, b_shape, b_color, generator)
    others = []
    for cell in [cell for cell in cells if cell not in (first, second)][: generator.integers(2, 4)]:
        shape = generator.choice([s for s in range(len(SHAPES)) if s not in (a_shape, b_shape)])
        color = generator.choice([c for c in range(len(COLORS)) if c not in (a_color, b_color)])
        others.append(_place(cell, shape, color, generator))
    named = [f"{list(COLORS)[x.color]} thing" if generator.random() < 0.3 else SHAPES[_own(x)] for x in (a, b)]
    answer = "yes" if RELATIONS[words](a, b) else "no"
    return [a, b, *others], Asked("position", f"is the {named[0]} {words} the {named[1]}", answer, (0, 1))


def _place(cell: int, shape: int, color: int, generator: np.random.Generator) -> Placed:
    """A shape of random size and angle in a cell of the grid."""
    jitter, size, stretch, angle = generator.random(2), generator.random(), generator.random(), generator.random()
    row, column = (np.array(divmod(int(cell), CELLS)) + 0.5 + 0.24 * (jitter - 0.5)) / CELLS
    extent, ratio = 0.085 + 0.035 * size, math.sqrt(1 + 0.2 * stretch)
    turn = (2 * angle - 1) * math.pi / 10
    name = NAMES.index(SHAPES[shape])
    return Placed(name, (float(row), float(column)), (extent * ratio, extent / ratio), turn, int(color))


def _own(placed: Placed) -> int:
    return SHAPES.index(NAMES[placed.shape])


def _any(names: Collection[str], generator: np.random.Generator) -> int:
    return int(generator.integers(len(names)))


def _other(value: int, count: int, generator: np.random.Generator) -> int:
    """A number below `count` other than `value`."""
    return int((value + 1 + generator.integers(count - 1)) % count)
