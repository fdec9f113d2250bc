"""What an attention costs: time as a ratio against the same network without it, measured by turns in one run."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn


@torch.no_grad()
def latency_ratio(model: nn.Module, reference: nn.Module, images: Tensor, seconds: float = 1.0) -> float:
    """The time of a forward pass of `model` over that of `reference`: the median of paired measurements.

    The two run by turns, so that a machine that slows down slows both.

    >>> net = nn.Linear(8, 8)
    >>> latency_ratio(net, net, torch.rand(1, 8), seconds=0.01) > 0
    True
    """
    model.eval(), reference.eval()
    _time(model, images), _time(reference, images)
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < 5 or time.perf_counter() < end:
        ratios.append(_time(model, images) / _time(reference, images))
    return statistics.median(ratios)


def _time(model: nn.Module, images: Tensor) -> float:
    if images.is_cuda:
        torch.cuda.synchronize(images.device)
    start = time.perf_counter()
    model(images)
    if images.is_cuda:
        torch.cuda.synchronize(images.device)
    return time.perf_counter() - start
