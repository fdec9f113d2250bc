"""An image on its way through a group, bit by bit, and the gazes following it or not: Figs. 7 and 10, moving."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from foveate.figures.grids import fold, frame, shorten, write_frames
from foveate.figures.overlay import draw
from foveate.figures.style import styled
from foveate.figures.turning import CELL, GAP, LINE, Panel, Row, cell, element_names, gaze_rows, text, verdict
from foveate.geometry import similarity, warp
from foveate.groups import Group
from foveate.metrics.turning import Sight

STEPS = 24  # from an angle to the same angle
_SECONDS, _REST = 0.11, 1.0  # that an image is shown for, and one at an element of the group
_DPI = 110


@dataclass(frozen=True)
class Round:
    """An image turned bit by bit once around and, where the group mirrors, mirrored and turned around again.

    Attributes:
        images: (T, C, H, H).
        elements: the index of the element that each is moved by; None between two of them.
    """

    images: Tensor
    elements: Sequence[int | None]

    @classmethod
    def of(cls, image: Tensor, group: Group, steps: int = STEPS) -> Self:
        """The round of an image (C, H, H): moved exactly at the elements of a group, and by interpolation between.

        >>> from foveate.groups import MIRROR, P4
        >>> Round.of(torch.rand(3, 8, 8), P4, steps=8).elements
        [0, None, 1, None, 2, None, 3, None]
        >>> Round.of(torch.rand(3, 8, 8), MIRROR).elements
        [0, 1]
        """
        mirrors = [a * d - b * c < 0 for (a, b), (c, d) in group.elements]
        images: list[Tensor] = []
        elements: list[int | None] = []
        for half in (False, True):
            members = [h for h, mirror in enumerate(mirrors) if mirror is half]
            at = {_step(group, h, members[0], steps): h for h in members}
            for step in range(steps if len(at) > 1 else len(at)):
                h = at.get(step)
                start = group.move(image, members[0])
                images.append(_turned(start, step / steps) if h is None else group.move(image, h))
                elements.append(h)
        return cls(torch.stack(images), elements)


def _step(group: Group, h: int, start: int, steps: int) -> int:
    """At which of so many steps around the element `start` has become h."""
    (a, _), (c, _) = group.elements[group.product(h, group.inverse(start))]
    return round(math.atan2(c, a) / (2 * math.pi) * steps) % steps


def _turned(image: Tensor, share: float) -> Tensor:
    """An image (C, H, H) turned by a share of the full circle; what comes from outside continues its border."""
    matrix = similarity(torch.tensor([2 * math.pi * share]), torch.ones(1), torch.zeros(1, 2))
    return warp(image[None], matrix, padding="border")[0]


@dataclass(frozen=True)
class Strip:
    """A panel, moving: a line of an animation.

    Attributes:
        panel: what is known of it at the elements of the group.
        pictures: (T, 3, H, H) in [0, 1].
        sight: of the network, on each of them.
    """

    panel: Panel
    pictures: Tensor
    sight: Sight

    def rows(self) -> list[Row]:
        """The maps and roses of each gaze."""
        pictures = list(self.pictures)
        return [row for name in self.panel.names for row in gaze_rows(self.sight, pictures, name)]


def animate_rounds(path: str | os.PathLike[str], strips: Sequence[Strip], elements: Sequence[int | None]) -> Path:
    """Write the strips, one above the other, as an animated image, .png or .gif; it rests at the group's elements."""
    frames = [_frame(strips, k, h) for k, h in enumerate(elements)]
    return write_frames(path, frames, [_SECONDS if h is None else _REST for h in elements])


@styled()
def _frame(strips: Sequence[Strip], k: int, element: int | None) -> Image.Image:
    """The k-th picture of each strip, and what was seen in it."""
    lines = [strip.rows() for strip in strips]
    width = 0.1 + (1 + max(map(len, lines))) * (CELL + GAP)
    height = len(strips) * (CELL + 3.4 * LINE) + 0.02
    figure = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    for i, (strip, rows) in enumerate(zip(strips, lines, strict=True)):
        y = height - i * (CELL + 3.4 * LINE) - 0.05
        text(figure, 0.08, y, strip.panel.title, ha="left", fontsize=9, fontweight="bold")
        _line(figure, strip, rows, y - 1.2 * LINE, k, element)
    return frame(figure)


def _line(figure: Figure, strip: Strip, rows: Sequence[Row], y: float, k: int, element: int | None) -> None:
    x, turned = 0.08, strip.panel.turned
    draw(cell(figure, x, y - LINE), strip.pictures[k])
    if element is not None:
        parts = [element_names(turned.group)[element], *strip.panel.captions[element : element + 1]]
        text(figure, x + CELL / 2, y - LINE - CELL - 0.02, shorten(": ".join(parts), 30), fontsize=7.5)
    name = ""
    for row in rows:
        x += CELL + GAP
        row.draw(cell(figure, x, y - LINE), k)
        name = name if row.muted else row.label
        text(figure, x + CELL / 2, y, fold(row.label, 20), fontsize=8)
        if not row.muted and element:
            words, color = verdict(float(turned.errors(name)[element]))
            text(figure, x + CELL / 2, y - LINE - CELL - 0.02, words, fontsize=7.5, color=color)
