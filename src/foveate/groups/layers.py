"""Equivariant layers over features (B, C, |H|, H, W), written once for any `Group`.

Equations are those of Romero et al., "Attentive Group Equivariant Convolutional Networks", named as `equivariant (n)`.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.groups.symmetries import Group


class InexactStride(UserWarning):
    """A strided layer met a size at which it is equivariant only roughly (equivariant, Appendix C)."""


class Strided(nn.Module):
    """A layer that slides a window: its stride, padding and dilation, and the sizes at which it is exact."""

    def __init__(self, group: Group, kernel_size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        check_positive_integers(kernel_size=kernel_size, stride=stride, dilation=dilation)
        if padding < 0:
            raise ValueError(f"padding must not be negative, not {padding}")
        self.group = group
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self._warned = False

    def is_exact(self, size: int) -> bool:
        """Whether the windows along a side of this length are the same when it is read from its other end."""
        return (size + 2 * self.padding - self.dilation * (self.kernel_size - 1) - 1) % self.stride == 0

    def check_size(self, x: Tensor) -> None:
        """Warn, once, of a size (Appendix C) at which the windows of a moved image are not those of the image."""
        if self.stride == 1 or self._warned or torch.compiler.is_compiling():
            return
        for size, flipped in zip(x.shape[-2:], self.group.flips, strict=True):
            if flipped and not self.is_exact(size):
                self._warned = True
                exact = [n for n in range(max(1, size - self.stride), size + self.stride + 1) if self.is_exact(n)]
                warnings.warn(
                    f"{type(self).__name__} with stride {self.stride} is equivariant only roughly at size {size}; "
                    f"exact are {', '.join(map(str, exact))}, or stride 1 and then a pooling that fits",
                    InexactStride,
                    stacklevel=4,
                )
                return

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        words = f"{self.group.name}, kernel_size={self.kernel_size}, stride={self.stride}"
        words += f", padding={self.padding}" if self.padding else ""
        return words + (f", dilation={self.dilation}" if self.dilation > 1 else "")


class _Convolution(Strided):
    """What the lifting and the group convolution share; they differ in whether filters have poses of their own."""

    bank_index: Tensor

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        padding: int,
        dilation: int,
        groups: int,
        bias: bool,
        poses: tuple[int, ...],
    ) -> None:
        super().__init__(group, kernel_size, stride, padding, dilation)
        check_positive_integers(in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"channels ({in_channels} to {out_channels}) must split into {groups} equal groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, *poses, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.register_buffer("bank_index", bank_index(group, self.weight.shape[2:]), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `nn.Conv2d` starts: uniform within 1/√(fan in)."""
        bound = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def bank(self) -> Tensor:
        """L_h[ψ] for every h: (out, |H|, in/groups, k, k), with |H̃| before k where filters have poses."""
        return filter_bank(self.weight, self.bank_index)

    def convolve(self, x: Tensor, bank: Tensor) -> Tensor:
        """Planes (B, in·|H̃|, H, W) with a bank to features (B, out, |H|, H', W')."""
        self.check_size(x)
        weight = bank.flatten(0, 1)
        if weight.ndim == 5:
            weight = weight.flatten(1, 2)
        bias = self.bias.repeat_interleave(len(self.group)) if self.bias is not None else None
        y = F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        return y.reshape(len(x), self.out_channels, len(self.group), *y.shape[2:])

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        words = f"{super().extra_repr()}, {self.in_channels} to {self.out_channels}"
        words += f", groups={self.groups}" if self.groups > 1 else ""
        return words + ("" if self.bias is not None else ", bias=False")


class LiftConv2d(_Convolution):
    """From the plane to the group: images (B, in, H, W) to features (B, out, |H|, H', W').

    The pose h holds the convolution with the filter moved by h, equivariant (13) without the integral.

    >>> from foveate.groups import P4
    >>> LiftConv2d(P4, 3, 8, kernel_size=3, padding=1)(torch.rand(2, 3, 9, 7)).shape
    torch.Size([2, 8, 4, 9, 7])
    """

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(group, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, ())

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in, H, W) to features (B, out, |H|, H', W')."""
        return self.convolve(x, self.bank())


class GroupConv2d(_Convolution):
    """From the group to the group: features (B, in, |H|, H, W) to (B, out, |H|, H', W').

    The pose h holds the convolution with the filter moved by h, summed over channels and integrated over the poses h̃
    of the input, equivariant (13): each pose weighs `group.measure`.

    >>> from foveate.groups import P4M
    >>> GroupConv2d(P4M, 8, 4, kernel_size=3, padding=1)(torch.rand(2, 8, 8, 9, 7)).shape
    torch.Size([2, 4, 8, 9, 7])
    """

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        poses = (len(group),)
        super().__init__(group, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, poses)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, in, |H|, H, W) to features (B, out, |H|, H', W')."""
        check_features(x, self.group, self.in_channels)
        return self.convolve(x.flatten(1, 2), self.bank() * self.group.measure)  # equivariant (13)


