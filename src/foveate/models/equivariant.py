"""The larger networks of "Attentive Group Equivariant Convolutional Networks": All-CNN-C, ResNet44 and the DenseNet.

Each is written once for every group; the trivial one gives the ordinary network. Widths shrink with the number of poses
so that all have about as many parameters (equivariant, Tables 2 and 3). Logits do not change when an image is moved by
an element of the group, and gazes move with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from foveate.groups import (
    GROUPS,
    AttentiveGroupConv2d,
    AttentiveLiftConv2d,
    Group,
    GroupAvgPool2d,
    GroupConv2d,
    GroupMaxPool2d,
    LiftConv2d,
    PoseBatchNorm,
)
from foveate.groups.attentive import AttentionName

norm = partial(PoseBatchNorm, eps=2e-5)  # equivariant B.1


def find_group(group: Group | str) -> Group:
    """A group, or the one of that name, as files have it.

    >>> len(find_group("p4m"))
    8
    """
    if isinstance(group, Group):
        return group
    if group not in GROUPS:
        raise ValueError(f"no group is named {group!r}; there are: {', '.join(GROUPS)}")
    return GROUPS[group]


@dataclass(frozen=True)
class Layers:
    """Convolutions of one group, with or without attention in them: what a network is made of.

    Attributes:
        group: the group.
        attention: a kind of attentive convolution, None for group convolutions.
        reduction: r of the channel attention for so many channels.
    """

    group: Group
    attention: AttentionName | None
    reduction: Callable[[int], int]

    def lift(self, channels: int, out: int, kernel: int, padding: int = 0) -> nn.Module:
        """From images to features."""
        if self.attention is None:
            return LiftConv2d(self.group, channels, out, kernel, padding=padding, bias=False)
        return AttentiveLiftConv2d(
            self.group, channels, out, kernel, self.attention, reduction=1, padding=padding, bias=False
        )

    def convolve(
        self, channels: int, out: int, kernel: int, padding: int = 0, stride: int = 1, spatial: int = 7
    ) -> nn.Module:
        """From features to features; `spatial` is the kernel size of the spatial attention."""
        if self.attention is None:
            return GroupConv2d(self.group, channels, out, kernel, stride, padding, bias=False)
        return AttentiveGroupConv2d(
            self.group,
            channels,
            out,
            kernel,
            self.attention,
            reduction=self.reduction(channels),
            spatial_kernel=spatial,
            stride=stride,
            padding=padding,
            bias=False,
        )

    def halve(self, exact: bool) -> nn.Module:
        """After a convolution that has stride 1 in the exact form: its maxima (Appendix C)."""
        return GroupMaxPool2d(self.group, 2) if exact else nn.Identity()

    def width(self, width: int) -> int:
        """As many channels as have the parameters of an ordinary layer this wide."""
        return round(width / math.sqrt(len(self.group)))


def _sixteenth(channels: int) -> int:
    """The reduction with which a sixteenth of the channels, rounded up, are hidden: the paper's r = 16."""
    return channels // -(-channels // 16)


