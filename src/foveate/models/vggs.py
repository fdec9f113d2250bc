"""VGG for small images, plain and with the attentions that the information bottleneck is held against.

Lai et al., "Information Bottleneck Approach to Spatial Attention Learning", Table 1 and supplementary C. The backbone
is that of Jetley et al. 2018: six blocks, the first three at full resolution.
"""

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from foveate.attention import BottleneckAttention, BottleneckHead, PositionwiseAttention
from foveate.attention.activation import ActivationHead
from foveate.attention.compatibility import CompatibilityAttention
from foveate.extras import require

WIDTHS = (64, 128, 256, 512, 512, 512)
DEPTHS = (2, 2, 3, 3, 3, 2)
LARGE = 64  # images from this size on take VGG-16 with pooling after every block


def vgg(classes: int, width: float = 1.0) -> nn.Sequential:
    """The backbone and a linear classifier.

    Args:
        classes: how many logits.
        width: factor on the channels of every layer; 0.25 is a quarter.

    >>> vgg(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    classifier = nn.Linear(_widths(width)[-1], classes)
    return _named(features=_features(width), encoder=_encoder(width), classifier=classifier)


def vgg_gap(classes: int, width: float = 1.0) -> nn.Sequential:
    """Global average pooling of 8×8 features, whose class activation maps `watch` sees (Zhou et al. 2016).

    >>> vgg_gap(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    _, _, c3, c4, c5, c6 = _widths(width)
    blocks = _block(c3, c4, 3), nn.MaxPool2d(2), _block(c4, c5, 3), _block(c5, c6, 2)
    trunk = nn.Sequential(nn.MaxPool2d(2), *blocks)
    return _named(features=_features(width), encoder=trunk, classifier=ActivationHead(c6, classes))


def vgg_pan(classes: int, width: float = 1.0) -> nn.Sequential:
    """Progressive attention: three blocks in turn are filtered by maps from their local context (Seo et al. 2018).

    >>> vgg_pan(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    _, _, c3, c4, c5, c6 = _widths(width)
    filters = {
        f"attention{level}": PositionwiseAttention(channels, [max(1, channels // 4)], combine="multiply")
        for level, channels in enumerate((c3, c4, c5), start=1)
    }
    return _named(
        features=_features(width),
        attention1=filters["attention1"],
        block4=nn.Sequential(nn.MaxPool2d(2), _block(c3, c4, 3)),
        attention2=filters["attention2"],
        block5=nn.Sequential(nn.MaxPool2d(2), _block(c4, c5, 3)),
        attention3=filters["attention3"],
        encoder=nn.Sequential(nn.MaxPool2d(2), *_last(c5, c6)),
        classifier=nn.Linear(c6, classes),
    )


def vgg_dvib(classes: int, width: float = 1.0, latent: int = 256, beta: float = 0.01) -> nn.Sequential:
    """The deep variational information bottleneck: a bottleneck head and no attention (Alemi et al. 2017).

    >>> vgg_dvib(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    head = BottleneckHead(_widths(width)[-1], latent, classes, beta)
    return _named(features=_features(width), encoder=_encoder(width), head=head)


def vgg_aib(
    classes: int,
    anchors: int = 0,
    width: float = 1.0,
    latent: int = 256,
    beta: float = 0.01,
    size: int = 32,
    samples: int = 1,
    pretrained: bool = False,
) -> nn.Sequential:
    """VGG-aib, and with anchors VGG-aib-qt: attention and classification through an information bottleneck.

    Args:
        classes: how many logits.
        anchors: Q, how many values the map has; 0 leaves it continuous, the paper takes 20.
        width: factor on the channels of every layer.
        latent: K, how many numbers the code has.
        beta: β, the price of a nat.
        size: of the images. For small ones the attention lies behind the third block, at full resolution, and the
            other blocks encode. From 64 on it is the form for CUB: attention behind all of VGG-16's convolutions, and
            an encoder that only averages to 3×3.
        samples: see `BottleneckAttention`.
        pretrained: start from VGG-16's weights of ImageNet, in the form for large images (timm's, downloaded).

    >>> vgg_aib(10, anchors=20, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if pretrained and (size < LARGE or width != 1):
        raise ValueError(f"there are published weights for images from {LARGE} pixels on and width 1 alone")
    if size >= LARGE:
        channels = _widths(width)[-1]
        # three more convolutions look: without them the printed 24.28 M would be 17.20 M
        attention = BottleneckAttention(channels, anchors, samples, hidden=[channels] * 3)
        encoder = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten())
        head = BottleneckHead(9 * channels, latent, classes, beta)
        return _named(features=_vgg16(width, pretrained), attention=attention, encoder=encoder, head=head)
    attention = BottleneckAttention(_widths(width)[2], anchors, samples)
    head = BottleneckHead(_widths(width)[-1], latent, classes, beta)
    return _named(features=_features(width), attention=attention, encoder=_encoder(width), head=head)


class CompatibilityVGG(nn.Module):
    """VGG whose last `levels` blocks before the global feature are averaged by their compatibility with it."""

    def __init__(self, classes: int, levels: int, width: float = 1.0) -> None:
        super().__init__()
        _, _, c3, c4, c5, c6 = _widths(width)
        self.features = _features(width)
        self.block4 = nn.Sequential(nn.MaxPool2d(2), _block(c3, c4, 3))
        self.block5 = nn.Sequential(nn.MaxPool2d(2), _block(c4, c5, 3))
        self.encoder = nn.Sequential(nn.MaxPool2d(2), *_last(c5, c6, activate=False))
        self.attention = nn.ModuleList(CompatibilityAttention(c, c6) for c in (c3, c4, c5)[-levels:])
        self.classifier = nn.Linear(levels * c6, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) to logits (B, classes)."""
        first = self.features(x)
        second = self.block4(first)
        third = self.block5(second)
        whole = self.encoder(third)
        locals = (first, second, third)[-len(self.attention) :]
        seen = [attend(local, whole) for attend, local in zip(self.attention, locals, strict=True)]
        logits: Tensor = self.classifier(torch.cat(seen, dim=1))
        return logits


def vgg_att2(classes: int, width: float = 1.0) -> CompatibilityVGG:
    """Two blocks averaged by their compatibility with the global feature (Jetley et al. 2018).

    >>> vgg_att2(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return CompatibilityVGG(classes, 2, width)


def vgg_att3(classes: int, width: float = 1.0) -> CompatibilityVGG:
    """Three blocks averaged by their compatibility with the global feature (Jetley et al. 2018).

    >>> vgg_att3(10, width=0.125)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return CompatibilityVGG(classes, 3, width)


def _named(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def _widths(width: float) -> list[int]:
    if not width > 0:
        raise ValueError(f"width must be positive, not {width}")
    return [max(1, round(channels * width)) for channels in WIDTHS]


def _block(before: int, after: int, depth: int, pool: bool = False) -> nn.Sequential:
    """`depth` times Conv 3×3, batch norm, ReLU and, where asked for, pooling."""
    layers: list[nn.Module] = []
    for channels in [before, *[after] * (depth - 1)]:
        layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(*layers)


def _features(width: float) -> nn.Sequential:
    """The first three blocks, at full resolution: the extractor of supplementary C."""
    widths = [3, *_widths(width)[:3]]
    return nn.Sequential(*(_block(*pair, depth) for pair, depth in zip(pairwise(widths), DEPTHS, strict=False)))


def _encoder(width: float) -> nn.Sequential:
    """The other blocks, to a vector."""
    _, _, c3, c4, c5, c6 = _widths(width)
    blocks = nn.MaxPool2d(2), _block(c3, c4, 3), nn.MaxPool2d(2), _block(c4, c5, 3), nn.MaxPool2d(2)
    return nn.Sequential(*blocks, *_last(c5, c6))


def _last(before: int, after: int, activate: bool = True) -> list[nn.Module]:
    """The sixth block and the dense layer behind it, to a vector whatever the size of the image."""
    dense = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(after, after, 1), *([nn.ReLU()] if activate else []), nn.Flatten()]
    return [_block(before, after, DEPTHS[-1], pool=True), *dense]


def _vgg16(width: float, pretrained: bool = False) -> nn.Sequential:
    """VGG-16's convolutions, pooled after each block but the last; no batch norm, so that published weights fit."""
    layers: list[nn.Module] = []
    for (before, after), depth in zip(pairwise([3, *_widths(width)[:5]]), DEPTHS, strict=False):
        for channels in [before, *[after] * (depth - 1)]:
            layers += [nn.Conv2d(channels, after, 3, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers[:-1])
    if pretrained:
        model.load_state_dict(require("timm").create_model("vgg16", pretrained=True).features.state_dict())
    return model
