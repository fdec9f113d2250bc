"""Attention that turns with the image: finite symmetry groups, and layers that are equivariant under them."""

from foveate.groups.layers import (
    GroupAvgPool2d,
    GroupConv2d,
    GroupMaxPool2d,
    InexactStride,
    LiftConv2d,
    PoseBatchNorm,
    PoseDropout,
    PosePool,
)
from foveate.groups.symmetries import C2, GROUPS, MIRROR, P4, P4M, TRIVIAL, Group

__all__ = [
    "C2",
    "GROUPS",
    "MIRROR",
    "P4",
    "P4M",
    "TRIVIAL",
    "Group",
    "GroupAvgPool2d",
    "GroupConv2d",
    "GroupMaxPool2d",
    "InexactStride",
    "LiftConv2d",
    "PoseBatchNorm",
    "PoseDropout",
    "PosePool",
]
