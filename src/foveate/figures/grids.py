"""Many gazes on many images: side by side, along a sequence, sorted by a parameter, moving."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image
from torch import Tensor

from foveate.figures.files import write
from foveate.figures.overlay import Images, draw, image_list, parse_how
from foveate.figures.style import INK, MUTED, styled
from foveate.gaze import Gaze
from foveate.geometry import pixel_centers

_CELL = 1.35  # inches of the side of a cell
_LETTERS = 12  # letters of a name in an inch


@styled()
def grid(
    images: Images,
    gazes: Mapping[str, Gaze],
    how: str | Mapping[str, str] = "overlay+outline",
    captions: Sequence[str] | None = None,
    masks: Images | None = None,
    truth: Gaze | None = None,
    title: str = "",
    images_along: str = "columns",
    first: str = "image",
) -> Figure:
    """Images and, for each name, where it looked: rectangular Fig. 6, and Fig. 7 with `images_along="rows"`.

    Args:
        images: (B, 3, H, W) in [0, 1], or a sequence of (3, H, W) whose sizes may differ.
        gazes: by the name that the figure shows; each of the B images.
        how: a way of drawing, see `draw`, or one for each name.
        captions: a line for each image, for instance its class.
        masks: (B, 1, H, W), what is known to be there; drawn on the image itself and on every gaze.
        truth: a gaze known to be right, drawn likewise.
        title: above it all.
        images_along: "columns" (one image, one column) or "rows".
        first: the name of the images themselves; empty to leave them out.

    >>> figure = grid(torch.rand(4, 3, 32, 32), {"position-wise": Gaze(torch.rand(4, 1, 7, 7))})
    >>> len(figure.axes)
    8
    """
    pictures = image_list(images)
    if images_along not in ("columns", "rows"):
        raise ValueError(f"images_along must be 'columns' or 'rows', not {images_along!r}")
    names = [first] * bool(first) + list(gazes)
    if not names:
        raise ValueError("there is nothing to draw: give gazes, or a name for the images themselves")
    ways = {name: how if isinstance(how, str) else how.get(name, "overlay+outline") for name in gazes}
    for way in ways.values():
        parse_how(way)
    check_counts(len(pictures), gazes, captions=captions, masks=masks, truth=truth)

    across = images_along == "columns"
    ratio = _ratio(pictures)
    rows, columns = (len(names), len(pictures)) if across else (len(pictures), len(names))
    width, height = _cell(ratio)
    labels = [fold(name, round((height if across else width) * _LETTERS)) for name in names]
    lines = 1 + max(label.count("\n") for label in labels)
    head = bool(captions) if across else 1.25 * lines
    figure = new_figure(rows, columns, ratio, 0.2 * head, 0.1 + 0.2 * (lines if across else bool(captions)), title)
    axes = figure.subplots(rows, columns, squeeze=False)
    for i, name in enumerate(names):
        for k, picture in enumerate(pictures):
            ax = axes[i, k] if across else axes[k, i]
            mask = None if masks is None else masks[k]
            draw(ax, picture, gazes.get(name), ways.get(name, "image"), k, mask, truth)
            _letterbox(ax, picture, ratio)
    _label(axes if across else axes.T, labels, captions, across)
    return figure


def _ratio(pictures: Sequence[Tensor]) -> float:
    """Height over width of the cells that hold pictures of these sizes."""
    ratio = float(np.median([picture.shape[1] / picture.shape[2] for picture in pictures]))
    return min(max(ratio, 0.5), 2.0) if len({picture.shape for picture in pictures}) > 1 else ratio


def _letterbox(ax: Axes, picture: Tensor, ratio: float) -> None:
    """Put a picture in the middle of a cell whose height over width is `ratio`."""
    height, width = picture.shape[1:]
    x, y = max(0.0, (height / ratio - width) / 2), max(0.0, (width * ratio - height) / 2)
    ax.set(xlim=(-x, width + x), ylim=(height + y, -y), facecolor="#f1f2f4")


def _cell(ratio: float) -> tuple[float, float]:
    """Width and height of a cell, in inches."""
    return _CELL / max(ratio, 1.0) ** 0.5, _CELL * ratio / max(ratio, 1.0) ** 0.5


def new_figure(rows: int, columns: int, ratio: float, head: float, left: float, title: str) -> Figure:
    """A figure for cells of one ratio, with room for a line of text above and on the left (inches)."""
    width, height = _cell(ratio)
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    size = (columns * (width + 0.04) + left + 0.04, rows * (height + 0.04) + head + 0.04 + 0.3 * bool(title))
    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.0, ha="left", fontsize=12, fontweight="bold")
    return figure


def _label(axes: np.ndarray, names: Sequence[str], captions: Sequence[str] | None, across: bool) -> None:
    """Names at the start of each line of gazes, captions at the start of each image; `axes` is (names, images)."""
    for ax, name in zip(axes[:, 0], names, strict=True):
        if across:
            ax.set_ylabel(name, fontsize=9, fontweight="bold", labelpad=5)
        else:
            ax.set_title(name, fontsize=9, loc="center")
    for ax, caption in zip(axes[0], captions or (), strict=False):
        if across:
            ax.set_title(shorten(caption, 22), fontsize=8, fontweight="normal", color=INK, loc="center", pad=4)
        else:
            ax.set_ylabel(shorten(caption, 22), fontsize=8, labelpad=5)


def fold(text: str, length: int) -> str:
    """A name in lines of at most `length` letters, broken at spaces and hyphens where it has any.

    >>> fold("rectangular-equivariant", 12).splitlines()
    ['rectangular-', 'equivariant']
    """
    lines = (wrap(line, max(1, length), break_long_words=False) or [""] for line in text.splitlines() or [""])
    return "\n".join(part for parts in lines for part in parts)


def shorten(text: str, length: int) -> str:
    """A text that fits, its end replaced by an ellipsis where it does not.

    >>> shorten("american_pit_bull_terrier", 12)
    'american_pi…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def check_counts(count: int, gazes: Mapping[str, Gaze], **others: object) -> None:
    """A short error where something is not there for each of `count` images."""
    for name, given in {**gazes, **others}.items():
        if given is not None and len(given) != count:  # type: ignore[arg-type]
            raise ValueError(f"{name!r} is for {len(given)} images, but {count} are drawn")  # type: ignore[arg-type]


