"""Numbers over epochs, splits and seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from foveate.figures.style import INK, MUTED, colors, styled

Curves = Mapping[str, Mapping[int, Mapping[int, float]]]
Band = Literal["range", "deviation"]


@styled()
def learning_curves(
    curves: Curves, label: str = "validation accuracy", band: Band = "range", size: tuple[float, float] = (6.4, 3.4)
) -> Figure:
    """A line for each attention, the mean over its seeds, in a band from the lowest to the highest of them.

    Args:
        curves: attention -> seed -> epoch -> value. A mean is drawn over the seeds that have reached an epoch.
        label: of the values.
        band: "range", from the lowest to the highest seed, or "deviation", one deviation to either side.
        size: in inches.

    >>> figure = learning_curves({"none": {0: {1: 0.5, 2: 0.7}, 1: {1: 0.6, 2: 0.6}}})
    >>> [round(float(y), 2) for y in figure.axes[0].lines[0].get_ydata()]
    [0.55, 0.65]
    """
    if not any(values for seeds in curves.values() for values in seeds.values()):
        raise ValueError("there are no curves to draw: no attention has a value at any epoch")
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    color, ends = colors(curves), {}
    for name, seeds in curves.items():
        epochs, values = _over_seeds(seeds)
        if len(epochs) == 0:
            continue
        mean, low, high = _band(values, band)
        ax.plot(epochs, mean, color=color[name], marker="o" if len(epochs) < 3 else None, markersize=4)
        ax.fill_between(epochs, low, high, color=color[name], alpha=0.16, linewidth=0)
        ends[name] = float(mean[-1])
    ax.set(xlabel="epoch", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y")
    ax.margins(x=0.02)
    _name_ends(ax, ends, color, 0.8 * size[1])
    return figure


def _over_seeds(seeds: Mapping[int, Mapping[int, float]]) -> tuple[list[int], NDArray[np.float64]]:
    """Epochs and values (seeds, epochs), NaN where a seed has none."""
    epochs = sorted({epoch for values in seeds.values() for epoch in values})
    return epochs, np.array([[values.get(epoch, np.nan) for epoch in epochs] for values in seeds.values()])


def _band(values: NDArray[np.float64], band: Band) -> tuple[NDArray[np.float64], ...]:
    mean = np.nanmean(values, axis=0)
    if band == "range":
        return mean, np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    spread = np.nanstd(values, axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return mean, mean - spread, mean + spread


def _name_ends(ax: Axes, ends: Mapping[str, float], color: Mapping[str, str], height: float) -> None:
    """Name each line at its end, in its colour, moved apart where names would overlap."""
    low, high = ax.get_ylim()
    gap = 13 / 72 / height * (high - low)  # 13 points for a line of text
    names = sorted(ends, key=lambda name: ends[name])
    places = _apart([ends[name] for name in names], gap)
    over = max(0.0, places[-1] - high)
    for name, place in zip(names, places, strict=True):
        height_in_axes = (place - over - low) / (high - low)
        ax.text(1.015, height_in_axes, name, transform=ax.transAxes, va="center", weight="bold", color=color[name])


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The places nearest (in squares) to the given ascending ones, of which no two are nearer than `gap`."""
    blocks: list[list[float]] = []  # of places that touch: each block is moved as a whole to the mean of its wishes
    for i, place in enumerate(places):
        blocks.append([place - i * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [fmean(block) + i * gap for i, block in enumerate([block for block in blocks for _ in block])]


@styled()
def split_accuracies(
    accuracies: Mapping[str, Mapping[str, Sequence[float]]], label: str = "validation accuracy"
) -> Figure:
    """Every split's accuracy under each method, the dots of one split joined: rectangular Fig. 5.

    Args:
        accuracies: ratio of the split ("6 : 4") -> attention -> one value for each independent split, in one order.
        label: of the values.

    >>> figure = split_accuracies({"6 : 4": {"none": [91.0, 91.5], "rectangular": [91.6, 91.9]}})
    >>> figure.axes[0].get_title(loc="left")
    '6 : 4'
    """
    if not accuracies or not all(accuracies.values()):
        raise ValueError("there are no accuracies to draw: each ratio needs at least one attention")
    names = list(dict.fromkeys(name for methods in accuracies.values() for name in methods))
    width = 0.9 + len(accuracies) * max(1.6, 0.62 * len(names))
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(accuracies), sharey=True, squeeze=False)[0]
    color = colors(names)
    for ax, (ratio, methods) in zip(axes, accuracies.items(), strict=True):
        there = [name for name in names if name in methods]
        counts = {len(methods[name]) for name in there}
        if len(counts) > 1:
            raise ValueError(f"the splits of {ratio!r} cannot be joined: attentions have {sorted(counts)} values")
        places = [names.index(name) for name in there]
        for split in zip(*(methods[name] for name in there), strict=True):
            ax.plot(places, split, color=MUTED, linewidth=0.7, alpha=0.7, zorder=1)
        for place, name in zip(places, there, strict=True):
            ax.scatter([place] * len(methods[name]), methods[name], s=22, color=color[name], linewidth=0, zorder=2)
            mean = float(np.mean(methods[name]))
            ax.plot([place - 0.28, place + 0.28], [mean, mean], color=color[name], linewidth=2.4, zorder=3)
        ax.set_title(ratio)
        ax.set_xticks(range(len(names)), names, rotation=28, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(names) - 0.5)
        ax.grid(axis="y")
    for ax in axes[1:]:
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", left=False)
    axes[0].set_ylabel(label)
    return figure


@styled()
def metric_dots(metrics: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """A panel for each metric: the mean of each attention, one deviation to either side, and every seed as a small dot.

    >>> figure = metric_dots({"fitting rate": {"none": [0.2, 0.3], "rectangular": [0.5, 0.6]}})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['none', 'rectangular']
    """
    if not metrics or not all(metrics.values()):
        raise ValueError("there are no metrics to draw: each metric needs at least one attention")
    names = list(dict.fromkeys(name for values in metrics.values() for name in values))
    figure = Figure(figsize=(1.2 + 2.1 * len(metrics), 0.8 + 0.3 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    color = colors(names)
    for ax, (metric, values) in zip(axes, metrics.items(), strict=True):
        for name, seeds in values.items():
            place, mean = names.index(name), float(np.mean(seeds))
            spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0
            ax.plot([mean - spread, mean + spread], [place, place], color=color[name], linewidth=1.4, alpha=0.55)
            ax.scatter(seeds, [place] * len(seeds), s=9, color=color[name], alpha=0.8, linewidth=0)
            ax.scatter([mean], [place], s=38, color=color[name], edgecolor="white", linewidth=0.8, zorder=3)
        ax.set_title(metric)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.grid(axis="x")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0, labelcolor=INK)
    return figure
