"""The value function: an image's features as a continuous function of the plane, V(t) = Bψ(t), by ridge regression."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from foveate.densities import Basis

SIZES = 8  # of maps whose regression is remembered


def regression(basis: Basis, size: tuple[int, ...], ridge: float = 0.01, padding: bool = True) -> Tensor:
    """G = Fᵀ(FFᵀ + λI)⁻¹ (L, N), so that B = HG for features H (C, L): continuous (3.17), Alg. 1.

    Positions are the pixel centres of a map of `size`. With padding the map lies in the middle of one of twice its
    side that is zero elsewhere, so that V vanishes outside the image (continuous 6.2.2, note 2).

    >>> from foveate.densities import GaussianBasis
    >>> regression(GaussianBasis.grid(100, 0.001), (14, 14)).shape
    torch.Size([196, 100])
    """
    padded = [length + 2 * (length - length // 2) * padding for length in size]
    axes = [
        (torch.arange(whole, dtype=torch.float64) - (whole - length) // 2 + 0.5) / length
        for whole, length in zip(padded, size, strict=True)
    ]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    image = torch.stack(torch.meshgrid(*[(a > 0) & (a < 1) for a in axes], indexing="ij"), -1).flatten(0, -2).all(-1)
    functions = type(basis)(basis.centers.double().cpu(), basis.matrices.double().cpu())(points)  # Fᵀ
    gram = functions.mT @ functions + ridge * torch.eye(len(basis), dtype=torch.float64)
    solution: Tensor = torch.linalg.solve(gram, functions[image].mT)
    return solution.mT


class Regressions:
    """The regression matrices of a basis for the sizes that were met last.

    They follow from the basis and the size alone, so they are no part of a state dict or a pickle, and copies of a
    network share them. Where the basis is learned nothing is remembered.
    """

    def __init__(self, ridge: float, padding: bool) -> None:
        self.ridge, self.padding = ridge, padding
        self.known: OrderedDict[tuple[Any, ...], Tensor] = OrderedDict()

    def __call__(self, basis: Basis, size: tuple[int, ...], like: Tensor) -> Tensor:
        """G (L, N) on the device and in the type of `like`."""
        if basis.centers.requires_grad or basis.matrices.requires_grad:
            return self._make(basis, size, like)
        key = (size, like.device, like.dtype)
        if torch.compiler.is_compiling():  # what a graph makes stays in the graph; what is known is a constant of it
            return self.known[key] if key in self.known else self._make(basis, size, like)
        if key not in self.known:
            self.known[key] = self._make(basis, size, like)
            while len(self.known) > SIZES:
                self.known.popitem(last=False)
        self.known.move_to_end(key)
        return self.known[key]

    def _make(self, basis: Basis, size: tuple[int, ...], like: Tensor) -> Tensor:
        return regression(basis, size, self.ridge, self.padding).to(like)

    def __deepcopy__(self, memo: dict[int, Any]) -> Regressions:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Regressions, (self.ridge, self.padding)
