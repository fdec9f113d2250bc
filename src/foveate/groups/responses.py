"""Full attention without keeping the responses f̃, which are |H|·|H̃|·in·out numbers for each position.

Of all that equivariant (17)–(19) need, the attended sum and the means are linear in f̃, so they are convolutions and
need no f̃. The two maxima do, piece by piece. Over space, the responses of each filter are made, their largest is kept
with its place, and the rest forgotten: its gradient goes to that place alone. Over channels, a tile of responses is
made that fits a cache, and made once more in the backward pass, where it turns into its own gradient in place.
Ties over space go to the first place, as in `torch.max`; those over channels are shared, as in `torch.amax`.

Here the input is padded and its poses come first, (B, T, in, H, W), with T = 1 where it is an image; the moved filters
are (T, in, M, k²) with M = out·|H|, or (B, T, in, M, k²) where each image has its own; L are the output's positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE_ON_CPU, TILE = 1 << 19, 1 << 25  # responses at a time: what a core's cache holds; what keeps a GPU busy

Block = tuple[slice, slice, slice, slice]


@dataclass(frozen=True)
class Window:
    """How filters slide: over an input that is padded already."""

    kernel_size: int
    stride: int = 1
    dilation: int = 1

    def output(self, length: int) -> int:
        """How many places there are along a side."""
        return (length - self.dilation * (self.kernel_size - 1) - 1) // self.stride + 1

    def output_size(self, x: Tensor) -> tuple[int, int]:
        """(H', W') for an input (..., H, W)."""
        return self.output(x.shape[-2]), self.output(x.shape[-1])

    def columns(self, x: Tensor) -> Tensor:
        """What the filters see: (B, T, in, H, W) to (B, T, in, k², L)."""
        height, width = self.output_size(x)
        reach = self.dilation * (self.kernel_size - 1) + 1
        seen = x.unfold(3, reach, self.stride).unfold(4, reach, self.stride)[..., :: self.dilation, :: self.dilation]
        return seen.permute(0, 1, 2, 5, 6, 3, 4).reshape(*x.shape[:3], self.kernel_size**2, height * width)

    def add_back(self, columns: Tensor, x: Tensor) -> None:
        """Add columns (B, T, in, k², L) to what they were seen in, x (B, T, in, H, W), in place."""
        height, width = self.output_size(x)
        parts = columns.reshape(*columns.shape[:4], height, width).unbind(3)
        for index, part in enumerate(parts):
            row, column = (n * self.dilation for n in divmod(index, self.kernel_size))
            rows = slice(row, row + (height - 1) * self.stride + 1, self.stride)
            x[..., rows, column : column + (width - 1) * self.stride + 1 : self.stride] += part

    def places(self, x: Tensor) -> Tensor:
        """Where in a flat plane of x the k² numbers that each output sees are: (k², L)."""
        plane = torch.arange(x.shape[-2] * x.shape[-1], device=x.device).reshape(1, 1, 1, *x.shape[-2:])
        return self.columns(plane)[0, 0, 0]


def mean_over_space(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """s_avg of equivariant (17), the means of f̃ over positions: (B, T, in, M).

    The mean of a convolution is the filter times the means of what its k² numbers meet.
    """
    height, width = window.output_size(x)
    rows, columns = (_band(window, length, x) for length in x.shape[-2:])
    means = (rows.T @ x @ columns) / (height * width)
    return torch.einsum("btiu,timu->btim", means.flatten(3), filters)


def _band(window: Window, length: int, like: Tensor) -> Tensor:
    """(length, k), 1 where the k-th number of a filter meets the row at some place."""
    k = torch.arange(window.kernel_size, device=like.device)
    steps = torch.arange(length, device=like.device)[:, None] - k * window.dilation
    met = (steps >= 0) & (steps % window.stride == 0) & (steps < window.output(length) * window.stride)
    return met.to(like.dtype)


def max_over_space(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """s_max of equivariant (17), the largest of f̃ over positions: (B, T, in, M)."""
    maximum: Tensor = _MaxOverSpace.apply(x, filters, window)
    return maximum


def sum_and_max_over_channels(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """Σ and max over input channels of the responses to each image's own filters: (2, B, T, M, H', W')."""
    both: Tensor = _SumAndMaxOverChannels.apply(x, filters, window)
    return both.reshape(*both.shape[:-1], *window.output_size(x))


