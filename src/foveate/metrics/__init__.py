"""Is the attention any good? Where it looks against ground truth, how its map is made, and the theory of both.

The metrics need torchmetrics and are loaded when they are asked for; `functional` and `theory` need torch alone.
"""

from typing import TYPE_CHECKING, Any

from foveate.extras import require

if TYPE_CHECKING:
    from foveate.metrics.shape import EquivarianceError, MapEntropy, MapSmoothness, shape_metrics
    from foveate.metrics.where import AttentionInside, CatchingRate, FittingRate, PointingAccuracy, where_metrics

__all__ = [
    "AttentionInside",
    "CatchingRate",
    "EquivarianceError",
    "FittingRate",
    "MapEntropy",
    "MapSmoothness",
    "PointingAccuracy",
    "shape_metrics",
    "where_metrics",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'foveate.metrics' has no attribute {name!r}")
    require("torchmetrics")
    from foveate.metrics import shape, where

    return getattr(shape if hasattr(shape, name) else where, name)
