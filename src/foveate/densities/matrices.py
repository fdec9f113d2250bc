"""Covariances of one, two or any number of dimensions: determinants, whitening, eigenvalues kept above a floor."""

import torch
from torch import Tensor

from foveate.densities.precision import double


def symmetric_parts(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The entries (0, 0), (0, 1) and (1, 1) of symmetric matrices (..., 2, 2), each (...).

    >>> symmetric_parts(torch.tensor([[1.0, 2.0], [2.0, 5.0]]))
    (tensor(1.), tensor(2.), tensor(5.))
    """
    return matrix[..., 0, 0], (matrix[..., 0, 1] + matrix[..., 1, 0]) / 2, matrix[..., 1, 1]


def symmetric(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Matrices (..., 2, 2) from what `symmetric_parts` takes them apart into.

    >>> symmetric(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(5.0))
    tensor([[1., 2.],
            [2., 5.]])
    """
    return torch.stack([torch.stack([a, b], -1), torch.stack([b, c], -1)], -2)


def log_determinant(matrix: Tensor) -> Tensor:
    """log |Σ| of positive definite Σ (..., d, d), (...), in float64.

    >>> log_determinant(torch.eye(2) * torch.e).round()
    tensor(2., dtype=torch.float64)
    """
    matrix = double(matrix)
    if matrix.shape[-1] == 1:
        return matrix[..., 0, 0].log()
    if matrix.shape[-1] == 2:
        a, b, c = symmetric_parts(matrix)
        return (a * c - b * b).log()
    factor: Tensor = torch.linalg.cholesky(matrix)
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def cholesky(matrix: Tensor) -> Tensor:
    """The lower factor (..., d, d) of positive definite matrices, in float64.

    >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
    tensor([[2., 0.],
            [1., 1.]], dtype=torch.float64)
    """
    matrix = double(matrix)
    if matrix.shape[-1] == 1:
        return matrix.sqrt()
    if matrix.shape[-1] == 2:
        a, b, c = symmetric_parts(matrix)
        first = a.sqrt()
        rows = torch.stack([first, torch.zeros_like(a)], -1), torch.stack([b / first, (c - b * b / a).sqrt()], -1)
        return torch.stack(rows, -2)
    factor: Tensor = torch.linalg.cholesky(matrix)
    return factor


def whiten(difference: Tensor, matrix: Tensor) -> Tensor:
    """L⁻¹x for differences x (..., d) and Σ = LLᵀ (..., d, d), which broadcast; in float64.

    >>> whiten(torch.tensor([2.0, 2.0]), torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
    tensor([1., 1.], dtype=torch.float64)
    """
    difference, factor = double(difference), cholesky(matrix)
    if factor.shape[-1] == 1:
        return difference / factor[..., 0]
    if factor.shape[-1] == 2:
        first = difference[..., 0] / factor[..., 0, 0]
        second = (difference[..., 1] - factor[..., 1, 0] * first) / factor[..., 1, 1]
        return torch.stack([first, second], -1)
    solved: Tensor = torch.linalg.solve_triangular(factor, difference[..., None], upper=False)
    return solved[..., 0]


def eigenvalues(matrix: Tensor) -> Tensor:
    """Eigenvalues (..., d) of symmetric matrices, ascending, with a gradient where two are equal as well.

    >>> eigenvalues(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    tensor([1., 3.])
    """
    if matrix.shape[-1] == 1:
        return matrix[..., 0]
    if matrix.shape[-1] == 2:
        a, b, c = symmetric_parts(matrix)
        half = (a - c) / 2
        square = half * half + b * b
        tiny = torch.finfo(matrix.dtype).tiny
        spread = square.clamp_min(tiny).sqrt() * (square > tiny)
        return torch.stack([(a + c) / 2 - spread, (a + c) / 2 + spread], -1)
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values


def floored(matrix: Tensor, floor: float) -> Tensor:
    """Covariances with every eigenvalue below `floor` raised to it and the others kept: the most likely ones allowed.

    In three and more dimensions all eigenvalues rise by what the least one lacks, which has a gradient everywhere.

    >>> floored(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), 1.0)
    tensor([[4., 0.],
            [0., 1.]])
    """
    values = eigenvalues(matrix)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    missing = (floor - values[..., 0]).clamp_min(0)[..., None, None]
    if matrix.shape[-1] != 2:
        return matrix + missing * identity
    low, high = values[..., 0, None, None], values[..., 1, None, None]
    apart = (low < floor) & (high > floor)
    gap = torch.where(apart, high - low, torch.ones_like(high))
    raised = matrix + missing * (high * identity - matrix) / gap  # the projector on the shorter axis
    return torch.where(apart, raised, torch.where(high > floor, matrix, floor * identity))
