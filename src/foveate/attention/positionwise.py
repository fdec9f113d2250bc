"""Position-wise attention: a value for each position by itself; what shaped attentions are held against."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveate.attention.base import CombineName, SpatialAttention, check_kernel, check_positive
from foveate.gaze import Gaze, Look


class PositionwiseLook(Look):
    """Convolutions that keep the size, then a sigmoid at every position (rectangular, III and IV-C)."""

    def __init__(self, channels: int, widths: Sequence[int] = (64, 64), kernel_size: int = 3) -> None:
        super().__init__()
        check_positive(channels=channels, widths=widths)
        check_kernel(kernel_size)
        layers: list[nn.Module] = []
        for before, after in zip((channels, *widths[:-1]), widths, strict=True):
            layers += [nn.Conv2d(before, after, kernel_size, padding=kernel_size // 2), nn.ReLU()]
        last = nn.Conv2d(widths[-1], 1, kernel_size, padding=kernel_size // 2)
        self.scores = nn.Sequential(*layers, last)

    def forward(self, x: Tensor) -> Gaze:
        """Features (B, C, H, W) to a gaze."""
        return Gaze(self.scores(x).float().sigmoid())


class PositionwiseAttention(SpatialAttention):
    """Position-wise spatial attention, the paper's counterpart of rectangular attention.

    Its widths stay small, for it cannot sub-sample: the map needs every position (rectangular, IV-C).

    >>> PositionwiseAttention(16)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16, 7, 5])
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int] = (64, 64),
        kernel_size: int = 3,
        rescale: bool = False,
        combine: CombineName = "residual",
    ) -> None:
        super().__init__(PositionwiseLook(channels, widths, kernel_size), combine, rescale)


class CBAMLook(Look):
    """Mean and maximum over channels, one convolution, a sigmoid (Woo et al. 2018, the spatial half of CBAM)."""

    def __init__(self, kernel_size: int = 7) -> None:
        super().__init__()
        check_kernel(kernel_size)
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Gaze:
        """Features (B, C, H, W) to a gaze."""
        pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], dim=1)
        return Gaze(self.norm(self.conv(pooled)).float().sigmoid())


class CBAMAttention(SpatialAttention):
    """CBAM's spatial attention: a map from two numbers per position. It multiplies, as in its paper.

    >>> CBAMAttention(16)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16, 7, 5])
    """

    def __init__(
        self, channels: int, kernel_size: int = 7, rescale: bool = False, combine: CombineName = "multiply"
    ) -> None:
        check_positive(channels=channels)
        super().__init__(CBAMLook(kernel_size), combine, rescale)