class AllCNN(nn.Module):
    """All-CNN-C, see `allcnn`. Gazes are named after `stages.0` to `stages.8`."""

    def __init__(self, group: Group, attention: AttentionName | None, classes: int, exact: bool) -> None:
        super().__init__()
        layers = Layers(group, attention, _sixteenth)
        narrow = 16 * int(96 / math.sqrt(len(group)) / 16)  # 96, p4: 48, p4m: 32
        wide = 2 * narrow
        stride = 1 if exact else 2

        def stage(convolution: nn.Module, width: int, halved: bool = False) -> nn.Sequential:
            shrink = [layers.halve(exact)] if halved else []
            dropped = [nn.Dropout(0.5)] if halved else []
            return nn.Sequential(convolution, *shrink, norm(width), nn.ReLU(), *dropped)

        self.drop = nn.Dropout(0.2)
        self.stages = nn.Sequential(
            stage(layers.lift(3, narrow, 3, padding=1), narrow),
            stage(layers.convolve(narrow, narrow, 3, padding=1), narrow),
            stage(layers.convolve(narrow, narrow, 3, padding=1, stride=stride), narrow, halved=True),
            stage(layers.convolve(narrow, wide, 3, padding=1), wide),
            stage(layers.convolve(wide, wide, 3, padding=1), wide),
            stage(layers.convolve(wide, wide, 3, padding=1, stride=stride), wide, halved=True),
            stage(layers.convolve(wide, wide, 3, padding=1), wide),
            stage(layers.convolve(wide, wide, 1), wide),
            stage(layers.convolve(wide, classes, 1), classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) to logits (B, classes): means over space and poses."""
        maps: Tensor = self.stages(self.drop(x))
        return maps.mean(dim=(2, 3, 4))


class PreActivation(nn.Module):
    """A residual block that normalises before it convolves; where channels change, a 1×1 convolution is beside it."""

    def __init__(self, layers: Layers, channels: int, out: int, exact: bool) -> None:
        super().__init__()
        halved = out != channels
        stride = 2 if halved and not exact else 1
        self.before = nn.Sequential(norm(channels), nn.ReLU())
        self.first = layers.convolve(channels, out, 3, padding=1, stride=stride)
        self.halve = layers.halve(exact) if halved else nn.Identity()
        self.between = nn.Sequential(norm(out), nn.ReLU())
        self.second = layers.convolve(out, out, 3, padding=1)
        self.beside = layers.convolve(channels, out, 1, stride=stride) if halved else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features (B, out, |H|, H', W')."""
        beside: Tensor = self.halve(self.beside(x))
        after: Tensor = self.second(self.between(self.halve(self.first(self.before(x)))))
        return beside + after


class ResNet44(nn.Module):
    """ResNet44, see `resnet44`."""

    def __init__(self, group: Group, attention: AttentionName | None, classes: int, exact: bool) -> None:
        super().__init__()
        layers = Layers(group, attention, _sixteenth)
        widths = [layers.width(width) for width in (32, 64, 128)]
        self.lift = layers.lift(3, widths[0], 3, padding=1)
        pairs = [(before, after) for after, before in zip(widths, (widths[0], *widths), strict=False)]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(*(PreActivation(layers, after if i else before, after, exact) for i in range(7)))
                for before, after in pairs
            )
        )
        self.after = nn.Sequential(norm(widths[-1]), nn.ReLU())
        self.classifier = layers.convolve(widths[-1], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) to logits (B, classes)."""
        features = self.after(self.stages(self.lift(x)))
        logits: Tensor = self.classifier(features.mean(dim=(3, 4), keepdim=True))
        return logits.mean(dim=(2, 3, 4))


class Dense(nn.Module):
    """A dense layer without padding: what it adds, beside what it was given, cut to the same size."""

    def __init__(self, layers: Layers, channels: int, growth: int, spatial: int) -> None:
        super().__init__()
        self.before = nn.Sequential(norm(channels), nn.ReLU())
        self.convolve = layers.convolve(channels, growth, 3, spatial=spatial)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features (B, C + growth, |H|, H − 2, W − 2)."""
        return torch.cat([self.convolve(self.before(x)), x[..., 1:-1, 1:-1]], dim=1)


class DenseNet(nn.Module):
    """The DenseNet for PatchCamelyon, see `densenet`."""

    def __init__(self, group: Group, attention: AttentionName | None, classes: int) -> None:
        super().__init__()
        # The paper prints r = 16 and a kernel of 7 for all; its counts are those of two hidden channels everywhere, and
        # of kernels that fit the last maps.
        layers = Layers(group, attention, lambda channels: channels // 2)
        growth = layers.width(26)
        stages: list[nn.Module] = [layers.lift(3, growth, 3)]
        for block in range(1, 6):
            stages.append(Dense(layers, block * growth, growth, spatial=7 if block < 5 else 5))
            width = (block + 1) * growth
            stages += [norm(width), nn.ReLU()]
            if block < 5:
                stages += [layers.convolve(width, width, 1), GroupAvgPool2d(group, 2)]
        self.stages = nn.Sequential(*stages)
        self.classifier = layers.convolve(width, classes, 1, spatial=3)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, 96, 96) to logits (B, classes): means over space and poses."""
        logits: Tensor = self.classifier(self.stages(x))
        return logits.mean(dim=(2, 3, 4))


def allcnn(
    group: Group | str = "p4", attention: AttentionName | None = None, *, classes: int = 10, exact: bool = True
) -> AllCNN:
    """All-CNN-C (Springenberg et al.) on a group, for CIFAR-10: nine convolutions, each normalised (equivariant B.3.1).

    Args:
        group: a group or its name; "trivial" gives the ordinary network.
        attention: a kind of attentive convolution; None for group convolutions.
        classes: how many logits.
        exact: shrink by max pooling after convolutions of stride 1, which is equivariant on even sizes (Appendix C);
            False takes strided convolutions, which are so only roughly.

    >>> allcnn("p4")(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return AllCNN(find_group(group), attention, classes, exact)


def resnet44(
    group: Group | str = "p4m", attention: AttentionName | None = None, *, classes: int = 10, exact: bool = True
) -> ResNet44:
    """ResNet44 (He et al.) on a group, for CIFAR-10: three stages of seven pre-activation blocks (equivariant B.3.2).

    Args:
        group: a group or its name; "trivial" gives the ordinary network.
        attention: a kind of attentive convolution; None for group convolutions.
        classes: how many logits.
        exact: as in `allcnn`.

    >>> resnet44("p4m")(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    return ResNet44(find_group(group), attention, classes, exact)


def densenet(group: Group | str = "p4", attention: AttentionName | None = None, *, classes: int = 2) -> DenseNet:
    """The DenseNet of Veeling et al. on a group, for PatchCamelyon: five blocks of one layer each (equivariant B.4).

    Args:
        group: a group or its name; "trivial" gives the ordinary network.
        attention: a kind of attentive convolution; None for group convolutions.
        classes: how many logits.

    >>> densenet("p4")(torch.rand(1, 3, 96, 96)).shape
    torch.Size([1, 2])
    """
    return DenseNet(find_group(group), attention, classes)
