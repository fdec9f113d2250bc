"""Attention over time: signals with the densities under which they are pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from foveate.figures.style import INK, MUTED, colors, styled
from foveate.gaze import Gaze
from foveate.geometry import pixel_centers

FINE = 1_000  # points at which densities are drawn


@styled()
def attended_signals(
    signals: Tensor, gazes: Mapping[str, Gaze], captions: Sequence[str] | None = None, title: str = ""
) -> Figure:
    """Signals, and below each the attention of every pooling: densities as curves, discrete weights as steps.

    Where an attention is at least half its largest value, the signal is shaded.

    Args:
        signals: (B, L), drawn from 0 to 1.
        gazes: by the name that the figure shows; each of the B signals.
        captions: a line for each signal.
        title: above it all.

    >>> from foveate.pooling import ContinuousPool
    >>> gaze = ContinuousPool(3, alpha=2, dimensions=1).look(torch.rand(2, 3, 50))
    >>> len(attended_signals(torch.rand(2, 50), {"sparse": gaze}).axes)
    4
    """
    count, length = signals.shape
    if any(len(gaze.map) != count for gaze in gazes.values()):
        raise ValueError(f"{count} signals want gazes of as many")
    rows, shown = 1 + len(gazes), colors(gazes)
    figure = Figure(figsize=(1.6 + 2.7 * count, 1.35 + 0.62 * len(gazes) + 0.25 * bool(title)), layout="constrained")
    axes = figure.subplots(rows, count, squeeze=False, sharex=True, height_ratios=(1.6, *[1.0] * len(gazes)))
    here, fine = (pixel_centers(points, torch.zeros(())) for points in (length, FINE))
    for column in range(count):
        axes[0, column].plot(here, signals[column].detach().cpu(), color=INK, linewidth=0.7)
        axes[0, column].set_title("" if captions is None else captions[column])
        for ax, (name, gaze) in zip(axes[1:, column], gazes.items(), strict=True):
            one = gaze.apply(lambda t, column=column: t[column : column + 1]).detach()
            density = one.render((1, FINE))[0, 0, 0].float().cpu()
            ax.fill_between(fine, density, color=shown[name], alpha=0.25, linewidth=0)
            ax.plot(fine, density, color=shown[name], linewidth=1.2)
            ax.set_ylim(0, 1.12)
            _light(axes[0, column], fine, density, shown[name])
    for ax in axes.flat:
        ax.set(xlim=(0, 1), yticks=[])
        ax.spines["left"].set_visible(False)
    for ax, name in zip(axes[:, 0], ["signal", *gazes], strict=True):
        ax.set_ylabel(fill(name, 16), rotation=0, ha="right", va="center", color=shown.get(name, MUTED), fontsize=8.5)
    if title:
        figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def _light(ax: Axes, points: Tensor, density: Tensor, color: str) -> None:
    """Shade where a density is at least half its largest value."""
    high = (density >= density.max() / 2).numpy()
    ax.fill_between(points, 0, 1, where=high, color=color, alpha=0.12, linewidth=0, transform=ax.get_xaxis_transform())
