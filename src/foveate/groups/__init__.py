"""Attention that turns with the image: finite symmetry groups, and layers that are equivariant under them."""

from foveate.groups.attentive import AttentiveGroupConv2d, AttentiveLiftConv2d
from foveate.groups.convert import ConvertError, convert
from foveate.groups.features import FeatureAttention
from foveate.groups.gazes import PoseGaze
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
from foveate.groups.rotmnist import load_published, p4cnn, z2cnn
from foveate.groups.symmetries import C2, GROUPS, MIRROR, P4, P4M, TRIVIAL, Group
from foveate.groups.theorem import theorem1_violation

__all__ = [
    "C2",
    "GROUPS",
    "MIRROR",
    "P4",
    "P4M",
    "TRIVIAL",
    "AttentiveGroupConv2d",
    "AttentiveLiftConv2d",
    "ConvertError",
    "FeatureAttention",
    "Group",
    "GroupAvgPool2d",
    "GroupConv2d",
    "GroupMaxPool2d",
    "InexactStride",
    "LiftConv2d",
    "PoseBatchNorm",
    "PoseDropout",
    "PoseGaze",
    "PosePool",
    "convert",
    "load_published",
    "p4cnn",
    "theorem1_violation",
    "z2cnn",
]
