"""Attentions that modulate a feature map: one mechanism, one file."""

from foveate.attention.base import Combine, SpatialAttention
from foveate.attention.positionwise import CBAMAttention, PositionwiseAttention
from foveate.attention.rectangular import RectangularAttention

__all__ = ["CBAMAttention", "Combine", "PositionwiseAttention", "RectangularAttention", "SpatialAttention"]
