"""Attention on features before they are convolved, equivariant (20); SE, CBAM and BAM are cases of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, cast

import torch
from torch import Tensor, nn

from foveate.gaze import Look
from foveate.groups.channels import FeaturePerceptron
from foveate.groups.gazes import PoseGaze
from foveate.groups.layers import GroupConv2d, LiftConv2d, PoseBatchNorm, check_features
from foveate.groups.symmetries import TRIVIAL, Group

CombineName = Literal["suppress", "multiply", "residual"]
BASE = {"suppress": (1.0, -1.0), "multiply": (0.0, 1.0), "residual": (1.0, 1.0)}  # x̂ = a·x + b·α·x


class SpatialScores(nn.Module):
    """What a sigmoid makes α^X of: mean and maximum over channels, or the features themselves, then a convolution.

    Args:
        convolve: any equivariant network to one channel; (B, 2 or C, |H|, H, W) to (B, 1, |H|, H, W).
        statistics: give it the mean and the maximum over channels; without, the features as they are.
    """

    def __init__(self, convolve: nn.Module, statistics: bool = True) -> None:
        super().__init__()
        self.convolve = convolve
        self.statistics = statistics

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W), or planes (B, C, H, W), to scores of one channel."""
        if self.statistics:
            x = torch.stack([x.mean(1), x.amax(1)], dim=1)
        return cast(Tensor, self.convolve(x))


class FeatureLook(Look):
    """α of features: channel attention, then spatial attention on what it attends to, or both side by side.

    Args:
        group: of the features; where `lifts`, that of the poses that planes are looked at in.
        channel: features to scores (B, C, |H|, 1, 1).
        spatial: features to scores (B, 1, |H|, H, W).
        parallel: add the scores before one sigmoid (BAM), rather than one after the other (CBAM).
        lifts: it looks at planes (B, C, H, W), and an attention map has to be one for all poses: their maximum.
        combine: how α is used, which says what a gaze shows; see `PoseGaze`.
    """

    def __init__(
        self,
        group: Group,
        channel: nn.Module | None = None,
        spatial: nn.Module | None = None,
        parallel: bool = False,
        lifts: bool = False,
        combine: CombineName = "suppress",
    ) -> None:
        super().__init__()
        if channel is None and spatial is None:
            raise ValueError("an attention looks at channels, at positions or at both, not at neither")
        if combine not in BASE:
            raise ValueError(f"combine must be one of {', '.join(map(repr, BASE))}, not {combine!r}")
        self.group, self.channel, self.spatial = group, channel, spatial
        self.parallel, self.lifts, self.combine = parallel, lifts, combine

    def forward(self, x: Tensor) -> PoseGaze:
        """Features (B, C, |H|, H, W), or planes (B, C, H, W) where it lifts, to a gaze that holds α."""
        alpha = self._attention(x[:, :, None] if self.lifts else x)
        share = alpha.mean(1).expand(-1, len(self.group), *x.shape[-2:])
        return PoseGaze.of(1 - share if self.combine == "suppress" else share, self.group, alpha)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> PoseGaze:
            """Call `forward` and the hooks."""
            ...

    def _attention(self, x: Tensor) -> Tensor:
        if self.channel is None:
            return self._spatial(x).sigmoid()
        scores = _full(self.channel(x))
        if self.spatial is None:
            return scores.sigmoid()
        if self.parallel:
            return (scores + self._spatial(x)).sigmoid()
        alpha = scores.sigmoid()
        return alpha * self._spatial(alpha * x).sigmoid()  # equivariant (20)

    def _spatial(self, x: Tensor) -> Tensor:
        scores = cast(nn.Module, self.spatial)(x[:, :, 0] if self.lifts else x)
        if self.lifts:
            scores = scores.amax(2, keepdim=True)
        return _full(scores)