def sequence(
    images: Images,
    gazes: Mapping[str, Gaze],
    how: str | Mapping[str, str] = "overlay+outline",
    captions: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """One image moved step by step, and where each attention looked on the way: rectangular Fig. 8.

    >>> figure = sequence(torch.rand(5, 3, 32, 32), {"position-wise": Gaze(torch.rand(5, 1, 7, 7))})
    >>> len(figure.axes)
    5
    """
    return grid(images, gazes, how, captions, title=title, first="" if gazes else "image")


def animate(
    path: str | os.PathLike[str],
    images: Images,
    gazes: Mapping[str, Gaze],
    how: str | Mapping[str, str] = "overlay+outline",
    frames_per_second: float = 8.0,
    first: str = "image",
    there_and_back: bool = False,
) -> Path:
    """The sequence of `sequence` as an animated image, .png or .gif, that loops: the image and the gazes side by side.

    >>> from tempfile import mkdtemp
    >>> path = animate(Path(mkdtemp()) / "a.png", torch.rand(3, 3, 32, 32), {"p.w.": Gaze(torch.rand(3, 1, 7, 7))})
    >>> Image.open(path).n_frames
    3
    """
    pictures = image_list(images)
    check_counts(len(pictures), gazes)
    frames = []
    for k, picture in enumerate(pictures):
        one = {name: gaze.apply(lambda t: t[k : k + 1]) for name, gaze in gazes.items()}  # noqa: B023
        frames.append(frame(grid([picture], one, how, images_along="rows", first=first)))
    if there_and_back:
        frames += frames[-2:0:-1]
    return write_frames(path, frames, [1 / frames_per_second] * len(frames))


def write_frames(path: str | os.PathLike[str], frames: Sequence[Image.Image], seconds: Sequence[float]) -> Path:
    """Pictures as an animated image, .png or .gif, that loops; each is shown for its own time."""
    path = Path(path)
    if path.suffix.lower() not in (".png", ".gif"):
        raise ValueError(f"an animated image is written as .png or .gif, not {path.name!r}")
    canvas = tuple(max(frame.size[i] for frame in frames) for i in (0, 1))
    frames = [frame if frame.size == canvas else _centered(frame, canvas) for frame in frames]
    buffer = io.BytesIO()
    form = "PNG" if path.suffix.lower() == ".png" else "GIF"
    durations = [round(1000 * second) for second in seconds]
    frames[0].save(buffer, form, save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return write(path, buffer.getvalue())


@styled()
def frame(figure: Figure) -> Image.Image:
    """A figure as a picture."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # the layout settles with the second drawing
    canvas.draw()  # type: ignore[no-untyped-call]
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")  # type: ignore[no-untyped-call]


def _centered(frame: Image.Image, size: tuple[int, ...]) -> Image.Image:
    canvas = Image.new("RGB", (size[0], size[1]), "white")
    canvas.paste(frame, ((size[0] - frame.width) // 2, (size[1] - frame.height) // 2))
    return canvas


def measure(gaze: Gaze, name: str) -> Tensor:
    """A parameter of each image's gaze (B,), by name; a product of two is written with "*".

    Names are center.row, center.col, extent.row, extent.col, angle, area (4σ1σ2, in images) and map (its mean). The
    centre of a gaze that has none is the centre of mass of its map; of several rectangles, a parameter is their mean.

    >>> measure(Gaze(torch.eye(4)[None, None]), "center.row*center.col")
    tensor([0.2500])
    """
    factors = [_measure(gaze, part.strip()) for part in name.split("*")]
    return torch.stack(factors).prod(0)


def _measure(gaze: Gaze, name: str) -> Tensor:
    gaze = gaze.detach()
    field, _, part = name.partition(".")
    if field == "map" and not part:
        return gaze.map.flatten(1).mean(1)
    values = getattr(gaze, "extent" if field == "area" else field, None)
    if values is None and field == "center":
        values = _center_of_mass(gaze.map)
    known = part in ("row", "col") if field in ("center", "extent") else field in ("angle", "area") and not part
    if not known or not isinstance(values, Tensor):
        there = "center.row, center.col, map" + (
            ", extent.row, extent.col, angle, area" if hasattr(gaze, "extent") else ""
        )
        raise ValueError(f"this gaze cannot be sorted by {name!r}; there are: {there}")
    if field == "area":
        values = 4 * values.prod(-1)
    elif part:
        values = values[..., ("row", "col").index(part)]
    return values if values.ndim == 1 else values.mean(1)


def _center_of_mass(map: Tensor) -> Tensor:
    weights = map[:, 0].float() / map[:, 0].float().sum(dim=(1, 2), keepdim=True).clamp_min(1e-12)
    rows, columns = (pixel_centers(length, weights) for length in weights.shape[1:])
    return torch.stack([(weights.sum(2) * rows).sum(1), (weights.sum(1) * columns).sum(1)], dim=1)


@styled()
def sorted_strip(
    images: Images,
    gaze: Gaze,
    name: str = "center.col",
    values: Tensor | None = None,
    count: int = 6,
    how: str = "outline",
    title: str = "",
) -> Figure:
    """The images with the smallest and with the largest values of a parameter: rectangular Fig. 9.

    Args:
        images: (B, 3, H, W) or a sequence.
        gaze: of these images.
        name: the parameter, see `measure`; where `values` are given, only what the figure calls them.
        values: (B,), to sort by something else.
        count: how many of either end; fewer where there are fewer than 2·count images.
        how: see `draw`.
        title: above it all.

    >>> from foveate.attention.rectangular import RectangleGaze
    >>> gaze = RectangleGaze.draw(torch.rand(9, 2), torch.full((9, 2), 0.2), torch.zeros(9), (7, 7))
    >>> len(sorted_strip(torch.rand(9, 3, 32, 32), gaze, "center.col", count=3).axes)
    6
    """
    pictures = image_list(images)
    values = measure(gaze, name) if values is None else values.detach().cpu()
    check_counts(len(pictures), {"gaze": gaze}, values=values)
    order = values.argsort().tolist()
    count = max(1, min(count, len(order) // 2))
    ends = {"smallest": order[:count], "largest": order[-count:]} if len(order) > 1 else {"only": order}
    ratio = _ratio(pictures)
    figure = new_figure(len(ends), count, ratio, 0.18 * len(ends), 0.5 + 0.17 * name.count("*"), title)
    axes = figure.subplots(len(ends), count, squeeze=False)
    for line, (end, indices) in zip(axes, ends.items(), strict=True):
        line[0].set_ylabel(f"{end}\n" + name.replace("*", " ×\n"), fontsize=9, fontweight="bold", labelpad=5)
        for ax, index in zip(line, indices, strict=True):
            draw(ax, pictures[index], gaze, how, index)
            _letterbox(ax, pictures[index], ratio)
            ax.set_title(f"{values[index]:.2f}", fontsize=7.5, fontweight="normal", color=MUTED, loc="center", pad=2)
    return figure