class _MaxOverSpace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, window: Window) -> Tensor:
        height, width = window.output_size(x)
        maximum = x.new_empty(*x.shape[:3], filters.shape[2])
        winner = torch.empty_like(maximum, dtype=torch.int64)
        numbers = filters.shape[2] * height * width
        for images, poses, channels in _tiles(x.shape[:3], numbers, x.device):
            columns = window.columns(x[images, poses, channels])
            responses = torch.matmul(filters[poses, channels], columns)  # (b, t, i, M, L)
            maximum[images, poses, channels], winner[images, poses, channels] = _largest(responses)
        ctx.save_for_backward(x, filters, winner)
        ctx.window = window
        return maximum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, filters, winner = ctx.saved_tensors
        # each filter has one patch that won in each image: the gradient goes to these k² numbers and to the filter
        where = ctx.window.places(x)[:, winner].permute(1, 2, 3, 0, 4).flatten(3)  # (B, T, in, k²·M)
        patches = x.flatten(3).gather(3, where).reshape(*x.shape[:3], -1, filters.shape[2])
        for_filters = torch.einsum("btim,btium->timu", gradient, patches)
        for_x = torch.zeros_like(x)
        for_x.flatten(3).scatter_add_(3, where, (gradient[..., None, :] * filters.mT).flatten(3))
        return for_x, for_filters, None


class _SumAndMaxOverChannels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, window: Window) -> Tensor:
        ctx.save_for_backward(x, filters)
        ctx.window = window
        batch, poses, _, count, _ = filters.shape
        height, width = window.output_size(x)
        both = x.new_empty(2, batch, poses, count, height * width)
        for images, pose, blocks in _blocks(x, filters, height * width):
            columns, kernels = window.columns(x[images, pose]), filters[images, pose]
            for some in blocks:
                responses = torch.matmul(kernels[..., some, :], columns)
                both[0, images, pose, some] = responses.sum(2)
                both[1, images, pose, some] = responses.amax(2)
        return both

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, filters = ctx.saved_tensors
        for_x, for_filters = torch.zeros_like(x), torch.empty_like(filters)
        for_sum, for_max = gradient.contiguous()
        for images, pose, blocks in _blocks(x, filters, gradient.shape[-1]):
            columns, kernels = ctx.window.columns(x[images, pose]), filters[images, pose]
            for some in blocks:
                responses = torch.matmul(kernels[..., some, :], columns)
                responses.eq_(responses.amax(2, keepdim=True))  # 1 where a channel wins
                share = for_max[images, pose, some] / responses.sum(2)
                ours = for_sum[images, pose, some][:, :, None]
                torch.addcmul(ours, responses, share[:, :, None], out=responses)  # now its own gradient
                for_filters[images, pose, :, some] = torch.matmul(columns, responses.mT).mT
                for_columns = torch.matmul(kernels[..., some, :].mT, responses)
                ctx.window.add_back(for_columns, for_x[images, pose])
        return for_x, for_filters, None


def _largest(responses: Tensor) -> tuple[Tensor, Tensor]:
    """`responses.max(-1)`, which spoils them: on CPUs in vectorised passes, several times faster than one by one."""
    if responses.device.type != "cpu":
        return responses.max(-1)
    length = responses.shape[-1]
    maximum = responses.amax(-1)
    left = torch.arange(length, 0, -1, dtype=responses.dtype, device=responses.device)
    first = responses.eq_(maximum[..., None]).mul_(left).amax(-1)  # of the places with the maximum
    return maximum, (length - first.long()).clamp_(max=length - 1)  # NaN is nowhere


def _tile(device: torch.device) -> int:
    return TILE_ON_CPU if device.type == "cpu" else TILE


