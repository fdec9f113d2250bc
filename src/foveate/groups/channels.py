"""Channel attention's perceptrons: over channels and poses of features, and over the responses of each filter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.groups.layers import bank_index, check_positive_integers, filter_bank
from foveate.groups.symmetries import Group

Statistic = Literal["mean", "max"]


class FeaturePerceptron(nn.Module):
    """Statistics over space, two 1×1 group convolutions with a ReLU between: the channel half of equivariant (20).

    With the trivial group these are the two linear maps of SE and CBAM.
    """

    bank_index: Tensor

    def __init__(
        self,
        group: Group,
        channels: int,
        reduction: int = 2,
        statistics: Sequence[Statistic] = ("mean", "max"),
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_positive_integers(channels=channels, reduction=reduction)
        hidden = max(1, channels // reduction)
        self.group, self.statistics = group, tuple(statistics)
        self.reduce = nn.Parameter(torch.empty(hidden, channels, len(group)))
        self.expand = nn.Parameter(torch.empty(channels, hidden, len(group)))
        self.reduce_bias = nn.Parameter(torch.zeros(hidden)) if bias else None
        self.expand_bias = nn.Parameter(torch.zeros(channels)) if bias else None
        self.register_buffer("bank_index", bank_index(group, (len(group), 1, 1)), persistent=False)
        start(self.reduce, self.expand)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to what a sigmoid makes α^C of, (B, C, |H|, 1, 1)."""
        found = {"mean": lambda: x.mean((-2, -1)), "max": lambda: x.amax((-2, -1))}
        scores = sum(
            self._linear(
                self._linear(found[name](), self.reduce, self.reduce_bias).relu(), self.expand, self.expand_bias
            )
            for name in self.statistics
        )
        return torch.as_tensor(scores)[..., None, None]

    def _linear(self, s: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        bank = filter_bank(weight, self.bank_index)  # (out, |H|, in, |H|)
        spread = bias.repeat_interleave(len(self.group)) if bias is not None else None
        return F.linear(s.flatten(1), bank.flatten(2).flatten(0, 1), spread).reshape(len(s), *bank.shape[:2])


class ResponsePerceptron(nn.Module):
    """One perceptron for each filter, its matrices moved with the poses: φ^C of equivariant (17).

    Args:
        group: of the output.
        sources: poses of the input; 0 where it is an image, and the matrices have no poses of their own.
    """

    bank_index: Tensor

    def __init__(self, group: Group, in_channels: int, out_channels: int, sources: int, reduction: int = 2) -> None:
        super().__init__()
        check_positive_integers(reduction=reduction)
        hidden = max(1, in_channels // reduction)
        poses = (sources,) if sources else ()
        self.reduce = nn.Parameter(torch.empty(out_channels, hidden, in_channels, *poses))
        self.expand = nn.Parameter(torch.empty(out_channels, in_channels, hidden, *poses))
        index = bank_index(group, (*poses, 1, 1))
        self.register_buffer("bank_index", index, persistent=False)
        start(self.reduce, self.expand)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """W₁(h⁻¹h̃) and W₂(h⁻¹h̃): (out, |H|, in/r, in, T) and (out, |H|, in, in/r, T)."""
        return self._moved(self.reduce), self._moved(self.expand)

    def _moved(self, weight: Tensor) -> Tensor:
        rows = weight.reshape(weight.shape[0], -1, self.bank_index.shape[1])  # (out, rows·columns, T)
        return filter_bank(rows, self.bank_index).reshape(
            len(weight), len(self.bank_index), *weight.shape[1:3], self.bank_index.shape[1]
        )

    def forward(self, mean: Tensor, maximum: Tensor) -> Tensor:
        """Statistics (B, T, in, M), M = out·|H|, to α^C (B, T, in, M)."""
        reduce, expand = (
            matrix.flatten(0, 1).permute(3, 0, 1, 2) for matrix in self.matrices()
        )  # (T, M, rows, columns)
        hidden = torch.einsum("tmri,sbtim->sbtmr", reduce, torch.stack([mean, maximum])).relu()
        # the second map is linear, so it is applied once to the sum
        return torch.einsum("tmir,btmr->btim", expand, hidden.sum(0)).sigmoid()  # equivariant (17)


def start(*weights: nn.Parameter) -> None:
    """As linear layers start."""
    for weight in weights:
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
