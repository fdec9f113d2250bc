"""Attentive convolutions, equivariant (14): lifting and group convolutions that attend while they convolve."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from foveate.gaze import Look
from foveate.groups.channels import ResponsePerceptron, start
from foveate.groups.features import BASE, CombineName, FeatureLook, apply_attention, input_look, pose_look
from foveate.groups.gazes import PoseGaze
from foveate.groups.layers import GroupConv2d, LiftConv2d, bank_index, check_features, filter_bank
from foveate.groups.responses import (
    Window,
    gated_sum,
    max_over_space,
    mean_over_space,
    spatial_attention,
    sum_and_max_over_channels,
)
from foveate.groups.symmetries import Group

AttentionName = Literal["full", "channel", "spatial", "input", "poses"]
AT_ONCE_ON_CPU, AT_ONCE = 1 << 25, 1 << 28  # numbers kept for the backward pass; above, they are made again, in parts


class SpatialFilters(nn.Module):
    """ψ^X of equivariant (18): for each filter, one for the means and one for the maxima of its responses.

    Args:
        sources: poses of the input; 0 where it is an image.
    """

    bank_index: Tensor

    def __init__(self, group: Group, out_channels: int, sources: int, kernel_size: int = 7) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"spatial_kernel must be odd, not {kernel_size}")
        poses = (sources,) if sources else ()
        self.weight = nn.Parameter(torch.empty(out_channels, 2, *poses, kernel_size, kernel_size))
        self.register_buffer("bank_index", bank_index(group, self.weight.shape[2:]), persistent=False)
        start(self.weight)

    def bank(self) -> Tensor:
        """ψ^X moved by every element: (out, |H|, 2, T, n, n)."""
        bank = filter_bank(self.weight, self.bank_index)
        return bank if bank.ndim == 6 else bank[:, :, :, None]


class ResponseLook(Look):
    """α of the responses f̃ of a convolution: over channels (17), over positions (18), or one after the other (19).

    Args:
        group: of the output.
        sources: poses of the input; 0 where it is an image.
        channel, spatial: which of the two halves there are.
        reduction: r of (17).
        spatial_kernel: n of ψ^X.
        combine: how α is used, which says what a gaze shows; see `PoseGaze`.

    Attributes:
        keep_attention: whether gazes hold α, (B, out, |H|, |H̃|, H', W').
    """

    keep_attention = False

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        sources: int,
        channel: bool,
        spatial: bool,
        reduction: int,
        spatial_kernel: int,
        combine: CombineName,
    ) -> None:
        super().__init__()
        if combine not in BASE:
            raise ValueError(f"combine must be one of {', '.join(map(repr, BASE))}, not {combine!r}")
        self.group, self.combine = group, combine
        self.channel = ResponsePerceptron(group, in_channels, out_channels, sources, reduction) if channel else None
        self.spatial = SpatialFilters(group, out_channels, sources, spatial_kernel) if spatial else None

    def forward(self, x: Tensor, filters: Tensor, window: Window) -> PoseGaze:  # type: ignore[override]
        """The gaze on an input (B, T, in, H, W), padded, under moved filters (T, in, M, k²)."""
        parts = [self._see(part, filters, window) for part in self._parts(x, filters, window)]
        poses = torch.cat([part[0] for part in parts])
        attention = torch.cat([part[1] for part in parts]) if self.keep_attention else None
        return PoseGaze.of(1 - poses if self.combine == "suppress" else poses, self.group, attention)

    def attended(self, x: Tensor, filters: Tensor, window: Window) -> Tensor:
        """Σ α·f̃ over input channels and poses: arguments as in `forward`, to (B, M, H', W')."""
        parts = self._parts(x, filters, window)
        attend: Callable[[Tensor, Tensor, Window], Tensor] = self._attend
        if len(parts) > 1 and torch.is_grad_enabled():
            attend = partial(checkpoint, self._attend, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([attend(part, filters, window) for part in parts])

    def _attend(self, x: Tensor, filters: Tensor, window: Window) -> Tensor:
        own = _weighted(filters, self._channel_attention(x, filters, window), len(x))
        if self.spatial is None:
            return _convolve_each(x, own, window)
        return gated_sum(sum_and_max_over_channels(x, own, window), self._spatial_weight(filters))

    def _see(self, x: Tensor, filters: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """The mean of α over everything but poses and positions, and its mean over input channels alone."""
        alpha = self._channel_attention(x, filters, window)
        own = _weighted(filters, alpha, len(x))
        size = window.output_size(x)
        if self.spatial is None:
            shares = x.new_ones(*own.shape[:2], own.shape[3], *size)
        else:
            shares = spatial_attention(sum_and_max_over_channels(x, own, window), self._spatial_weight(filters))
        if alpha is not None:
            shares = shares * alpha.mean(2)[..., None, None]
        whole = shares.reshape(*shares.shape[:2], -1, len(self.group), *size).permute(0, 2, 3, 1, 4, 5)
        return whole.mean((1, 3)), whole

    def _channel_attention(self, x: Tensor, filters: Tensor, window: Window) -> Tensor | None:
        if self.channel is None:
            return None
        mean, maximum = mean_over_space(x, filters, window), max_over_space(x, filters, window)
        return cast(Tensor, self.channel(mean, maximum))

    def _spatial_weight(self, filters: Tensor) -> Tensor:
        """ψ^X as `gated_sum` takes it: (2, T, M, n, n), for the sum in place of the mean."""
        bank = cast(SpatialFilters, self.spatial).bank().to(filters.dtype)
        first, second = bank.permute(2, 3, 0, 1, 4, 5).flatten(2, 3)
        return torch.stack([first / filters.shape[1], second])

    def _parts(self, x: Tensor, filters: Tensor, window: Window) -> list[Tensor]:
        """The batch in parts for which what the backward pass needs is not too large."""
        poses, channels, count, numbers = filters.shape
        each = poses * count * (channels * numbers * 3 + (8 * math.prod(window.output_size(x)) if self.spatial else 0))
        fit = max(1, (AT_ONCE_ON_CPU if x.device.type == "cpu" else AT_ONCE) // max(1, each))
        return [x[start : start + fit] for start in range(0, len(x), fit)]

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, filters: Tensor, window: Window) -> PoseGaze:  # type: ignore[override]
            """Call `forward` and the hooks."""
            ...


def _weighted(filters: Tensor, alpha: Tensor | None, batch: int) -> Tensor:
    """α^C ψ, the filters that each image has to itself: (B, T, in, M, k²)."""
    return filters.expand(batch, *filters.shape) if alpha is None else alpha[..., None] * filters


def _convolve_each(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """Each image with its own filters, over all poses and channels: (B, T, in, H, W) to (B, M, H', W')."""
    weight = filters.permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)
    weight = weight.reshape(*weight.shape[:2], window.kernel_size, window.kernel_size)
    y = F.conv2d(x.flatten(0, 2)[None], weight, None, window.stride, 0, window.dilation, groups=len(x))
    return y.reshape(len(x), -1, *y.shape[2:])


def make_look(
    layer: LiftConv2d | GroupConv2d,
    attention: AttentionName,
    reduction: int,
    spatial_kernel: int,
    spatial_dilation: int,
    combine: CombineName,
) -> FeatureLook | ResponseLook:
    """The look of an attentive convolution."""
    group, channels = layer.group, layer.in_channels
    lifts = isinstance(layer, LiftConv2d)
    if attention == "input":
        return input_look(group, channels, reduction, spatial_kernel, spatial_dilation, lifts, combine)
    if attention == "poses":
        return pose_look(group, channels, lifts, combine)
    if attention not in ("full", "channel", "spatial"):
        raise ValueError(f"attention must be full, channel, spatial, input or poses, not {attention!r}")
    if layer.groups > 1 or spatial_dilation > 1:
        raise ValueError(f"attention={attention!r} takes no groups of channels and no spatial_dilation; 'input' does")
    return ResponseLook(
        group,
        channels,
        layer.out_channels,
        0 if lifts else len(group),
        channel=attention != "spatial",
        spatial=attention != "channel",
        reduction=reduction,
        spatial_kernel=spatial_kernel,
        combine=combine,
    )


def attend_and_convolve(layer: LiftConv2d | GroupConv2d, look: FeatureLook | ResponseLook, x: Tensor) -> Tensor:
    """What the attentive layers do: x is (B, in, H, W) for a lifting layer, else (B, in, |H|, H, W)."""
    lifts = isinstance(layer, LiftConv2d)
    measure = 1.0 if lifts else layer.group.measure
    if isinstance(look, FeatureLook):
        alpha = cast(Tensor, look(x).attention)
        x = apply_attention(x, alpha[:, :, 0] if lifts else alpha, look.combine)
    bank = layer.bank()
    plain = layer.convolve(x if lifts else x.flatten(1, 2), bank * measure)
    if isinstance(look, FeatureLook) or not len(x):
        return plain
    with torch.autocast(x.device.type, enabled=False):  # statistics and sigmoids are computed in float32
        padded = F.pad(_full(x[:, :, None] if lifts else x).transpose(1, 2), (layer.padding,) * 4).contiguous()
        moved = _full(bank[:, :, :, None] if lifts else bank)  # (out, |H|, in, T, k, k)
        filters = moved.permute(3, 2, 0, 1, 4, 5).flatten(4, 5).flatten(2, 3)
        window = Window(layer.kernel_size, layer.stride, layer.dilation)
        if look._forward_hooks:  # somebody watches
            look(padded, filters, window)
        attended = look.attended(padded, filters, window).reshape(plain.shape)
    base, sign = BASE[look.combine]
    if base:
        return plain + (sign * measure * attended).to(plain.dtype)  # equivariant 3.3 and (19)
    attended = measure * attended
    return (attended if layer.bias is None else attended + layer.bias[:, None, None, None]).to(plain.dtype)


def _full(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class AttentiveLiftConv2d(LiftConv2d):
    """A lifting convolution that attends: images (B, in, H, W) to features (B, out, |H|, H', W').

    Arguments as those of `AttentiveGroupConv2d`.

    >>> from foveate.groups import P4
    >>> AttentiveLiftConv2d(P4, 3, 8, kernel_size=3, padding=1)(torch.rand(2, 3, 9, 7)).shape
    torch.Size([2, 8, 4, 9, 7])
    """

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        attention: AttentionName = "full",
        reduction: int = 2,
        spatial_kernel: int = 7,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        spatial_dilation: int = 1,
        combine: CombineName = "suppress",
    ) -> None:
        super().__init__(group, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.look = make_look(self, attention, reduction, spatial_kernel, spatial_dilation, combine)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in, H, W) to features (B, out, |H|, H', W')."""
        return attend_and_convolve(self, self.look, x)


