"""The other half of the information bottleneck: a head that passes on a noisy code of the features, at a price.

Lai et al., "Information Bottleneck Approach to Spatial Attention Learning", after Alemi et al. 2017. Equations are
named as `bottleneck (n)`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attention.base import check_positive
from foveate.attention.bottleneck import draw
from foveate.gaze import Watched

SMALLEST = 1e-6  # of deviations, whose logarithm is taken


@dataclass(eq=False)
class Code:
    """A Gaussian code of features, and what was drawn from it.

    Attributes:
        mean, deviation: (B, K).
        sample: (B, K), or (L, B, K) where L draws were asked for; in evaluation the mean.
        beta: the price of a nat.
    """

    mean: Tensor
    deviation: Tensor
    sample: Tensor
    beta: float = 0.01

    @property
    def divergence(self) -> Tensor:
        """KL[N(mean, deviation²) ‖ N(0, I)] in nats, (B,).

        >>> Code(torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(2, 3)).divergence
        tensor([0., 0.])
        """
        terms = self.mean.square() + self.deviation.square() - 1 - 2 * self.deviation.log()
        return terms.sum(dim=1) / 2

    @property
    def penalty(self) -> Tensor:
        """β·KL, averaged over the images: a scalar."""
        return self.beta * self.divergence.sum() / max(1, len(self.mean))  # bottleneck (10)


class Encode(Watched):
    """A linear layer to 2K numbers: the mean and, after a softplus, the deviation of a code."""

    def __init__(self, features: int, latent: int, beta: float = 0.01) -> None:
        super().__init__()
        self.numbers = nn.Linear(features, 2 * latent)
        self.beta = beta

    def forward(self, x: Tensor, samples: int = 0, generator: torch.Generator | None = None) -> Code:
        """Features (B, F) to a code; it draws once in training, and `samples` times where these are asked for."""
        numbers = self.numbers(x)
        numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
        mean, scores = numbers.chunk(2, dim=1)
        deviation = F.softplus(scores).clamp_min(SMALLEST)
        sample = mean
        if samples or self.training:
            drawn = draw(mean[None], deviation, samples or 1, generator=generator)
            sample = drawn if samples else drawn[0]
        return Code(mean, deviation, sample, self.beta)


class BottleneckHead(nn.Module):
    """A classifier behind an information bottleneck: encode to 2K numbers, draw a code, decode it to logits.

    Put it where a network has its linear classifier; `watch` then sees the price of the code, and the training
    objective adds it. In training the code is drawn, in evaluation it is the mean.

    Args:
        features: how many it gets; what has more axes is flattened.
        latent: K, how many numbers the code has.
        classes: how many logits.
        beta: β, the price of a nat of information.
        hidden: decode by Linear K×K → ReLU → Linear K×C, as behind VGG; else by ReLU → Linear K×C, as behind WRN.

    >>> from foveate import BottleneckAttention, watch
    >>> host = nn.Sequential(nn.Conv2d(3, 8, 3), BottleneckAttention(8, anchors=20), nn.AdaptiveAvgPool2d(1))
    >>> model = nn.Sequential(host, BottleneckHead(8, latent=16, classes=10))
    >>> with watch(model) as seen:
    ...     logits = model(torch.rand(2, 3, 32, 32))
    >>> loss = F.cross_entropy(logits, torch.tensor([3, 7])) + seen.penalty  # all of bottleneck (10)
    """

    def __init__(self, features: int, latent: int, classes: int, beta: float = 0.01, hidden: bool = True) -> None:
        super().__init__()
        check_positive(features=features, latent=latent, classes=classes)
        self.encode = Encode(features, latent, beta)
        first: list[nn.Module] = [nn.Linear(latent, latent)] if hidden else []
        self.decode = nn.Sequential(*first, nn.ReLU(), nn.Linear(latent, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, F), or any (B, …) of F numbers each, to logits (B, classes)."""
        code = self.encode(x.flatten(1))
        logits: Tensor = self.decode(code.sample.to(x.dtype))
        return logits
