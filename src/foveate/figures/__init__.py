"""Figures: where an attention looked, on one image or many, and how well it did. Needs matplotlib."""

# ruff: noqa: E402
from foveate.extras import require

require("matplotlib")

from foveate.figures.consistency import View, consistency_grid, score_curves
from foveate.figures.curves import learning_curves, metric_dots, split_accuracies
from foveate.figures.files import save
from foveate.figures.grids import animate, grid, measure, sequence, sorted_strip
from foveate.figures.overlay import contour, draw, outline, rims
from foveate.figures.report import Column, Gallery, Illustration, Report, write_report
from foveate.figures.style import colors

__all__ = [
    "Column",
    "Gallery",
    "Illustration",
    "Report",
    "View",
    "animate",
    "colors",
    "consistency_grid",
    "contour",
    "draw",
    "grid",
    "learning_curves",
    "measure",
    "metric_dots",
    "outline",
    "rims",
    "save",
    "score_curves",
    "sequence",
    "sorted_strip",
    "split_accuracies",
    "write_report",
]
