"""The plane: points, similarities and warps, all in one convention.

A point is (row, column) in the unit square; pixel (i, j) of an H×W grid sits at ((i + ½)/H, (j + ½)/W), and (0, 0) is
the upper-left corner. A map of the plane is one affine matrix of shape (B, 2, 3): it moves images, points and gazes
alike, so that they cannot disagree.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def pixel_centers(length: int, like: Tensor) -> Tensor:
    """Coordinates (length,) of the pixel centres along one axis of the unit square, in the type of `like`.

    >>> pixel_centers(4, torch.zeros(())).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    half = 0.5 / length
    return torch.linspace(half, 1 - half, length, dtype=like.dtype, device=like.device)


def rotation(angle: Tensor) -> Tensor:
    """Matrices (..., 2, 2) that turn (row, column) vectors by `angle` (...), counter-clockwise as displayed.

    >>> right = torch.tensor([0.0, 1.0])
    >>> (rotation(torch.tensor(math.pi / 2)) @ right).round()  # a quarter turn points it up, to smaller rows
    tensor([-1., -0.])
    """
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, -sin, sin, cos], dim=-1).reshape(*angle.shape, 2, 2)  # rectangular (3)


def similarity(angle: Tensor, scale: Tensor, shift: Tensor, center: tuple[float, float] = (0.5, 0.5)) -> Tensor:
    """One matrix (B, 2, 3): rotate about `center` by `angle` (B,), scale about it by `scale` (B,), shift by (B, 2).

    >>> similarity(torch.zeros(1), torch.ones(1), torch.tensor([[0.1, 0.0]]))[0, :, 2]
    tensor([0.1000, 0.0000])
    """
    linear = scale[:, None, None] * rotation(angle)
    pivot = torch.as_tensor(center, dtype=linear.dtype, device=linear.device)
    offset = pivot - _times(linear, pivot) + shift
    return torch.cat([linear, offset[:, :, None]], dim=2)


def random_similarity(
    batch: int,
    rotate: float = math.pi / 6,
    scale: tuple[float, float] = (0.8, 1.2),
    shift: float = 0.1,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Random similarities (B, 2, 3): angle in ±rotate (radians), log-uniform scale, shift in ±shift of the image."""
    angle, log_scale, rows, columns = torch.rand(4, batch, generator=generator)
    low, high = math.log(scale[0]), math.log(scale[1])
    matrix = similarity(
        (2 * angle - 1) * rotate,
        torch.exp(low + (high - low) * log_scale),
        (2 * torch.stack([rows, columns], dim=1) - 1) * shift,
    )
    return matrix.to(device) if device is not None else matrix


def move_points(points: Tensor, matrix: Tensor) -> Tensor:
    """Points (B, ..., 2) moved by `matrix` (B, 2, 3)."""
    matrix = matrix.reshape(-1, *(1,) * (points.ndim - 2), 2, 3)
    return _times(matrix[..., :2], points) + matrix[..., 2]


def determinant(matrix: Tensor) -> Tensor:
    """By how much each of the `matrix` (B, 2, 3) scales areas, (B,).

    >>> determinant(similarity(torch.ones(1), torch.full((1,), 3.0), torch.zeros(1, 2))).round()
    tensor([9.])
    """
    return matrix[:, 0, 0] * matrix[:, 1, 1] - matrix[:, 0, 1] * matrix[:, 1, 0]


def inverse(matrix: Tensor) -> Tensor:
    """The matrices (B, 2, 3) that undo `matrix`."""
    (a, b), (c, d) = (row.unbind(-1) for row in matrix[:, :, :2].unbind(1))
    adjugate = torch.stack([d, -b, -c, a], dim=-1).reshape(-1, 2, 2)
    linear = adjugate / determinant(matrix)[:, None, None]  # torch.linalg.inv would make a GPU wait
    return torch.cat([linear, -_times(linear, matrix[:, :, 2])[:, :, None]], dim=2)


def warp(images: Tensor, matrix: Tensor, padding: str = "zeros") -> Tensor:
    """Images (B, C, H, W) moved by `matrix` (B, 2, 3), bilinear; what comes from outside follows `padding`.

    The warped image at a point is the image at the point's preimage, and `padding` is one of "zeros", "border",
    "reflection".
    """
    height, width = images.shape[-2:]
    full = images if images.dtype == torch.float64 else images.float()  # half precision cannot tell pixels apart
    back = inverse(matrix.to(full))
    rows, columns = torch.meshgrid(pixel_centers(height, full), pixel_centers(width, full), indexing="ij")
    grid = torch.stack([rows, columns], dim=-1).expand(images.shape[0], height, width, 2)
    source = move_points(grid, back)
    sampled: Tensor = F.grid_sample(full, source.flip(-1) * 2 - 1, padding_mode=padding, align_corners=False)
    return sampled.to(images.dtype)


def _times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Matrices (..., 2, 2) times vectors (..., 2); not a matrix product, which autocast would do in half precision."""
    return matrix[..., 0] * vectors[..., :1] + matrix[..., 1] * vectors[..., 1:]
