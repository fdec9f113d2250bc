"""Continuous self-attention: a transformer layer whose cost grows with the number of basis functions, not of positions.

continuous 7.2 proposes it: the tokens become a function V(t) = Bψ(t) of the plane or the line by ridge regression
(3.17), and attention is among the N basis functions. Each is a query that attends to the others at their centres; the
density fitted to those weights (Alg. 2) takes the expectation of V (3.16). With L positions and C channels a layer
costs O(LNC + N²C) in place of O(L²C).
"""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

from foveate.densities.base import grid_points
from foveate.densities.bases import Basis, GaussianBasis
from foveate.densities.deformed import prediction_map
from foveate.densities.gaussian import Gaussian
from foveate.densities.paraboloid import TruncatedParaboloid
from foveate.densities.precision import without_autocast

Size = tuple[int, ...]
SIZES = 8  # of inputs whose matrices are remembered


class ContinuousSelfAttention(nn.Module):
    """Self-attention among basis functions, for tokens (B, L, C) that lie on a grid or on a line.

    Args:
        channels: C.
        heads: each with densities of its own; divides the channels.
        basis: N, for a grid of Gaussians whose deviation is their distance, or functions of one's own.
        alpha: 1 for Gaussians from softmax weights, 2 for truncated paraboloids from sparsemax weights.
        dimensions: 2 for tokens of images, 1 for those of signals.
        ridge: λ of the regression.

    >>> layer = ContinuousSelfAttention(32, heads=4, basis=16)
    >>> layer(torch.rand(2, 20 * 30, 32), (20, 30)).shape
    torch.Size([2, 600, 32])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 8,
        basis: int | Basis = 100,
        alpha: Literal[1, 2] = 1,
        dimensions: Literal[1, 2] = 2,
        ridge: float = 1e-3,
    ) -> None:
        super().__init__()
        if channels < 1 or heads < 1 or channels % heads or alpha not in (1, 2):
            raise ValueError(f"heads must divide channels and alpha be 1 or 2, not {heads}, {channels} and {alpha}")
        if isinstance(basis, int):
            distance = 1 / max(1.0, basis ** (1 / dimensions) - 1)
            basis = GaussianBasis.grid(basis, distance**2, dimensions)
        self.basis = basis
        self.heads = heads
        self.alpha = alpha
        self.ridge = ridge
        self.query_key = nn.Linear(channels, 2 * channels)
        self.value = nn.Linear(channels, channels, bias=False)
        self.output = nn.Linear(channels, channels)
        self._known: dict[tuple[object, ...], tuple[Tensor, Tensor, Tensor]] = {}

    def forward(self, x: Tensor, size: Size | None = None) -> Tensor:
        """Tokens (B, L, C), row by row of a grid of `size`, to as many; without a size the grid is square or a line."""
        size = self._size(x.shape[1]) if size is None else size
        if math.prod(size) != x.shape[1] or len(size) != self.basis.centers.shape[-1]:
            d = self.basis.centers.shape[-1]
            raise ValueError(f"{x.shape[1]} tokens do not make a grid of size {size}, or that has not {d} dimensions")
        regress, sample, spread = self._matrices(size, x)
        coefficients = regress @ x  # B of V(t) = Bψ(t), (B, N, C)
        query, key = self.query_key(sample @ coefficients).chunk(2, -1)  # of V at the centres
        query, key, value = (self._split(t) for t in (query, key, self.value(coefficients)))
        context = self._expect(query @ key.mT / math.sqrt(query.shape[-1])).to(value.dtype) @ value
        context = context.transpose(1, 2).flatten(2)  # of each centre, (B, N, C)
        return cast(Tensor, self.output(spread @ context))

    def _split(self, x: Tensor) -> Tensor:
        """(B, N, C) to (B, heads, N, C/heads)."""
        return x.reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads).transpose(1, 2)

    def _expect(self, scores: Tensor) -> Tensor:
        """E_p[ψ] (B, heads, N, N) under the densities of N queries, from their scores at N centres."""
        weights = prediction_map(scores, float(self.alpha))
        family = Gaussian if self.alpha == 1 else TruncatedParaboloid
        floor = 0.25 * len(self.basis) ** (-2 / self.basis.centers.shape[-1])  # half the distance of two centres
        return family.from_weights(self.basis.centers, weights, floor).expect(self.basis)

    def _size(self, count: int) -> Size:
        side = math.isqrt(count)
        return (count,) if self.basis.centers.shape[-1] == 1 else (side, count // max(side, 1))

    def _matrices(self, size: Size, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The matrices of `_regressions` for a size, remembered where the basis is not learned."""
        learned = self.basis.centers.requires_grad or self.basis.matrices.requires_grad
        if learned or torch.compiler.is_compiling():
            return _regressions(self.basis, size, self.ridge)
        key = (size, like.device)
        if key not in self._known:
            with torch.inference_mode(False), torch.no_grad():
                self._known[key] = _regressions(self.basis, size, self.ridge)
            while len(self._known) > SIZES:
                self._known.pop(next(iter(self._known)))
        return self._known[key]

    def __getstate__(self) -> dict[str, object]:
        """Without what follows from the rest."""
        return {**self.__dict__, "_known": {}}


@without_autocast
def _regressions(basis: Basis, size: Size, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients from tokens (N, L), values at the centres from coefficients (N, N), tokens from those values (L, N).

    In float64: the Gram matrix of wide functions is nearly singular.
    """
    dtype, centers = basis.centers.dtype, basis.centers.double()
    wide = type(basis)(centers, basis.matrices.double())
    if basis.centers.requires_grad or basis.matrices.requires_grad:
        wide.centers, wide.matrices = centers, basis.matrices.double()
    scale = wide(centers).diagonal(dim1=-2, dim2=-1).mean()
    at_tokens, at_centers = wide(grid_points(size, centers)) / scale, wide(centers) / scale  # Fᵀ, of height 1

    def regression(functions: Tensor) -> Tensor:
        """Gᵀ = (FFᵀ + λI)⁻¹F, continuous (3.17), λ for each position."""
        gram = functions.mT @ functions
        identity = torch.eye(len(basis), dtype=gram.dtype, device=gram.device)
        solution: Tensor = torch.linalg.solve(gram + ridge * len(functions) / len(basis) * identity, functions.mT)
        return solution

    return (
        (regression(at_tokens) / scale).to(dtype),
        (at_centers * scale).to(dtype),
        (at_tokens @ regression(at_centers)).to(dtype),
    )
