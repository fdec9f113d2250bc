"""look: draw where trained networks look, on images of one's own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate import models
from foveate.data.folders import BadFiles, DataError, ImageFiles, flat_folder
from foveate.figures.files import save
from foveate.figures.grids import animate, grid, sequence, sorted_strip
from foveate.gaze import Gaze, looks
from foveate.geometry import similarity, warp
from foveate.metrics.turning import Sight
from foveate.progress import counted

PER_FIGURE = 8  # images in one grid
THUMBNAIL = 256  # pixels of the longer side of what is drawn small


def look(
    where: Sequence[Path],
    checkpoints: Sequence[Path],
    out: Path,
    how: str = "overlay+outline",
    sort: str | None = None,
    moves: int | None = None,
) -> Iterator[Path]:
    """Draw the gazes of trained networks on images, and give the path of each figure as it is written.

    Args:
        where: image files, or folders of them.
        checkpoints: networks that foveate saved; each is a row of the figures.
        out: folder for the figures.
        how: a way of drawing, see `foveate.figures.draw`.
        sort: draw only the first and the last images by this parameter of the gaze, see `foveate.figures.measure`.
        moves: draw each image turned, shifted and scaled in so many steps instead, as a still and as an animation.
    """
    onlookers = load_onlookers(checkpoints)
    files = flat_folder(where)
    if moves is not None:
        yield from _moves(onlookers, files, out, how, moves)
    elif sort is not None:
        yield from _sorted(onlookers, files, out, sort)
    else:
        yield from _grids(onlookers, files, out, how)
    if files.problems:
        warnings.warn(files.report(limit=5), BadFiles, stacklevel=2)


class Onlooker:
    """A loaded network that says where it looks.

    Args:
        model: what `foveate.load` gives.
        name: what figures call it.
    """

    def __init__(self, model: Any, name: str) -> None:
        self.model = model
        self.name = name

    def see(self, images: Sequence[Tensor]) -> tuple[list[tuple[str, float]], dict[str, Gaze]]:
        """For each image of any size the likeliest class and how likely it is; and the gazes by name."""
        if not looks(self.model):
            raise DataError(f"the network {self.name!r} has no attention, so there is nothing to look at")
        inputs = torch.stack([self.model.preprocess(image) for image in images])
        sight = Sight.of(self.model, inputs)
        sure, labels = sight.logits.softmax(1).max(1)
        names = [str(self.model.class_names[label]) for label in labels.tolist()]
        several = len(sight.gazes) > 1
        gazes = {at: sight.placed(at, inputs.shape[-1]) for at in sight.gazes}
        said = list(zip(names, sure.tolist(), strict=True))
        return said, {f"{self.name}, {at}" if several else self.name: gaze for at, gaze in gazes.items()}


def load_onlookers(checkpoints: Sequence[str | Path]) -> list[Onlooker]:
    """The networks, each under its attention's name or its own, or its file's where that would not tell them apart."""
    loaded: list[Any] = [models.load(path) for path in checkpoints]
    names = [model.recipe.title for model in loaded]
    if len(set(names)) < len(names):
        names = [
            f"{name} at {', '.join(model.recipe.where) or 'last'}" for name, model in zip(names, loaded, strict=True)
        ]
    if len(set(names)) < len(names):
        names = [str(path) for path in checkpoints]
    return [Onlooker(model, name) for model, name in zip(loaded, names, strict=True)]


def _see(onlookers: Sequence[Onlooker], images: Sequence[Tensor]) -> tuple[list[str], dict[str, Gaze]]:
    """A caption for each image, and everybody's gazes."""
    said: list[list[tuple[str, float]]] = []
    gazes: dict[str, Gaze] = {}
    for onlooker in onlookers:
        own_words, own_gazes = onlooker.see(images)
        said.append(own_words)
        gazes.update(own_gazes)
    return [caption(words) for words in zip(*said, strict=True)], gazes


def caption(said: Sequence[tuple[str, float]]) -> str:
    """What one network takes an image for and how sure it is, or what several do, each class once.

    >>> caption([("cat", 0.9)]), caption([("cat", 0.9), ("cat", 0.7)]), caption([("cat", 0.9), ("dog", 0.7)])
    ('cat 90%', 'cat', 'cat / dog')
    """
    if len(said) == 1:
        return f"{said[0][0]} {said[0][1]:.0%}"
    return " / ".join(dict.fromkeys(name for name, _ in said))


def _batches(files: ImageFiles) -> Iterator[list[Tensor]]:
    starts = range(0, len(files), PER_FIGURE)
    for start in counted(starts, "Looking"):
        yield [files[index].image for index in range(start, min(start + PER_FIGURE, len(files)))]


def _grids(onlookers: Sequence[Onlooker], files: ImageFiles, out: Path, how: str) -> Iterator[Path]:
    """Figures of a few images each (rectangular Figs. 6 and 7)."""
    for number, images in enumerate(_batches(files)):
        captions, gazes = _see(onlookers, images)
        yield save(grid(images, gazes, how, captions=captions), out / f"look-{number:03}.png")


def _sorted(onlookers: Sequence[Onlooker], files: ImageFiles, out: Path, sort: str) -> Iterator[Path]:
    """The images at both ends of a parameter (rectangular Fig. 9)."""
    thumbnails: list[Tensor] = []
    parts: list[dict[str, Gaze]] = []
    for images in _batches(files):
        thumbnails += [_thumbnail(image) for image in images]
        parts.append(_see(onlookers, images)[1])
    for number, name in enumerate(parts[0]):
        gaze = Gaze.join([part[name] for part in parts])
        count = max(1, min(6, len(thumbnails) // 2))
        figure = sorted_strip(thumbnails, gaze, sort, count=count, title=f"{name}, by {sort}")
        suffix = f"-{number}" if len(parts[0]) > 1 else ""
        yield save(figure, out / f"sorted-{sort.replace('*', '-')}{suffix}.png")


def _thumbnail(image: Tensor) -> Tensor:
    """An image of any size (3, H, W) as one that many can be kept of, as wide for its height as it was."""
    scale = min(1.0, THUMBNAIL / max(image.shape[1:]))
    return _resized(image, (max(1, round(scale * image.shape[1])), max(1, round(scale * image.shape[2]))))


def _resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """An image (3, H, W) of bytes as floats (3, *size)."""
    return F.interpolate(image[None].float() / 255, size, mode="bilinear", antialias=True)[0].clamp(0, 1)


def _moves(onlookers: Sequence[Onlooker], files: ImageFiles, out: Path, how: str, steps: int) -> Iterator[Path]:
    """Each image through a smooth round of rotations, scales and shifts (rectangular Fig. 8)."""
    if steps < 2:
        raise DataError(f"a sequence has at least 2 steps, not {steps}")
    t = torch.arange(steps) * (2 * math.pi / steps)
    matrices = similarity(math.pi / 6 * t.sin(), 1 + 0.25 * t.sin(), 0.12 * torch.stack([t.sin(), t.cos() - 1], 1))
    for index in counted(range(len(files)), "Looking"):
        item = files[index]
        side = max(onlookers[0].model.preprocess.size, min(THUMBNAIL, *item.image.shape[1:]))
        image = _resized(item.image, (side, side))  # as networks see it: a similarity of the square is none of a strip
        moved = warp(image.expand(steps, -1, -1, -1), matrices, padding="border")
        captions, gazes = _see(onlookers, list(moved))
        stem = Path(item.name).stem
        yield save(sequence(moved, gazes, how, captions=captions), out / f"{stem}-moves.png")
        yield animate(out / f"{stem}-moves-animated.png", moved, gazes, how)