def bank_index(group: Group, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Where the numbers of the moved filters come from: (|H|, numel) for a filter (k, k), or (|H|, k, k) with poses."""
    places = torch.arange(math.prod(shape)).reshape(1, 1, *shape)
    return torch.stack([group.transform(places, h).flatten() for h in range(len(group))])


def filter_bank(weight: Tensor, index: Tensor) -> Tensor:
    """Filters (out, in, ...) moved by every element, (out, |H|, in, ...), by the index of `bank_index`."""
    moved = weight.flatten(2).index_select(2, index.flatten())
    return moved.reshape(*weight.shape[:2], len(index), *weight.shape[2:]).transpose(1, 2)


class PoseBatchNorm(nn.BatchNorm3d):
    """Batch norm over features (B, C, |H|, H, W): a mean and a deviation for each channel, shared by its poses.

    >>> PoseBatchNorm(8)(torch.rand(2, 8, 4, 9, 7)).shape
    torch.Size([2, 8, 4, 9, 7])
    """


class _Pool(Strided):
    def __init__(
        self, group: Group, kernel_size: int, stride: int | None = None, padding: int = 0, dilation: int = 1
    ) -> None:
        super().__init__(group, kernel_size, stride or kernel_size, padding, dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features (B, C, |H|, H', W')."""
        check_features(x, self.group)
        self.check_size(x)
        y = self.pool(x.flatten(1, 2))
        return y.reshape(*x.shape[:3], *y.shape[2:])

    def pool(self, planes: Tensor) -> Tensor:
        """Planes (B, C·|H|, H, W) to planes (B, C·|H|, H', W')."""
        raise NotImplementedError


class GroupMaxPool2d(_Pool):
    """Max pooling in space, of each pose by itself.

    >>> from foveate.groups import P4
    >>> GroupMaxPool2d(P4, 2)(torch.rand(2, 8, 4, 8, 6)).shape
    torch.Size([2, 8, 4, 4, 3])
    """

    def pool(self, planes: Tensor) -> Tensor:
        """Planes (B, C·|H|, H, W) to planes (B, C·|H|, H', W')."""
        return F.max_pool2d(planes, self.kernel_size, self.stride, self.padding, self.dilation)


class GroupAvgPool2d(_Pool):
    """Average pooling in space, of each pose by itself.

    >>> from foveate.groups import P4
    >>> GroupAvgPool2d(P4, 2)(torch.rand(2, 8, 4, 8, 6)).shape
    torch.Size([2, 8, 4, 4, 3])
    """

    def __init__(self, group: Group, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        super().__init__(group, kernel_size, stride, padding)

    def pool(self, planes: Tensor) -> Tensor:
        """Planes (B, C·|H|, H, W) to planes (B, C·|H|, H', W')."""
        return F.avg_pool2d(planes, self.kernel_size, self.stride, self.padding)


class PosePool(nn.Module):
    """The maximum, or the mean, over poses: features (B, C, |H|, H, W) to planes (B, C, H, W) that move as images do.

    >>> PosePool("mean")(torch.rand(2, 8, 4, 9, 7)).shape
    torch.Size([2, 8, 9, 7])
    """

    def __init__(self, mode: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        if mode not in ("max", "mean"):
            raise ValueError(f"mode must be 'max' or 'mean', not {mode!r}")
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to planes (B, C, H, W)."""
        return x.amax(2) if self.mode == "max" else x.mean(2)

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return repr(self.mode)


class PoseDropout(nn.Module):
    """Dropout of whole poses: for each image, a pose of all channels and positions is kept, and scaled, or zero.

    >>> PoseDropout(0.3).eval()(torch.ones(1, 2, 4, 3, 3)).unique()
    tensor([1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p must be in [0, 1], not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features of the same shape."""
        if not self.training or not self.p:
            return x
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[2], 1, 1), self.p)

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return f"p={self.p}"


def check_features(x: Tensor, group: Group, channels: int | None = None) -> None:
    """A short error for what is not features of this group."""
    if x.ndim != 5 or x.shape[2] != len(group) or channels not in (None, x.shape[1]):
        expected = f"(B, {channels or 'C'}, {len(group)}, H, W)"
        hint = "; images are lifted first, see LiftConv2d" if x.ndim == 4 else ""
        raise ValueError(f"{group.name} features have the shape {expected}, not {tuple(x.shape)}{hint}")


def check_positive_integers(**numbers: int) -> None:
    """A short error for constructor arguments that count something."""
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a whole number above 0, not {number}")
