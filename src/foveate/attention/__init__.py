"""Attentions that modulate a feature map: one mechanism, one file."""

from foveate.attention.base import Combine, SpatialAttention
from foveate.attention.bottleneck import BottleneckAttention
from foveate.attention.draws import Prediction, draws, predict
from foveate.attention.latent import BottleneckHead
from foveate.attention.positionwise import CBAMAttention, PositionwiseAttention
from foveate.attention.rectangular import RectangularAttention

__all__ = [
    "BottleneckAttention",
    "BottleneckHead",
    "CBAMAttention",
    "Combine",
    "PositionwiseAttention",
    "Prediction",
    "RectangularAttention",
    "SpatialAttention",
    "draws",
    "predict",
]
