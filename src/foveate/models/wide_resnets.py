"""Wide residual networks for small images, plain, with an attention branch, and with the information bottleneck.

Lai et al., "Information Bottleneck Approach to Spatial Attention Learning", Table 1 and supplementary C; the backbone
is WRN-28-10 of Zagoruyko and Komodakis 2016.
"""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attention import BottleneckAttention, BottleneckHead
from foveate.attention.branch import BranchAttention, Evidence, MapOfEvidence
from foveate.extras import require

STEM, WIDTHS = 16, (160, 320, 640)  # WRN-28-10
LARGE = 64  # images from this size on take WRN-50-2


def wrn(classes: int, width: float = 1.0, depth: int = 28) -> nn.Sequential:
    """A wide residual network.

    Args:
        classes: how many logits.
        width: factor on the channels of every group; 0.1 makes WRN-28-10 a WRN-28-1.
        depth: 6n + 4, for n residual blocks in each of the three groups.

    >>> wrn(10, width=0.1, depth=10)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    features, encoder = _features(width, depth, stride=2), _encoder(width, depth)
    return _named(features=features, encoder=encoder, classifier=nn.Linear(_widths(width)[-1], classes))


def wrn_abn(classes: int, width: float = 1.0, depth: int = 28) -> nn.Sequential:
    """An attention branch behind the second group, with a third group of its own (Fukui et al. 2019).

    >>> wrn_abn(10, width=0.1, depth=10)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    _, before, after = _widths(width)
    attention = BranchAttention(after, classes, _group(before, after, depth, stride=1))
    layers = {"features": _features(width, depth, stride=2), "attention": attention, "encoder": _encoder(width, depth)}
    return _named(**layers, classifier=nn.Linear(after, classes))


def wrn_aib(
    classes: int,
    anchors: int = 0,
    width: float = 1.0,
    depth: int = 28,
    latent: int = 512,
    beta: float = 0.01,
    size: int = 32,
    samples: int = 1,
    pretrained: bool = False,
) -> nn.Sequential:
    """WRN-aib, and with anchors WRN-aib-qt: attention and classification through an information bottleneck.

    The first two groups keep the full resolution, as the printed FLOPs say, and another third group looks.

    Args:
        classes: how many logits.
        anchors: Q, how many values the map has; 0 leaves it continuous, the paper takes 50.
        width: factor on the channels of every group.
        depth: 6n + 4.
        latent: K, how many numbers the code has.
        beta: β, the price of a nat.
        size: of the images. From 64 on it is the form for CUB: timm's WRN-50-2, a fourth group at the resolution of the
            third that looks, and the fourth group to encode.
        samples: see `BottleneckAttention`.
        pretrained: start the form for large images from the weights of ImageNet (timm's, downloaded).

    >>> wrn_aib(10, anchors=50, width=0.1, depth=10)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if size >= LARGE:
        if width != 1:
            raise ValueError(
                f"for images from {LARGE} pixels on the network is as published, with width 1, not {width}"
            )
        return _wrn_50_2(classes, anchors, latent, beta, samples, pretrained)
    if pretrained:
        raise ValueError(f"there are published weights for images from {LARGE} pixels on alone")
    _, before, after = _widths(width)
    scores = nn.Sequential(Evidence(after, classes, _group(before, after, depth, stride=1)), MapOfEvidence(classes))
    return _named(
        features=_features(width, depth, stride=1),
        attention=BottleneckAttention(before, anchors, samples, scores=scores),
        encoder=nn.Sequential(nn.MaxPool2d(2), *_encoder(width, depth)),
        head=BottleneckHead(after, latent, classes, beta, hidden=False),
    )


def _wrn_50_2(classes: int, anchors: int, latent: int, beta: float, samples: int, pretrained: bool) -> nn.Sequential:
    timm = require("timm")
    host = timm.create_model("wide_resnet50_2", num_classes=0, pretrained=pretrained)
    group = timm.create_model("wide_resnet50_2", num_classes=0).layer4
    for layer in group.modules():
        if isinstance(layer, nn.Conv2d):
            layer.stride = (1, 1)
    stem = host.conv1, host.bn1, host.act1, host.maxpool
    scores = nn.Sequential(group, nn.Conv2d(2048, 1, 3, padding=1))
    return _named(
        features=nn.Sequential(*stem, host.layer1, host.layer2, host.layer3),
        attention=BottleneckAttention(1024, anchors, samples, scores=scores),
        encoder=nn.Sequential(host.layer4, nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        head=BottleneckHead(2048, latent, classes, beta),
    )


class Residual(nn.Module):
    """x + Conv(ReLU(BN(Conv(ReLU(BN(x)))))), with a Conv 1×1 in place of x where the width changes."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, H, W) to features."""
        active = F.relu(self.norm1(x))
        added: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return added + (x if self.shortcut is None else self.shortcut(active))


def _named(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def _widths(width: float) -> list[int]:
    if not width > 0:
        raise ValueError(f"width must be positive, not {width}")
    return [max(1, round(channels * width)) for channels in WIDTHS]


def _group(before: int, after: int, depth: int, stride: int) -> nn.Sequential:
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 6n + 4, as 10, 16, 28 are, not {depth}")
    count = (depth - 4) // 6
    return nn.Sequential(Residual(before, after, stride), *(Residual(after, after) for _ in range(count - 1)))


def _features(width: float, depth: int, stride: int) -> nn.Sequential:
    """The stem and the first two groups, the second of which begins with `stride`."""
    first, second, _ = _widths(width)
    stem = nn.Conv2d(3, STEM, 3, padding=1, bias=False)
    return nn.Sequential(stem, _group(STEM, first, depth, stride=1), _group(first, second, depth, stride))


def _encoder(width: float, depth: int) -> nn.Sequential:
    """The third group, to a vector."""
    _, second, third = _widths(width)
    group = _group(second, third, depth, stride=2)
    return nn.Sequential(group, nn.BatchNorm2d(third), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
