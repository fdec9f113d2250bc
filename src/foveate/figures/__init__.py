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
from foveate.figures.roses import petals, roses
from foveate.figures.rounds import Round, Strip, animate_rounds
from foveate.figures.style import colors
from foveate.figures.turning import Panel, turning

__all__ = [
    "Column",
    "Gallery",
    "Illustration",
    "Panel",
    "Report",
    "Round",
    "Strip",
    "View",
    "animate",
    "animate_rounds",
    "colors",
    "consistency_grid",
    "contour",
    "draw",
    "grid",
    "learning_curves",
    "measure",
    "metric_dots",
    "outline",
    "petals",
    "rims",
    "roses",
    "save",
    "score_curves",
    "sequence",
    "sorted_strip",
    "split_accuracies",
    "turning",
    "write_report",
]
