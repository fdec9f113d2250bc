"""What is minimised: the task's loss, what the gazes ask for, and how far they fail to move with the image."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attention.branch import BranchGaze
from foveate.gaze import Gaze, Gazes, watch
from foveate.geometry import random_similarity, warp


def penalties(gazes: Mapping[str, Gaze]) -> Tensor:
    """The sum of the penalties of gazes, and of whatever else `watch` saw with them, a scalar.

    >>> penalties({"layer4": Gaze(torch.ones(2, 1, 3, 3))})
    tensor(0.)
    """
    if isinstance(gazes, Gazes):
        return gazes.penalty
    return sum((gaze.penalty for gaze in gazes.values()), torch.zeros(()))


def branches(gazes: Mapping[str, Gaze], labels: Tensor) -> Tensor:
    """The cross-entropy of the side classifiers that attentions have, a scalar; zero where there is none.

    >>> branches({"layer4": Gaze(torch.ones(2, 1, 3, 3))}, torch.tensor([1, 0]))
    tensor(0.)
    """
    votes = [gaze.branch_logits for gaze in gazes.values() if isinstance(gaze, BranchGaze)]
    return sum((F.cross_entropy(logits, labels) for logits in votes), torch.zeros(()))


def equivariance_distance(
    model: nn.Module,
    images: Tensor,
    gazes: Mapping[str, Gaze],
    draw: Callable[[int], Tensor] = random_similarity,
) -> Tensor:
    """How far the gazes on randomly moved images are from the moved gazes, a scalar (rectangular IV-D).

    Images and gazes are moved by one and the same matrix. `gazes` are those of the model on `images`; where there are
    none, the distance is zero.
    """
    if not gazes:
        return images.new_zeros(())
    matrix = draw(images.shape[0]).to(images, non_blocking=True)
    with watch(model) as seen, statistics_kept(model):
        model(warp(images, matrix, padding="border"))
    return torch.stack([gaze.move(matrix).distance(seen[name]).mean() for name, gaze in gazes.items()]).sum()


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Batch norms normalise as ever, but take nothing into their running statistics: moved images are not the data."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
