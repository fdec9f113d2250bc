"""Where an attention looked before and after a modification, and what that counts for: bottleneck Fig. 3, curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from foveate.attach import undisturbed
from foveate.figures.grids import fold, shorten
from foveate.figures.overlay import draw
from foveate.figures.style import INK, MUTED, colors, styled
from foveate.gaze import Gaze, watch
from foveate.metrics.functional import map_cosine
from foveate.metrics.modifications import PAPER_SIDE, Modification

T = TypeVar("T")
KEPT, LOST = "#00795a", "#b8400a"  # of verdicts, told apart by readers with any of the common colour deficiencies
_CELL, _GAP, _LINE = 1.5, 0.06, 0.2  # inches


@dataclass(frozen=True)
class View:
    """What a network saw of some images in one condition, and what it made of them.

    Attributes:
        images: (B, 3, H, W) in [0, 1].
        gazes: by the name of the attention.
        classes: the class it gave each image.
        cosines: by the name of the attention, (B,), between its map here and that of the images as they were.
    """

    images: Tensor
    gazes: Mapping[str, Gaze]
    classes: Sequence[str]
    cosines: Mapping[str, Tensor]


def view(model: Any, images: Tensor, plain: View | None = None) -> View:
    """What a loaded network sees on images (B, 3, H, W) as it takes them, held against what it saw on `plain` ones."""
    with watch(model) as gazes, torch.no_grad():
        labels = model(images).argmax(1).tolist()
    seen = {at: gaze.detach() for at, gaze in named(model, gazes).items()}
    before = seen if plain is None else plain.gazes
    return View(
        model.preprocess.unnormalise(images).cpu(),
        seen,
        [model.class_names[label] for label in labels],
        {at: map_cosine(before[at], gaze) for at, gaze in seen.items()},
    )


def named(model: Any, of_gazes: Mapping[str, T]) -> dict[str, T]:
    """What there is for each gaze of a loaded network by the network's title, and its place where there are several.

    >>> from foveate.models import load
    >>> named(load("scenes-rectangular"), {"stages.3": 1})
    {'rectangular': 1}
    """
    name = model.recipe.title
    return {f"{name} at {at}" if len(of_gazes) > 1 else name: value for at, value in of_gazes.items()}


def modified_examples(
    model: Any, images: Tensor, modifications: Mapping[str, Modification], threshold: float, seed: int = 0
) -> Figure:
    """Bottleneck Fig. 3 for a loaded network on images (B, 3, H, W) as it takes them.

    >>> from foveate.metrics.modifications import paper_modifications
    >>> from foveate.models import load
    >>> figure = modified_examples(load("scenes-rectangular"), torch.rand(1, 3, 64, 64), paper_modifications(64), 0.9)
    >>> len(figure.axes)
    22
    """
    generator = torch.Generator().manual_seed(seed)
    with undisturbed(model):
        torch.manual_seed(seed)
        plain = view(model, images)
        views = {name: view(model, modify(images, generator), plain) for name, modify in modifications.items()}
    scale = images.shape[-1] / PAPER_SIDE
    return consistency_grid(plain, {_title(name, scale): seen for name, seen in views.items()}, threshold)


def _title(name: str, scale: float) -> str:
    kind, _, size = name.partition(" p=")
    return f"{kind}, {round(int(size) * scale)} pixels" if size else name


@styled()
def consistency_grid(
    plain: View, modified: Mapping[str, View], threshold: float, how: str = "overlay+outline"
) -> Figure:
    """Bottleneck Fig. 3: each image under each modification, where each attention looked, the cosine and the verdict.

    Args:
        plain: the images as they are.
        modified: by the name of the modification.
        threshold: the cosine from which on a map counts as the same.
        how: a way of drawing, see `foveate.figures.draw`.

    >>> seen = View(torch.rand(2, 3, 8, 8), {"a": Gaze(torch.rand(2, 1, 4, 4))}, "xy", {"a": torch.ones(2)})
    >>> len(consistency_grid(seen, {"color p=8": seen, "r > 4": seen}, threshold=0.9).axes)
    12
    """
    columns = {"as it is": plain, **modified}
    names, count = list(plain.gazes), len(plain.images)
    block = _CELL + len(names) * (_CELL + _LINE) + _GAP  # inches of an image with all that is said of it
    left, head = 0.62, 0.3
    width, height = left + len(columns) * (_CELL + _GAP) + _GAP, head + count * block + 0.22
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)

    def cell(column: int, down: float) -> Axes:
        x, y = left + column * (_CELL + _GAP), height - head - down - _CELL
        return figure.add_axes((x / width, y / height, _CELL / width, _CELL / height))

    for c, (title, view) in enumerate(columns.items()):
        for k in range(count):
            ax = cell(c, k * block)
            draw(ax, view.images[k], how="image")
            if k == 0:
                ax.set_title(title, loc="center", pad=6)
            if c == 0:
                ax.set_ylabel(shorten(plain.classes[k], 18), fontsize=9, fontweight="bold", labelpad=5)
            for row, name in enumerate(names):
                ax = cell(c, k * block + _CELL + _GAP / 2 + row * (_CELL + _LINE))
                draw(ax, view.images[k], view.gazes[name], how, k)
                text, color = _verdict(plain, view, name, k, threshold) if c else ("", INK)
                ax.set_xlabel(text, fontsize=7.5, color=color, labelpad=2.5)
                if c == 0:
                    ax.set_ylabel(fold(name, 18), fontsize=8, color=MUTED, labelpad=5)
    note = f"counted where the class stays: consistent from a cosine of {threshold:g} on"
    figure.text(1 - _GAP / width, 0.04 / height, note, ha="right", va="bottom", fontsize=7.5, color=MUTED)
    return figure


def _verdict(plain: View, view: View, name: str, k: int, threshold: float) -> tuple[str, str]:
    cosine = float(view.cosines[name][k])
    if view.classes[k] != plain.classes[k]:
        return f"{cosine:.2f}, not counted: {shorten(view.classes[k], 10)}", MUTED
    return (f"{cosine:.2f}, consistent", KEPT) if cosine >= threshold else (f"{cosine:.2f}, inconsistent", LOST)


@styled()
def score_curves(curves: Mapping[str, Mapping[str, Tensor]], thresholds: Sequence[float], chosen: float) -> Figure:
    """The interpretability score over the threshold: a panel for each attention, a line for each modification.

    Args:
        curves: attention -> modification -> scores (T,).
        thresholds: the T cosines.
        chosen: the one that the table is about.

    >>> figure = score_curves({"stages.3": {"r > 4": torch.tensor([1.0, 0.5, 0.0])}}, [0.0, 0.5, 1.0], 0.9)
    >>> [line.get_label() for line in figure.axes[0].lines][:1]
    ['r > 4']
    """
    if not curves:
        raise ValueError("there are no curves to draw: no attention was measured")
    figure = Figure(figsize=(1.2 + 3.4 * len(curves), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    kinds = list(dict.fromkeys(_kind(name) for lines in curves.values() for name in lines))
    color = colors(kinds)
    for ax, (attention, lines) in zip(axes, curves.items(), strict=True):
        for name, scores in lines.items():
            alike = [other for other in lines if _kind(other) == _kind(name)]
            faint = 1 - 0.7 * alike.index(name) / len(alike)  # larger windows fainter
            ax.plot(thresholds, 100 * scores.cpu(), color=color[_kind(name)], alpha=faint, label=name, linewidth=1.6)
        ax.axvline(chosen, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)))
        ax.set(xlabel="threshold of the cosine", xlim=(min(thresholds), max(thresholds)), ylim=(0, 102))
        ax.set_title(attention)
        ax.grid(axis="y")
    axes[0].set_ylabel("interpretability score (%)")
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, handlelength=1.4)
    return figure


def _kind(name: str) -> str:
    return name.split()[0] if "p=" in name else name
