"""An input turned and mirrored, and whether what a network sees turns with it: equivariant Figs. 7, 8, 10 and 11."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from foveate.figures.consistency import KEPT, LOST
from foveate.figures.grids import fold, shorten
from foveate.figures.overlay import Array, draw, image_list, outline
from foveate.figures.roses import few, roses
from foveate.figures.style import INK, MUTED, heat_colormap, styled
from foveate.groups import Group
from foveate.metrics.turning import Sight, Turned

LONGEST = 0.97  # of the petals are drawn as long as they are; a few strong positions would hide the others
EXACT = 1e-3  # of what a gaze spans: more than arithmetic in float32 leaves
CELL, GAP, LINE = 1.6, 0.05, 0.19  # inches
_LEFT, _BETWEEN, _ABREAST = 0.9, 0.35, 9  # room for labels, between panels; columns that stand side by side
_SIDE = 360  # pixels in which a map is drawn
_DIFFERENCES = LinearSegmentedColormap.from_list("differences", ["#f1f2f4", "#f6a66a", LOST, "#5a1400"])
LEGEND = (
    "Maps: what is bright is let through. Roses: how strong each pose responds; a petal points where up is turned to.\n"
    "Each row has one scale, from its smallest value to its largest (petals: but for 3 %), and errors are parts of it."
)


@dataclass(frozen=True)
class Row:
    """A row of a figure about several images.

    Attributes:
        label: on its left.
        draw: draws the cell of the image at an index.
        muted: whether it belongs to the row above.
        notes: a text and its colour below each cell; none where another row of the same gaze follows.
    """

    label: str
    draw: Callable[[Axes, int], None]
    muted: bool = False
    notes: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Panel:
    """A network and an image, for one part of a figure.

    Attributes:
        title: above the part.
        picture: (3, H, H) in [0, 1], the image as it is.
        turned: what the network saw.
        names: of the gazes to draw.
        captions: a line for each moved image, for instance what the network says.
    """

    title: str
    picture: Tensor
    turned: Turned
    names: Sequence[str]
    captions: Sequence[str] = ()

    def rows(self, differences: Mapping[str, float]) -> list[Row]:
        """The image and each gaze, moved by every element; for some gazes a row of differences, up to the largest."""
        group = self.turned.group
        pictures = [group.move(self.picture, h) for h in range(len(group))]
        captions = [(shorten(caption, 22), INK) for caption in self.captions]
        rows = [Row("image", lambda ax, k: draw(ax, pictures[k]), notes=captions)]
        for name in self.names:
            own = gaze_rows(self.turned.sight, pictures, name)
            if name in differences:
                own.append(self._differences(name, differences[name]))
            notes = [("", INK), *(verdict(error) for error in self.turned.errors(name)[1:].tolist())]
            own[-1] = Row(own[-1].label, own[-1].draw, own[-1].muted, notes)
            rows += own
        return rows

    def off(self) -> dict[str, float]:
        """The gazes that are not where they should be, and by how much at most."""
        largest = {name: float(self.turned.errors(name).max()) for name in self.names}
        return {name: error for name, error in largest.items() if error > EXACT}

    def _differences(self, name: str, largest: float) -> Row:
        parts, reach = self.turned.differences(name), self.turned.sight.reach[name]
        return Row("difference", lambda ax, k: difference_cell(ax, parts[k] / largest, reach), muted=True)


def gaze_rows(sight: Sight, pictures: Sequence[Tensor], name: str) -> list[Row]:
    """The maps at a layer and, where it has poses, the roses."""
    gaze, reach = sight.gazes[name], sight.reach[name]
    maps = stretched(gaze.map[:, 0])

    def map_row(ax: Axes, k: int) -> None:
        map_cell(ax, pictures[k], maps[k], reach)
        outline(ax, gaze, (_SIDE, _SIDE), k)

    rows = [Row(name, map_row)]
    if name in sight.strengths:
        strengths, group = stretched(few(sight.strengths[name].poses, reach), LONGEST), sight.strengths[name].group
        rows.append(Row("poses", lambda ax, k: rose_cell(ax, pictures[k], strengths[k], group, reach), muted=True))
    return rows


def element_names(group: Group) -> list[str]:
    """What the elements of a group do to an image, in words.

    >>> from foveate.groups import MIRROR, P4
    >>> element_names(P4), element_names(MIRROR)
    (['as it is', '90°', '180°', '270°'], ['as it is', 'mirrored at |'])
    """
    names = []
    for (a, b), (c, d) in group.elements:
        if a * d - b * c > 0:
            angle = round(math.degrees(math.atan2(c, a))) % 360
            names.append(f"{angle}°" if angle else "as it is")
        else:
            axis = {(1, 0): "|", (-1, 0): "—", (0, 1): "\\", (0, -1): "/"}[a, b]
            names.append(f"mirrored at {axis}")
    return names


def spread(sight: Sight, count: int) -> list[str]:
    """So many of the gazes, from the first to the last, of those that have positions to tell apart.

    >>> from foveate import Gaze
    >>> sight = Sight({f"c{k}": Gaze(torch.rand(1, 1, 9 - k, 9 - k)) for k in range(9)}, {}, {}, torch.zeros(1, 2))
    >>> spread(sight, 3)  # the others have less than 7 positions along a side
    ['c0', 'c1', 'c2']
    """
    wide = [name for name, gaze in sight.gazes.items() if min(gaze.map.shape[-2:]) >= 7] or list(sight.gazes)
    if len(wide) <= count:
        return wide
    return [wide[round(k * (len(wide) - 1) / max(1, count - 1))] for k in range(count)]


@styled()
def turning(panels: Sequence[Panel], title: str = "") -> Figure:
    """Figs. 7 and 11, and 10 beside it where there are two panels: an image moved by each element, and the gazes.

    Under each gaze stands how far it is from the first one moved; where one is off, the differences have a row.

    Args:
        panels: networks, or one network at two sizes of the image; side by side where they fit.
        title: above it all.

    >>> from foveate import Gaze
    >>> from foveate.groups import P4
    >>> sight = Sight({"a": Gaze(torch.rand(4, 1, 5, 5))}, {}, {"a": 1.0}, torch.zeros(4, 2))
    >>> figure = turning([Panel("plain", torch.rand(3, 9, 9), Turned(P4, sight), ["a"])])
    >>> len(figure.axes)  # the image, its gaze, and how far that is off, four times
    12
    """
    off: dict[str, float] = {}
    for panel in panels:
        off.update({name: max(error, off.get(name, 0.0)) for name, error in panel.off().items()})
    parts = [panel.rows(off) for panel in panels]
    widths = [len(panel.turned.group) * (CELL + GAP) for panel in panels]
    heights = [2.2 * LINE + sum(CELL + GAP + LINE * bool(row.notes) for row in rows) for rows in parts]
    abreast = sum(len(panel.turned.group) for panel in panels) < _ABREAST
    head, foot = 0.06 + 0.3 * bool(title), 0.42
    spaces = _BETWEEN * (len(panels) - 1)
    width = _LEFT + (sum(widths) + spaces if abreast else max(widths))
    height = head + foot + (max(heights) if abreast else sum(heights) + spaces)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    if title:
        figure.text(_LEFT / width, 1 - 0.05 / height, title, va="top", fontsize=12, fontweight="bold")
    x, y = _LEFT, height - head
    for k, panel in enumerate(panels):
        labels = not (abreast and k and panel.names == panels[0].names)
        _block(figure, panel, parts[k], x, y, labels)
        x, y = (x + widths[k] + _BETWEEN, y) if abreast else (x, y - heights[k] - _BETWEEN)
    figure.text(_LEFT / width, 0.04 / height, LEGEND, va="bottom", fontsize=7.5, color=MUTED)
    return figure


def _block(figure: Figure, panel: Panel, rows: Sequence[Row], x: float, y: float, labels: bool) -> None:
    """Draw a panel with its upper left corner at (x, y) inches from the lower left one of the figure."""
    count = len(panel.turned.group)
    text(figure, x, y, panel.title, ha="left", fontsize=9.5, fontweight="bold")
    y -= 1.2 * LINE
    for k, name in enumerate(element_names(panel.turned.group)):
        text(figure, x + k * (CELL + GAP) + CELL / 2, y, name, fontsize=8)
    y -= LINE
    for row in rows:
        for k in range(count):
            ax = cell(figure, x + k * (CELL + GAP), y)
            row.draw(ax, k)
            if labels and k == 0:
                color, weight = (MUTED, "normal") if row.muted else (INK, "bold")
                ax.set_ylabel(fold(row.label, 16), fontsize=8.5, labelpad=5, color=color, fontweight=weight)
        y -= CELL + GAP
        for k, (note, color) in enumerate(row.notes):
            text(figure, x + k * (CELL + GAP) + CELL / 2, y + 0.02, note, fontsize=7.5, color=color)
        y -= LINE * bool(row.notes)


def cell(figure: Figure, x: float, y: float) -> Axes:
    """Axes of one cell, their upper left corner at (x, y) inches from the lower left one of the figure."""
    width, height = figure.get_size_inches()
    return figure.add_axes((x / width, (y - CELL) / height, CELL / width, CELL / height))


def text(figure: Figure, x: float, y: float, words: str, ha: str = "center", **style: Any) -> None:
    """A line of text that hangs from (x, y), in inches."""
    width, height = figure.get_size_inches()
    figure.text(x / width, y / height, words, ha=ha, va="top", **style)


def verdict(error: float) -> tuple[str, str]:
    """An error in words, and their colour.

    >>> verdict(0.0)[0], verdict(0.084)[0]
    ('exact', 'off by 8.4 %')
    """
    return ("exact", KEPT) if error <= EXACT else (f"off by {100 * error:.1f} %", LOST)


def stretched(values: Tensor, share: float = 1.0) -> Tensor:
    """Values from their smallest to their largest, or the largest but for a share, as 0 to 1; if all are equal, as ½.

    >>> stretched(torch.tensor([0.5, 0.6, 0.7]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    low, high = values.min(), values.flatten().sort().values[round(share * (values.numel() - 1))]
    varies = high - low > 1e-6 * torch.maximum(high.abs(), low.abs())
    return ((values - low) / (high - low)).clamp_max(1) if varies else torch.full_like(values, 0.5)


def map_cell(ax: Axes, picture: Tensor, map: Tensor, reach: float) -> None:
    """Draw a map (H', W') in [0, 1] where it lies on the picture, whose lights and shadows stay visible."""
    grey = _large(picture).mean(2, keepdims=True)
    values, inside = _in_place(map, reach)
    canvas = np.repeat(0.45 * grey, 3, axis=2)
    light = grey[inside, inside]
    canvas[inside, inside] = heat_colormap()(values)[..., :3] * (0.72 + 0.28 * light) + 0.22 * light
    _show(ax, canvas.clip(0, 1))


def rose_cell(ax: Axes, picture: Tensor, strengths: Tensor, group: Group, reach: float) -> None:
    """Draw roses of strengths (|H|, H', W') in [0, 1] on a darkened picture."""
    large = _large(picture)
    _show(ax, 0.06 + 0.4 * (0.3 * large + 0.7 * large.mean(2, keepdims=True)))
    roses(ax, strengths, group, (_SIDE, _SIDE), reach)


def difference_cell(ax: Axes, parts: Tensor, reach: float) -> None:
    """Draw how far a map is off at each position (H', W'): pale is 0, dark is 1."""
    canvas = np.full((_SIDE, _SIDE, 3), 0.985, dtype=np.float32)
    values, inside = _in_place(parts, reach)
    canvas[inside, inside] = _DIFFERENCES(values)[..., :3]
    _show(ax, canvas)


def _in_place(map: Tensor, reach: float) -> tuple[Array, slice]:
    """A map as large as it is drawn, and the rows and columns that it takes."""
    edge = min(round(_SIDE * (1 - reach) / 2), _SIDE // 2 - 1)
    size = (_SIDE - 2 * edge, _SIDE - 2 * edge)
    values: Array = F.interpolate(map[None, None].float(), size, mode="bilinear", align_corners=False)[0, 0].numpy()
    return values, slice(edge, _SIDE - edge)


def _large(picture: Tensor) -> Array:
    (picture,) = image_list(picture)
    mode = "nearest" if picture.shape[1] <= _SIDE else "area"
    array: Array = F.interpolate(picture[None], (_SIDE, _SIDE), mode=mode)[0].permute(1, 2, 0).numpy()
    return array


def _show(ax: Axes, array: Array) -> None:
    ax.imshow(array, extent=(0, _SIDE, _SIDE, 0), interpolation="antialiased")
    ax.set(xlim=(0, _SIDE), ylim=(_SIDE, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