def _steps(length: int, most: int) -> Iterator[slice]:
    """Slices of at most so many, as even as can be."""
    pieces = -(-length // max(1, most))
    size = -(-length // max(1, pieces))
    for start in range(0, length, max(1, size)):
        yield slice(start, start + size)


def _tiles(shape: tuple[int, ...], numbers: int, device: torch.device) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of images, poses and channels, each of which has so many responses: as many together as fit a tile."""
    fit = _tile(device) // max(1, numbers)
    for images in _steps(shape[0], fit // (shape[1] * shape[2])):
        for poses in _steps(shape[1], fit // shape[2]):
            for channels in _steps(shape[2], fit):
                yield images, poses, channels


def _blocks(x: Tensor, filters: Tensor, positions: int) -> Iterator[tuple[slice, slice, list[slice]]]:
    """Slices of images, of poses and, for each, of filters, so that the responses of all channels fit a tile."""
    batch, poses, channels, count, _ = filters.shape
    fit = _tile(x.device) // max(1, channels * positions)  # filters
    for images in _steps(batch, fit // (poses * count)):
        for pose in _steps(poses, fit // count):
            yield images, pose, list(_steps(count, fit))


class _Gate(torch.autograd.Function):
    """Σ over poses of σ(depthwise convolutions of the two statistics, added) times the first of them."""

    @staticmethod
    def forward(ctx: Any, statistics: Tensor, weight: Tensor) -> Tensor:
        attention = torch.empty_like(statistics[0])
        attended = torch.empty_like(attention[:, 0])
        for images in _few(attention):
            attention[images] = spatial_attention(statistics[:, images], weight)
            attended[images] = (attention[images] * statistics[0, images]).sum(1)
        ctx.save_for_backward(statistics, weight, attention)
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        statistics, weight, attention = ctx.saved_tensors
        for_statistics, for_weight = torch.empty_like(statistics), torch.zeros_like(weight)
        for images in _few(attention):
            through = gradient[images, None] * attention[images]  # to the attended sum itself
            slope = through * statistics[0, images]
            slope.addcmul_(slope, attention[images], value=-1)  # to the argument of the sigmoid
            flat = slope.flatten(1, 2)
            for s in (0, 1):
                back = _depthwise_input_gradient(flat, weight[s].flatten(0, 1))
                for_statistics[s, images] = back.reshape_as(slope)
            for_statistics[0, images] += through
            found = _depthwise_weight_gradient(statistics[:, images].flatten(2, 3), flat, weight.shape[-1])
            for_weight += found.reshape_as(weight)
        return for_statistics, for_weight


def _few(x: Tensor) -> Iterator[slice]:
    """Slices of as many images as fit a tile together."""
    return _steps(len(x), _tile(x.device) // max(1, x.shape[1:].numel()))


def gated_sum(statistics: Tensor, weight: Tensor) -> Tensor:
    """Σ_h̃ α^X·(Σ_c̃ α^C f̃), equivariant (18) and (19).

    Args:
        statistics: sum and maximum over channels, (2, B, T, M, H', W').
        weight: ψ^X moved, and the half for the means divided by the channels, (2, T, M, n, n).

    Returns:
        (B, M, H', W').
    """
    attended: Tensor = _Gate.apply(statistics, weight)
    return attended


def spatial_attention(statistics: Tensor, weight: Tensor) -> Tensor:
    """α^X of equivariant (18): arguments as in `gated_sum`, to (B, T, M, H', W')."""
    planes, size = weight[0].flatten(0, 1)[:, None], weight.shape[-1]
    first, second = (
        F.conv2d(statistics[s].flatten(1, 2), weight[s].flatten(0, 1)[:, None], padding=size // 2, groups=len(planes))
        for s in (0, 1)
    )
    return first.add_(second).sigmoid_().reshape(statistics.shape[1:])


def _depthwise_input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    """Of a depthwise convolution that keeps the size: it is one with the filters turned by half a turn."""
    half = weight.shape[-1] // 2
    return F.conv2d(gradient, weight.flip(-2, -1)[:, None], padding=half, groups=len(weight))


def _depthwise_weight_gradient(x: Tensor, gradient: Tensor, size: int) -> Tensor:
    """Of depthwise convolutions that keep the size: x (2, B, C, H, W), gradient (B, C, H, W) to (2, C, n, n).

    On CPUs, the depthwise convolution of each plane of x with its gradient as the filter, several times faster there
    than what the library has for the purpose.
    """
    _, batch, channels, height, width = x.shape
    half = size // 2
    if x.device.type != "cpu":
        empty = gradient.new_empty(channels, 1, size, size)
        arguments = (empty, None, [1, 1], [half, half], [1, 1], False, [0, 0], channels, [False, True, False])
        return torch.stack([torch.ops.aten.convolution_backward(gradient, part, *arguments)[1] for part in x])
    planes = x.reshape(2, batch * channels, height, width)
    filters = gradient.reshape(batch * channels, 1, height, width)
    found = F.conv2d(planes, filters, padding=half, groups=len(filters))
    return found.reshape(2, batch, channels, size, size).sum(1)
