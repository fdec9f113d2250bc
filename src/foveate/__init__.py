"""Spatial attention for vision models: attach it in one line, train it, see where it looks, measure it, ship it."""

from typing import TYPE_CHECKING, Any

from foveate.attach import AttachError, attach, detach
from foveate.attention import (
    BottleneckAttention,
    BottleneckHead,
    CBAMAttention,
    PositionwiseAttention,
    RectangularAttention,
    SpatialAttention,
    draws,
    predict,
)
from foveate.gaze import Gaze, Look, watch
from foveate.pooling import ContinuousPool, DiscretePool

if TYPE_CHECKING:
    from foveate.models import load

__version__ = "0.1.0"
__all__ = [
    "AttachError",
    "BottleneckAttention",
    "BottleneckHead",
    "CBAMAttention",
    "ContinuousPool",
    "DiscretePool",
    "Gaze",
    "Look",
    "PositionwiseAttention",
    "RectangularAttention",
    "SpatialAttention",
    "attach",
    "detach",
    "draws",
    "load",
    "predict",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name == "load":  # needs more than torch, so it is brought when it is asked for
        from foveate.models import load

        return load
    raise AttributeError(f"module 'foveate' has no attribute {name!r}")