def _full(scores: Tensor) -> Tensor:
    """Sigmoids are computed in float32 at least."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def apply_attention(x: Tensor, alpha: Tensor, combine: CombineName) -> Tensor:
    """x − α·x, α·x or x + α·x; α broadcasts to x."""
    base, sign = BASE[combine]
    return x * (base + sign * alpha).to(x.dtype)


def input_look(
    group: Group,
    channels: int,
    reduction: int,
    spatial_kernel: int,
    spatial_dilation: int,
    lifts: bool,
    combine: CombineName,
) -> FeatureLook:
    """α_F of equivariant (20): channels, then positions, of the input of a convolution."""
    convolution = LiftConv2d if lifts else GroupConv2d
    padding = spatial_kernel // 2 * spatial_dilation
    spatial = convolution(group, 2, 1, spatial_kernel, 1, padding, spatial_dilation, bias=False)
    channel = FeaturePerceptron(TRIVIAL if lifts else group, channels, reduction)
    return FeatureLook(group, channel, SpatialScores(spatial), lifts=lifts, combine=combine)


def pose_look(group: Group, channels: int, lifts: bool, combine: CombineName) -> FeatureLook:
    """α_RH: over poses alone, at every position by itself (equivariant 3.1.2)."""
    convolution = LiftConv2d if lifts else GroupConv2d
    spatial = SpatialScores(convolution(group, channels, 1, 1, bias=False), statistics=False)
    return FeatureLook(group, None, spatial, lifts=lifts, combine=combine)


class FeatureAttention(nn.Module):
    """Attention that modulates features of any group; the named constructors are prior work, for any group.

    >>> from foveate.groups import P4, TRIVIAL
    >>> FeatureAttention.cbam(P4, 8)(torch.rand(2, 8, 4, 9, 7)).shape
    torch.Size([2, 8, 4, 9, 7])
    >>> FeatureAttention.se(TRIVIAL, 8, reduction=4)(torch.rand(2, 8, 9, 7)).shape  # planes have the trivial group
    torch.Size([2, 8, 9, 7])
    """

    def __init__(self, look: FeatureLook) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features of the same shape; planes (B, C, H, W) for the trivial group."""
        planes = x.ndim == 4 and len(self.look.group) == 1
        features = x[:, :, None] if planes else x
        check_features(features, self.look.group)
        alpha = cast(Tensor, self.look(features).attention)
        attended = apply_attention(features, alpha, self.look.combine)
        return attended[:, :, 0] if planes else attended

    @classmethod
    def se(cls, group: Group, channels: int, reduction: int = 16) -> Self:
        """Squeeze and excitation (Hu et al. 2018): means over space, linear maps with biases; it multiplies."""
        channel = FeaturePerceptron(group, channels, reduction, ("mean",), bias=True)
        return cls(FeatureLook(group, channel, combine="multiply"))

    @classmethod
    def cbam(cls, group: Group, channels: int, reduction: int = 16, kernel_size: int = 7) -> Self:
        """CBAM (Woo et al. 2018): channels, then positions through a normalised convolution; it multiplies."""
        convolution = GroupConv2d(group, 2, 1, kernel_size, padding=kernel_size // 2, bias=False)
        spatial = SpatialScores(nn.Sequential(convolution, PoseBatchNorm(1)))
        return cls(FeatureLook(group, FeaturePerceptron(group, channels, reduction), spatial, combine="multiply"))

    @classmethod
    def bam(cls, group: Group, channels: int, reduction: int = 16, dilation: int = 4) -> Self:
        """BAM (Park et al. 2018): channels and positions side by side, x + α·x; positions by dilated convolutions."""
        hidden, layers = max(1, channels // reduction), list[nn.Module]()
        for kernel, spread, before in ((1, 1, channels), (3, dilation, hidden), (3, dilation, hidden)):
            layers += [
                GroupConv2d(group, before, hidden, kernel, padding=kernel // 2 * spread, dilation=spread),
                PoseBatchNorm(hidden),
                nn.ReLU(),
            ]
        spatial = SpatialScores(nn.Sequential(*layers, GroupConv2d(group, hidden, 1, 1)), statistics=False)
        channel = FeaturePerceptron(group, channels, reduction, ("mean",), bias=True)
        return cls(FeatureLook(group, channel, spatial, parallel=True, combine="residual"))
