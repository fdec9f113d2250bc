"""Attention as a density: contours over the image, with the rim of a sparse one drawn thick (continuous 6.2.4).

Discrete weights are drawn as the grid that they are on. Also the two figures of the theory, Fig. 3.1 and Fig. 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from foveate.densities import Gaussian, Mixture, TruncatedParaboloid, fit_mixture, grid_points
from foveate.figures.grids import check_counts, new_figure
from foveate.figures.overlay import Images, contour, draw, image_list, scaled_map
from foveate.figures.style import INK, MUTED, RIM, TRUTH, heat_colormap, styled
from foveate.gaze import Gaze
from foveate.geometry import pixel_centers
from foveate.pooling import ContinuousGaze

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the largest value
FINE = 160  # pixels of a side on which contours are found
_RIGHT, _WRONG = "#00795a", "#c2410c"


def density_contours(ax: Axes, gaze: ContinuousGaze, size: tuple[int, int], index: int = 0, width: float = 1.1) -> None:
    """Draw where a density takes shares of its largest value, and the rim of its support where it has one.

    Args:
        ax: with the image in it, see `foveate.figures.draw`.
        gaze: of a batch of images.
        size: (H, W) of the image.
        index: which image of the batch it is.
        width: of the contours; the rim is two and a half times as wide.

    >>> from matplotlib.figure import Figure
    >>> from foveate.pooling import ContinuousPool
    >>> gaze = ContinuousPool(8, alpha=2).look(torch.rand(1, 8, 7, 7))
    >>> density_contours(Figure().add_subplot(), gaze, (32, 32))
    """
    rows, columns = (pixel_centers(FINE, torch.zeros(())) * length for length in size)
    map = scaled_map(gaze, (FINE, FINE), index)
    if map.max() > min(LEVELS):
        lines = ax.contour(columns, rows, map, levels=LEVELS, cmap=heat_colormap(), vmin=-0.1, vmax=1, linewidths=width)
        lines.set_path_effects([withStroke(linewidth=width + 0.9, foreground="#00000070")])
    if gaze.alpha != 2:
        return
    frame = Rectangle((0, 0), size[1], size[0], transform=ax.transData)
    one = gaze.apply(lambda t: t[index : index + 1]).detach()
    for rim, share in zip(one.components.support.rim(128)[0], one.share[0], strict=True):
        if share > 0:
            xy = rim.flip(-1).numpy() * (size[1], size[0])
            thick = [withStroke(linewidth=2.5 * width + 1.2, foreground="#000000a0")]
            patch = Polygon(xy, fill=False, edgecolor=RIM, linewidth=2.5 * width, path_effects=thick)
            ax.add_patch(patch).set_clip_path(frame)


def attend_to(ax: Axes, image: Tensor, gaze: Gaze, index: int = 0, mask: Tensor | None = None) -> None:
    """Draw an image (3, H, W) and its gaze: the contours of a density, or the grid of discrete weights.

    >>> from matplotlib.figure import Figure
    >>> from foveate.pooling import DiscretePool
    >>> attend_to(Figure().add_subplot(), torch.rand(3, 32, 32), DiscretePool(8).look(torch.rand(1, 8, 7, 7)))
    """
    size = (image.shape[1], image.shape[2])
    if isinstance(gaze, ContinuousGaze):
        draw(ax, image)
        density_contours(ax, gaze, size, index)
    else:
        draw(ax, image, gaze, "overlay", index)
        _grid_lines(ax, size, (gaze.map.shape[2], gaze.map.shape[3]))
    if mask is not None:
        contour(ax, mask.reshape(mask.shape[-2:]), size, (0.5,), TRUTH, width=0.9)


def _grid_lines(ax: Axes, size: tuple[int, int], cells: tuple[int, int]) -> None:
    for row in range(1, cells[0]):
        ax.axhline(row * size[0] / cells[0], color="#ffffff", linewidth=0.3, alpha=0.35)
    for column in range(1, cells[1]):
        ax.axvline(column * size[1] / cells[1], color="#ffffff", linewidth=0.3, alpha=0.35)


@styled()
def attended(
    images: Images,
    gazes: Mapping[str, Gaze],
    questions: Sequence[str] | None = None,
    right: Sequence[str] | None = None,
    answers: Mapping[str, Sequence[str]] | None = None,
    masks: Tensor | None = None,
    title: str = "",
) -> Figure:
    """Images, questions, and where each pooling looked to answer them: continuous Figs. 6.4 to 6.11.

    Args:
        images: (B, 3, H, W) in [0, 1] or a sequence.
        gazes: by the name that the figure shows; each of the B images.
        questions, right: for each image, the question and its answer.
        answers: for each name, what was answered to each question.
        masks: (B, 1, H, W), the asked-about objects, drawn on the image itself.
        title: above it all.

    >>> from foveate.pooling import ContinuousPool
    >>> gaze = ContinuousPool(8).look(torch.rand(2, 8, 7, 7))
    >>> len(attended(torch.rand(2, 3, 32, 32), {"continuous softmax": gaze}).axes)
    4
    """
    pictures = image_list(images)
    check_counts(len(pictures), gazes, questions=questions, right=right, masks=masks)
    figure = new_figure(len(pictures), 1 + len(gazes), 1.0, 0.45 + 0.17 * len(pictures), 1.35 * bool(questions), title)
    axes = figure.subplots(len(pictures), 1 + len(gazes), squeeze=False)
    for row, (line, picture) in enumerate(zip(axes, pictures, strict=True)):
        draw(line[0], picture, mask=None if masks is None else masks[row])
        if questions is not None:
            text = fill(questions[row], 20)
            line[0].set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8.5, fontweight="bold", labelpad=8)
        if right is not None:
            line[0].set_xlabel(right[row], fontsize=8, color=MUTED, labelpad=2)
        for ax, (name, gaze) in zip(line[1:], gazes.items(), strict=True):
            attend_to(ax, picture, gaze, row)
            if answers is not None and right is not None:
                correct = answers[name][row] == right[row]
                ax.set_xlabel(answers[name][row], fontsize=8, color=_RIGHT if correct else _WRONG, labelpad=2)
    for ax, name in zip(axes[0], ["image", *gazes], strict=True):
        ax.set_title(fill(name.replace("-", " "), 13), fontsize=8.5, loc="center", pad=5)
    return figure


@styled()
def prediction_maps() -> Figure:
    """Continuous Fig. 3.1: the Gaussian N(t; 0, I), nowhere zero, and the truncated paraboloid TP(t; 0, I).

    >>> len(prediction_maps().axes)
    4
    """
    figure = Figure(figsize=(9.6, 3.5))
    zero, one = torch.zeros(2), torch.eye(2)
    named = {"Gaussian, α = 1": Gaussian(zero, one), "truncated paraboloid, α = 2": TruncatedParaboloid(zero, one)}
    line = torch.linspace(-3.2, 3.2, 241)
    points = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1)
    for place, (name, density) in enumerate(named.items()):
        values = density.pdf(points.flatten(0, 1)).reshape(len(line), len(line)).numpy()
        left, top = 0.5 * place, float(values.max())
        surface: Any = figure.add_axes((left - 0.015, 0.0, 0.31, 0.9), projection="3d")
        surface.plot_surface(
            points[..., 1],
            points[..., 0],
            values,
            cmap=heat_colormap(),
            rcount=120,
            ccount=120,
            lw=0,
            antialiased=False,
        )
        surface.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2], zlim=(0, 1.05 * top), zticks=[0, round(top, 2)])
        surface.tick_params(labelsize=7, pad=-2)
        surface.view_init(26, -58)
        flat = figure.add_axes((left + 0.335, 0.2, 0.14, 0.14 * 9.6 / 3.5))
        flat.imshow(values, extent=(-3.2, 3.2, 3.2, -3.2), cmap=heat_colormap(), interpolation="bilinear")
        flat.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2])
        flat.tick_params(labelsize=7, length=2)
        if isinstance(density, TruncatedParaboloid):
            rim = density.support.rim(200).numpy()
            flat.fill(rim[:, 1], rim[:, 0], fill=False, edgecolor=RIM, linewidth=2.0)
        figure.text(left + 0.02, 0.93, name, fontsize=11, fontweight="bold", color=INK)
        note = "zero outside its rim" if place else "nowhere zero"
        figure.text(left + 0.02, 0.875, f"{note}, peak {top:.2f}", fontsize=8.5, color=MUTED)
    return figure


@styled()
def two_clumps(seed: int = 0) -> Figure:
    """Continuous Fig. 5.1: points in two clumps, fitted by one Gaussian and by a mixture of two.

    >>> len(two_clumps().axes)
    2
    """
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, 90, 2, generator=generator) * torch.tensor([0.10, 0.05])
    turn = torch.tensor([[0.94, 0.34], [-0.34, 0.94]])
    points = (noise @ turn + torch.tensor([[0.36, 0.26], [0.62, 0.76]])[:, None]).flatten(0, 1)
    weights = torch.full((1, len(points)), 1 / len(points))
    mixture = fit_mixture(points, weights, 2, 60)
    fitted: dict[str, Gaussian | Mixture] = {
        "one Gaussian": Gaussian.from_weights(points, weights),
        "a mixture of two, by EM": mixture,
    }
    figure = Figure(figsize=(7.2, 3.7), layout="constrained")
    line = pixel_centers(FINE, torch.zeros(()))
    for ax, (name, density) in zip(figure.subplots(1, 2), fitted.items(), strict=True):
        values = density.pdf(grid_points((FINE, FINE), torch.zeros(())))[0].reshape(FINE, FINE)
        levels = np.geomspace(0.02, 0.9, 7) * float(values.max())
        ax.contour(line, line, values, levels=levels, cmap=heat_colormap(), linewidths=1.4)
        ax.plot(points[:, 1], points[:, 0], "o", color=INK, alpha=0.55, markersize=3, markeredgewidth=0)
        ax.set(xlim=(0, 1), ylim=(1, 0), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
        ax.set_title(name)
    return figure