class AttentiveGroupConv2d(GroupConv2d):
    """A group convolution that attends: features (B, in, |H|, H, W) to (B, out, |H|, H', W').

    With the trivial group it takes the place of `nn.Conv2d`: planes (B, in, H, W) to planes (B, out, H', W').

    Args:
        group, in_channels, out_channels, kernel_size, stride, padding, dilation, bias: as of `GroupConv2d`.
        attention: what α depends on and acts on. "full": each filter's responses, over channels and then positions
            (14), (16)–(19); "channel" or "spatial": one of the two; "input": the input, before it is convolved (20);
            "poses": the poses of the input at each position by themselves (Romero and Hoogendoorn).
        reduction: of the hidden layer of the channel attention, r.
        spatial_kernel: of the spatial attention.
        groups, spatial_dilation: for attention on the input.
        combine: "suppress" subtracts what is attended to (3.3), "multiply" keeps it alone, "residual" adds it.

    >>> from foveate.groups import P4, TRIVIAL
    >>> AttentiveGroupConv2d(P4, 8, 6, kernel_size=3, padding=1)(torch.rand(2, 8, 4, 9, 7)).shape
    torch.Size([2, 6, 4, 9, 7])
    >>> AttentiveGroupConv2d(TRIVIAL, 8, 6, kernel_size=3, padding=1)(torch.rand(2, 8, 9, 7)).shape
    torch.Size([2, 6, 9, 7])
    """

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        attention: AttentionName = "full",
        reduction: int = 2,
        spatial_kernel: int = 7,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        spatial_dilation: int = 1,
        combine: CombineName = "suppress",
    ) -> None:
        super().__init__(group, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.look = make_look(self, attention, reduction, spatial_kernel, spatial_dilation, combine)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, in, |H|, H, W) to features (B, out, |H|, H', W')."""
        planes = x.ndim == 4 and len(self.group) == 1
        features = x[:, :, None] if planes else x
        check_features(features, self.group, self.in_channels)
        y = attend_and_convolve(self, self.look, features)
        return y[:, :, 0] if planes else y
