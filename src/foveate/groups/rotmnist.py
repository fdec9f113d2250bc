"""The paper's networks for rotated MNIST, and the weights that its authors published for them.

Seven convolutions without padding (Cohen and Welling 2016): 28×28 pixels come down to one position. Parameters at the
paper's widths, P4 and 10 channels where nothing else is said: Z2CNN (trivial group, 20 channels) 21.62K, p4-CNN
24.61K, α_RH 24.85K, α 73.13K, α_CH 48.63K, α_SP 49.11K, α_F 29.46K, BIG 19, 15 and 11 channels 77.54K, 50.42K, 29.05K.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from foveate.groups.attentive import AttentionName, AttentiveGroupConv2d, AttentiveLiftConv2d
from foveate.groups.layers import GroupConv2d, GroupMaxPool2d, LiftConv2d, PoseBatchNorm, PosePool
from foveate.groups.symmetries import P4, TRIVIAL, Group

LAYERS = 7
FIRST_INPUT_DILATION = 4  # how far apart the authors' α_F looks at the image itself


class RotMNISTNet(nn.Module):
    """Images (B, 1, 28, 28) to logits (B, 10) that do not change when the images are moved by the group.

    Args:
        group: the paper's is P4.
        attention: of every convolution; see `AttentiveGroupConv2d`.
        width: channels of every layer.
        classes: how many logits.
        dropout: rate, for single numbers as in the paper.
    """

    def __init__(
        self,
        group: Group = P4,
        attention: AttentionName | None = None,
        width: int = 10,
        classes: int = 10,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.group = group
        self.c1 = _lift(group, width, attention)
        for k in range(2, LAYERS + 1):
            last = k == LAYERS
            conv = _convolution(group, width, classes if last else width, 4 if last else 3, attention)
            self.add_module(f"c{k}", conv)
        for k in range(1, LAYERS):
            self.add_module(f"bn{k}", PoseBatchNorm(width, eps=2e-5))
        self.dropout = nn.Dropout(dropout)
        self.pool = GroupMaxPool2d(group, 2)
        self.poses = PosePool("max")

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 1, 28, 28) to logits (B, classes)."""
        for k in range(1, LAYERS):
            x = self.get_submodule(f"bn{k}")(self.get_submodule(f"c{k}")(x)).relu()
            x = self.pool(x) if k == 2 else self.dropout(x)
        logits: Tensor = self.poses(self.get_submodule(f"c{LAYERS}")(x))
        if logits.shape[2:] != (1, 1):
            raise ValueError("this network takes images of 28×28 pixels")
        return logits.flatten(1)


def p4cnn(attention: AttentionName | None = None, width: int = 10, group: Group = P4) -> RotMNISTNet:
    """The p4-CNN of Table 1 and its attentive kin: α "full", α_CH "channel", α_SP "spatial", α_F "input", α_RH "poses".

    >>> sum(p.numel() for p in p4cnn("full").parameters())
    73130
    """
    return RotMNISTNet(group, attention, width)


def z2cnn(attention: AttentionName | None = None, width: int = 20) -> RotMNISTNet:
    """The Z2CNN: the same layers with ordinary convolutions, and twice the channels.

    >>> z2cnn()(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return RotMNISTNet(TRIVIAL, attention, width)


def _lift(group: Group, width: int, attention: AttentionName | None) -> LiftConv2d:
    if attention is None:
        return LiftConv2d(group, 1, width, 3, bias=False)
    dilation = FIRST_INPUT_DILATION if attention == "input" else 1
    return AttentiveLiftConv2d(group, 1, width, 3, attention, bias=False, spatial_dilation=dilation)


def _convolution(group: Group, before: int, after: int, size: int, attention: AttentionName | None) -> GroupConv2d:
    if attention is None:
        return GroupConv2d(group, before, after, size, bias=False)
    return AttentiveGroupConv2d(group, before, after, size, attention, bias=False)


def load_published(path: str | Path) -> RotMNISTNet:
    """The network of a state dict that the paper's authors published: plain, α, α_CH, α_SP, α_F or α_RH, or Z2CNN.

    It is in evaluation mode and takes normalised images (B, 1, 28, 28) to logits (B, 10). Nothing in the file is
    executed: it may hold tensors alone.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        given = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(f"{path.name} is not a state dict of tensors alone") from error
    if not isinstance(given, Mapping) or "c1.weight" not in given or "c2.weight" not in given:
        raise ValueError(f"{path.name} is not a state dict of one of the authors' rot-MNIST networks")
    attention = _attention_of(given)
    model = RotMNISTNet(P4 if given["c2.weight"].ndim == 5 else TRIVIAL, attention, given["c1.weight"].shape[0])
    own = model.state_dict()
    renamed = {_renamed(name, attention): value for name, value in given.items()}
    try:
        model.load_state_dict({name: _shaped(value, own.get(name)) for name, value in renamed.items()})
    except RuntimeError as error:
        raise ValueError(f"{path.name} does not fit the network that it looks like: {error}") from error
    return model.eval()


def _attention_of(given: Mapping[str, Any]) -> AttentionName | None:
    """Which attention a state dict has: matrices for each filter, or for the features; 1×1 filters look at poses."""
    channel, spatial = (
        given.get(f"c2.{half}") for half in ("channel_attention.weight_fc1", "spatial_attention.weight")
    )
    filters = given["c2.weight"].ndim
    if channel is None and spatial is None:
        return None
    if channel is None:
        return "poses" if cast(Tensor, spatial).shape[-1] == 1 else "spatial"
    if channel.ndim == filters - 2:
        return "input"
    return "channel" if spatial is None else "full"


def _renamed(name: str, attention: AttentionName | None) -> str:
    """The authors' name of a weight in this house's words."""
    spatial = "look.spatial.convolve" if attention in ("input", "poses") else "look.spatial"
    for theirs, ours in (
        ("channel_attention.weight_fc1", "look.channel.reduce"),
        ("channel_attention.weight_fc2", "look.channel.expand"),
        ("spatial_attention", spatial),
    ):
        name = name.replace(theirs, ours)
    return name


def _shaped(value: Tensor, own: Tensor | None) -> Tensor:
    """A weight that the authors keep without a dimension for its single pose, with it."""
    return value.reshape(own.shape) if own is not None and value.numel() == own.numel() else value
