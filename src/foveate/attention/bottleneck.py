"""Attention through an information bottleneck: a map drawn from a learned Gaussian and rounded to learned anchors.

Lai et al., "Information Bottleneck Approach to Spatial Attention Learning". Equations are named as `bottleneck (n)`;
those of the latent code and of the decoder are in `latent.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attention.base import CombineName, SpatialAttention, check_positive
from foveate.gaze import Gaze, Look
from foveate.geometry import warp

QUIET = 5.0  # taken off before the softplus, so that the first maps are not noise: a deviation of 0.007


def nearest_anchor(values: Tensor, anchors: Tensor) -> Tensor:
    """Which of the sorted `anchors` (Q,) is nearest to each of `values` (any shape); between two, the lower one.

    Anchors are numbers on a line: the nearest is found among their midpoints, without the distance to each of them.

    >>> nearest_anchor(torch.tensor([-3.0, 0.2, 0.3, 0.9]), torch.tensor([0.0, 0.5, 1.0]))
    tensor([0, 0, 1, 2])
    """
    midpoints = (anchors[1:] + anchors[:-1]) / 2
    return torch.bucketize(values, midpoints)  # bottleneck (9)


@dataclass(eq=False)
class BottleneckGaze(Gaze):
    """A map drawn from a Gaussian at every position, and rounded where there are anchors.

    Attributes:
        map: (B, 1, H, W), the average of the rounded draws; gradients pass the rounding as if it were not there.
        mean, deviation: (B, 1, H, W), of the Gaussian.
        samples: (B, S, H, W), the draws; in evaluation the mean alone, with S = 1.
        quantised: (B, S, H, W), the draws rounded to anchors, through which gradients reach the anchors; the draws
            themselves where there are no anchors.
        usage: (B, Q), the share of positions that each anchor got, lowest anchor first; Q = 0 without anchors.
        quantisation, commitment: the weights λq and λc.
    """

    mean: Tensor
    deviation: Tensor
    samples: Tensor
    quantised: Tensor
    usage: Tensor
    quantisation: float = 0.4
    commitment: float = 0.1

    @property
    def applied(self) -> Tensor:
        """Each draw as it is applied, (B, S, H, W): straight through, with the value of aq and the gradient of a."""
        if not self.usage.shape[1]:
            return self.samples
        return self.quantised.detach() + (self.samples - self.samples.detach())

    @property
    def penalty(self) -> Tensor:
        """λq·(sg[a] − aq)² + λc·(a − sg[aq])², averaged over positions, draws and images: a scalar, 0 without anchors.

        The norms of bottleneck (10) are taken as those of (9), of one position. Summed over a map of 32×32, their
        gradient throws the anchors off at the paper's own learning rate: 0.1·2·λq·1024 is far above 2.
        """
        if not self.usage.shape[1]:
            return self.map.new_zeros(())
        move_anchors = _squared_distance(self.samples.detach(), self.quantised)
        commit = _squared_distance(self.samples, self.quantised.detach())
        return self.quantisation * move_anchors + self.commitment * commit  # bottleneck (10)

    def move(self, matrix: Tensor) -> Self:
        """The gaze with all that lies on the plane moved by `matrix` (B, 2, 3)."""
        names = ("map", "mean", "deviation", "samples", "quantised")
        moved: dict[str, Any] = {name: warp(getattr(self, name), matrix) for name in names}
        return replace(self, **moved)


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """The mean of (a − b)² over maps (B, S, H, W); zero for an empty batch."""
    squares = (a - b).square()
    return squares.sum() / max(1, squares.numel())


class BottleneckLook(Look):
    """A mean map by Conv 3×3 → sigmoid, a deviation from the mean by Conv 1×1, draws, anchors (bottleneck 3.2, 3.3).

    Args: those of `BottleneckAttention`.
    """

    def __init__(
        self,
        channels: int,
        anchors: int = 0,
        samples: int = 1,
        hidden: Sequence[int] = (),
        scores: nn.Module | None = None,
        quantisation: float = 0.4,
        commitment: float = 0.1,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, samples=samples)
        if anchors < 0 or anchors == 1:
            raise ValueError(f"anchors must be 0, for none, or at least 2, not {anchors}")
        if scores is None:
            layers: list[nn.Module] = []
            for before, after in zip((channels, *hidden), hidden, strict=False):
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            scores = nn.Sequential(*layers, nn.Conv2d((channels, *hidden)[-1], 1, 3, padding=1))
        self.scores = scores
        self.spread = nn.Conv2d(1, 1, 1)
        self.anchors = nn.Parameter(torch.linspace(0, 1, anchors)) if anchors else None
        self.samples = samples
        self.quantisation, self.commitment = quantisation, commitment

    def forward(
        self, x: Tensor, samples: int | None = None, generator: torch.Generator | None = None
    ) -> BottleneckGaze:
        """Features (B, C, H, W) to a gaze.

        In training it draws; in evaluation it takes the mean, unless a number of `samples` is asked for.
        """
        scores = self.scores(x)
        mean = (scores if scores.dtype == torch.float64 else scores.float()).sigmoid()
        # a 1×1 convolution of one channel, written out, for autocast would do it in half precision
        deviation = F.softplus(mean * self.spread.weight + self.spread.bias - QUIET)
        count = samples or (self.samples if self.training else 0)
        drawn = draw(mean, deviation, count, dim=1, generator=generator) if count else mean
        quantised, usage = drawn, drawn.new_zeros(len(drawn), 0)
        if self.anchors is not None:
            anchors = self.anchors.to(mean.dtype).sort().values
            index = nearest_anchor(drawn.detach(), anchors.detach())
            quantised, usage = anchors[index], _usage(index, len(anchors), mean.dtype)
        gaze = BottleneckGaze(mean, mean, deviation, drawn, quantised, usage, self.quantisation, self.commitment)
        return replace(gaze, map=gaze.applied.mean(dim=1, keepdim=True))

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return f"anchors={0 if self.anchors is None else len(self.anchors)}, samples={self.samples}"


def draw(mean: Tensor, deviation: Tensor, count: int, dim: int = 0, generator: torch.Generator | None = None) -> Tensor:
    """`count` reparametrised draws from a Gaussian, side by side along `dim`, which `mean` has with length one.

    >>> draw(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3), 5, dim=1).shape
    torch.Size([2, 5, 3])
    """
    shape = [*mean.shape]
    shape[dim] = count
    noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + deviation * noise  # a = g(x, ε), and z = f(x, a, ϵ)


def _usage(index: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    places = index.flatten(1)
    counts = torch.zeros(len(places), count, dtype=dtype, device=places.device)
    return counts.scatter_add(1, places, torch.ones_like(places, dtype=dtype)) / max(1, places.shape[1])


class BottleneckAttention(SpatialAttention):
    """Attention through an information bottleneck, x + a·x with a map a that is drawn, and rounded to anchors.

    Alone it draws and rounds; it is `BottleneckHead` behind it that starves it of information.

    Args:
        channels: channels of the features it is put behind.
        anchors: how many learned values the map is rounded to, 0 for none; they start even over [0, 1].
        samples: how many maps are drawn in training, whose average is applied; see `foveate.draws` for one network
            output for each. In evaluation the mean is applied, and nothing is random.
        hidden: widths of convolutions before the one that gives the mean.
        scores: a module from features to the scores (B, 1, H, W) whose sigmoid is the mean, in place of convolutions.
        quantisation: λq, the weight of moving the anchors to the maps.
        commitment: λc, the weight of moving the maps to the anchors.
        combine: "residual" (the authors'), "multiply" or "suppress".

    >>> attention = BottleneckAttention(16, anchors=20)
    >>> attention(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16, 7, 5])
    """

    look: BottleneckLook

    def __init__(
        self,
        channels: int,
        anchors: int = 0,
        samples: int = 1,
        hidden: Sequence[int] = (),
        scores: nn.Module | None = None,
        quantisation: float = 0.4,
        commitment: float = 0.1,
        combine: CombineName = "residual",
    ) -> None:
        look = BottleneckLook(channels, anchors, samples, hidden, scores, quantisation, commitment)
        super().__init__(look, combine)
