"""Is the attention any good? Where it looks against ground truth, how its map is made, and the theory of both.

The metrics need torchmetrics and are loaded when asked for; `functional`, `theory` and `turning` need torch alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foveate.extras import require

if TYPE_CHECKING:
    from foveate.metrics.answers import AnswerAccuracy
    from foveate.metrics.faithfulness import DeletionCurve, InsertionCurve
    from foveate.metrics.interpretability import InterpretabilityScore, interpretability_scores
    from foveate.metrics.shape import EquivarianceError, MapEntropy, MapSmoothness, shape_metrics
    from foveate.metrics.where import AttentionInside, CatchingRate, FittingRate, PointingAccuracy, where_metrics

_HOME = {
    **dict.fromkeys(("DeletionCurve", "InsertionCurve"), "faithfulness"),
    "AnswerAccuracy": "answers",
    **dict.fromkeys(("InterpretabilityScore", "interpretability_scores"), "interpretability"),
    **dict.fromkeys(("EquivarianceError", "MapEntropy", "MapSmoothness", "shape_metrics"), "shape"),
    **dict.fromkeys(("AttentionInside", "CatchingRate", "FittingRate", "PointingAccuracy", "where_metrics"), "where"),
}
__all__ = [
    "AnswerAccuracy",
    "AttentionInside",
    "CatchingRate",
    "DeletionCurve",
    "EquivarianceError",
    "FittingRate",
    "InsertionCurve",
    "InterpretabilityScore",
    "MapEntropy",
    "MapSmoothness",
    "PointingAccuracy",
    "interpretability_scores",
    "shape_metrics",
    "where_metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foveate.metrics' has no attribute {name!r}")
    require("torchmetrics")
    return getattr(import_module(f"foveate.metrics.{_HOME[name]}"), name)
