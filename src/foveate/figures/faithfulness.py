"""Deletion and insertion curves, and what becomes of the maps when the weights go."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from foveate.figures.style import MUTED, colors, styled

_DASHES: tuple[Any, ...] = ((0, (1, 1.2)), (0, (5, 2)))


@styled()
def faithfulness_curves(
    deletion: Mapping[str, Tensor],
    insertion: Mapping[str, Tensor],
    scrambled: Mapping[str, Tensor],
    references: Sequence[str] = (),
) -> Figure:
    """Three panels, a line for each attention: pixels going, pixels coming, weights going.

    Args:
        deletion, insertion: name -> mean probability (steps + 1,), see `foveate.metrics.faithfulness`.
        scrambled: name -> rank correlation of the maps (steps + 1,), see `foveate.metrics.randomisation`.
        references: names that are no attention of the network; drawn grey, in dots or dashes.

    >>> import torch
    >>> curve = {"mine": torch.linspace(1, 0, 5)}
    >>> len(faithfulness_curves(curve, curve, curve).axes)
    3
    """
    figure = Figure(figsize=(11.5, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = (
        ("deletion: sooner down is better", "pixels taken away, most attended first", deletion),
        ("insertion: sooner up is better", "pixels given back, most attended first", insertion),
        ("randomisation: down is better", "weights redrawn, from the output down", scrambled),
    )
    color = colors(name for name in deletion if name not in references)
    for ax, (title, label, curves) in zip(figure.subplots(1, 3), panels, strict=True):
        for name, curve in curves.items():
            places = [k / (len(curve) - 1) for k in range(len(curve))]
            style = _DASHES[references.index(name) % len(_DASHES)] if name in references else "-"
            ax.plot(places, curve.tolist(), color=color.get(name, MUTED), linestyle=style, label=name)
        _finish(ax, title, label)
    figure.axes[0].legend(loc="upper right", handlelength=2.2)
    figure.axes[0].set_ylabel("probability of the class")
    figure.axes[2].set_ylabel("rank correlation of the maps")
    return figure


def _finish(ax: Axes, title: str, label: str) -> None:
    ax.set_title(title)
    ax.set(xlabel=label, xlim=(0, 1))
    ax.set_xticks([0, 0.5, 1], ["none", "half", "all"])
    low, high = ax.get_ylim()
    ax.set_ylim(min(0.0, low), max(1.02, high))
    ax.grid(axis="y")
