"""The numbers that say whether a map is any good, one per image: pure functions of maps, that need torch alone.

A *mask* says where the object is: (B, 1, H, W) or (B, H, W), boolean or a number that counts as inside above one half.
A map of another size than the mask is resized to it; a `Gaze` is rendered at the mask's size. A map of zeros looks
everywhere alike, so it counts as uniform, and attention below zero counts as none.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.gaze import Gaze
from foveate.geometry import inverse, move_points, pixel_centers

Threshold = float | Literal["mean", "area"]
COSINE = 0.9  # at which two maps count as one; bottleneck gives no number, so look at the curve
_TIED = 1e-6  # values closer than this share of the map's maximum are equal: resizing a flat map ripples it that much


def fitting_rate(map: Tensor | Gaze, mask: Tensor, threshold: Threshold = 0.5) -> Tensor:
    """Intersection over union (B,) of the attended pixels and the mask, rectangular (17) and (19).

    Two empty sets fit perfectly. See `attended` for the threshold.

    >>> map = torch.tensor([[[[0.9, 0.8], [0.1, 0.0]]]])
    >>> fitting_rate(map, torch.tensor([[[1, 0], [0, 0]]]))
    tensor([0.5000])
    """
    map, mask = aligned(map, mask)
    seen = attended(map, mask, threshold)
    both, either = (seen & mask).sum((1, 2, 3)), (seen | mask).sum((1, 2, 3))
    return torch.where(either > 0, both / either.clamp_min(1), 1.0)


def catching_rate(map: Tensor | Gaze, mask: Tensor, threshold: Threshold = 0.5) -> Tensor:
    """Share (B,) of the pixels where attended and mask agree less the share where they do not, rectangular (10).

    >>> map = torch.tensor([[[[0.9, 0.8], [0.1, 0.0]]]])
    >>> catching_rate(map, torch.tensor([[[1, 0], [0, 0]]]))
    tensor([0.5000])
    """
    map, mask = aligned(map, mask)
    return 2 * (attended(map, mask, threshold) == mask).float().mean((1, 2, 3)) - 1


def pointing_accuracy(map: Tensor | Gaze, mask: Tensor) -> Tensor:
    """Whether the map's maximum lies on the mask, (B,): 1 or 0, and where maxima tie, the share of them that does.

    The share is the chance of a hit when one of the tied maxima is drawn; it does not depend on the order of pixels.

    >>> pointing_accuracy(torch.tensor([[[[0.9, 0.2], [0.9, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    tensor([0.5000])
    """
    map, mask = aligned(map, mask)
    top = map.amax((2, 3), keepdim=True)
    tied = map >= top - _TIED * top.abs()
    return (tied & mask).sum((1, 2, 3)) / tied.sum((1, 2, 3))


def attention_inside(map: Tensor | Gaze, mask: Tensor) -> Tensor:
    """Share (B,) of the attention that lies inside the mask: Σ over the mask of the map / Σ of the map.

    >>> attention_inside(torch.tensor([[[[0.6, 0.2], [0.0, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    tensor([0.7500])
    """
    map, mask = aligned(map, mask)
    return (distribution(map) * mask).sum((1, 2, 3))


def map_smoothness(map: Tensor | Gaze) -> Tensor:
    """Total variation (B,) of the map over the unit square: the mean over pixels of |∇map|, by forward differences.

    Differences are divided by the pixel's size, so the same map drawn finer keeps its number. It is the length of the
    rim of the attended region, averaged over all thresholds in [0, 1]: an axis-aligned rectangle of ones has its
    perimeter in image sides. Smaller is smoother.

    >>> map_smoothness(torch.eye(2)[None, None])
    tensor([1.7071])
    """
    map = _map(map)
    height, width = map.shape[2:]
    down = F.pad(height * map.diff(dim=2), (0, 0, 0, 1))
    right = F.pad(width * map.diff(dim=3), (0, 1, 0, 0))
    return torch.hypot(down, right).mean((1, 2, 3))


def map_entropy(map: Tensor | Gaze) -> Tensor:
    """Entropy (B,) of the map that is normalised to sum to 1, over its largest value log(HW): 1 uniform, 0 one pixel.

    >>> map_entropy(torch.tensor([[[[0.5, 0.5], [0.0, 0.0]]]]))
    tensor([0.5000])
    """
    share = distribution(_map(map))
    largest = math.log(share[0].numel()) if len(share) and share[0].numel() > 1 else 0.0
    if largest == 0:  # one pixel is uniform
        return share.new_ones(len(share))
    return -torch.xlogy(share, share).sum((1, 2, 3)) / largest


def equivariance_error(map: Tensor | Gaze, seen: Tensor | Gaze, matrix: Tensor) -> Tensor:
    """How far the map seen on moved images is from the moved map, (B,): mean |moved − seen| over `known_pixels`.

    Args:
        map: the map, or gaze, of the images; a gaze moves itself exactly, a map is warped.
        seen: the map, or gaze, of the images moved by `matrix`, of the same size.
        matrix: (B, 2, 3), see `foveate.geometry`.

    Returns:
        (B,), with 0 where no pixel is known.

    >>> from foveate.geometry import similarity
    >>> half_turn = similarity(torch.tensor([torch.pi]), torch.ones(1), torch.zeros(1, 2))
    >>> map = torch.arange(4.0).view(1, 1, 2, 2)
    >>> equivariance_error(map, map.flip(2, 3), half_turn).round(decimals=4).abs()
    tensor([0.])
    """
    moved = (map if isinstance(map, Gaze) else Gaze(map)).move(matrix).map.float()
    seen = _map(seen)
    if moved.shape != seen.shape:
        raise ValueError(
            f"the two maps must be of one shape, but they are {tuple(moved.shape)} and {tuple(seen.shape)}"
        )
    known = known_pixels(matrix.to(moved), (moved.shape[2], moved.shape[3]))
    return ((moved - seen).abs() * known).sum((1, 2, 3)) / known.sum((1, 2, 3)).clamp_min(1)


def interpretability_score(
    map: Tensor | Gaze,
    seen: Tensor | Gaze,
    before: Tensor,
    after: Tensor,
    threshold: float | Sequence[float] = COSINE,
    centred: bool = False,
) -> Tensor:
    """Of the images whose class survives a modification, the share whose map does, bottleneck 4.4; 0 if none survives.

    Args:
        map, seen: the maps (B, 1, H, W), or gazes, of the images and of the modified images.
        before, after: what the network says of both: logits (B, K), or classes (B,).
        threshold: a map survives with a cosine of at least this. Several give the curve, a score for each.
        centred: see `map_cosine`.

    Returns:
        a scalar, or as many scores as there are thresholds.

    >>> map, seen = torch.tensor([[[[1.0, 0.0]]], [[[1.0, 0.0]]]]), torch.tensor([[[[1.0, 0.1]]], [[[1.0, 1.0]]]])
    >>> interpretability_score(map, seen, torch.tensor([3, 4]), torch.tensor([3, 4]))
    tensor(0.5000)
    """
    consistent, survived = consistency(map, seen, before, after, threshold, centred)
    return consistent[survived].sum(0) / survived.sum().clamp_min(1)


def consistency(
    map: Tensor | Gaze,
    seen: Tensor | Gaze,
    before: Tensor,
    after: Tensor,
    threshold: float | Sequence[float] = COSINE,
    centred: bool = False,
) -> tuple[Tensor, Tensor]:
    """Whether each map survives, (B,) or (B, thresholds), and whether each class does, (B,): 4.4 image by image.

    >>> map, seen = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[1.0, 0.5]]]])
    >>> consistency(map, seen, torch.tensor([[0.1, 0.9]]), torch.tensor([[0.4, 0.6]]), [0.5, 0.99])
    (tensor([[1., 0.]]), tensor([True]))
    """
    cosine = map_cosine(map, seen, centred)
    levels = torch.as_tensor(threshold, dtype=cosine.dtype, device=cosine.device)
    survived = (before.argmax(1) if before.ndim == 2 else before) == (after.argmax(1) if after.ndim == 2 else after)
    return (cosine.reshape(-1, *(1,) * levels.ndim) >= levels - _TIED).float(), survived


def map_cosine(map: Tensor | Gaze, seen: Tensor | Gaze, centred: bool = False) -> Tensor:
    """The cosine (B,) between two maps (B, 1, H, W) as flat vectors, bottleneck 4.4; a map of zeros counts as uniform.

    Args:
        map, seen: two maps, or gazes.
        centred: take the mean off each map first, which makes it the correlation of their pixels. The cosine of two
            maps that are high everywhere is near 1 wherever they look; their correlation is not.

    >>> map, seen = torch.tensor([[[[1.0, 0.9, 1.0]]]]), torch.tensor([[[[1.0, 1.0, 0.9]]]])
    >>> map_cosine(map, seen), map_cosine(map, seen, centred=True)
    (tensor([0.9964]), tensor([-0.5000]))
    """
    first, second = (_centred(_map(m).flatten(1)) if centred else _map(m).flatten(1) for m in (map, seen))
    if first.shape != second.shape:
        raise ValueError(
            f"the two maps must be of one shape, but they have {first.shape[1]} and {second.shape[1]} pixels"
        )
    return (_unit(first) * _unit(second)).sum(1).clamp(-1, 1)


def in_steps(values: Tensor) -> Tensor:
    """Values (B, N) in whole steps of a millionth of each row's largest, so that those that differ by rounding tie.

    >>> in_steps(torch.tensor([[0.5, 0.5 + 1e-9, 1.0]]).double())
    tensor([[ 500000.,  500000., 1000000.]], dtype=torch.float64)
    """
    largest = values.abs().amax(1, keepdim=True)
    return (values / largest.clamp_min(torch.finfo(values.dtype).tiny) / _TIED).round()


def _centred(vectors: Tensor) -> Tensor:
    """Vectors (B, N) less their means; what rounding leaves of a uniform one is nothing."""
    largest = vectors.abs().amax(1, keepdim=True)
    scaled = vectors / largest.clamp_min(torch.finfo(vectors.dtype).tiny)
    left = scaled - scaled.mean(1, keepdim=True)
    return torch.where(left.abs().amax(1, keepdim=True) > _TIED, left, 0.0)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors (B, N) at length 1, those of zeros as if they were of ones; squares neither over- nor underflow."""
    largest = vectors.abs().amax(1, keepdim=True)
    scaled = torch.where(largest > 0, vectors / largest.clamp_min(torch.finfo(vectors.dtype).tiny), 1.0)
    unit: Tensor = scaled / scaled.square().sum(1, keepdim=True).sqrt()
    return unit


def known_pixels(matrix: Tensor, size: tuple[int, int]) -> Tensor:
    """The pixels (B, 1, H, W), boolean, whose preimage under `matrix` (B, 2, 3) lies between the image's pixel centres.

    There, and only there, a warped map is made of values of the map alone, none of them from beyond its border.

    >>> known_pixels(torch.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (2, 2)).int()
    tensor([[[[0, 0],
              [1, 1]]]], dtype=torch.int32)
    """
    rows, columns = torch.meshgrid(pixel_centers(size[0], matrix), pixel_centers(size[1], matrix), indexing="ij")
    grid = torch.stack([rows, columns], dim=-1).expand(len(matrix), *size, 2)
    from_middle = (move_points(grid, inverse(matrix)) - 0.5).abs()
    reach = 0.5 - 0.5 / torch.tensor(size, dtype=matrix.dtype, device=matrix.device)
    return (from_middle <= reach + 1e-5).all(-1)[:, None]  # the margin keeps the border under the identity


def attended(map: Tensor, mask: Tensor, threshold: Threshold) -> Tensor:
    """The pixels (B, 1, H, W), boolean, that a map attends to; map and mask are `aligned`.

    Args:
        map: (B, 1, H, W).
        mask: (B, 1, H, W), boolean.
        threshold: a number: the map is above it. "mean": the map is above its own mean. "area": as many pixels as
            the mask has, those of the largest values, with all that tie with the last of them. A number suits maps in
            [0, 1] that reach 1; "mean" and "area" suit any map, one that sums to 1 too. "area" is told the object's
            size, so it judges the place alone.

    >>> map, mask = torch.tensor([[[[0.03, 0.02, 0.01]]]]), torch.tensor([[[[False, True, True]]]])
    >>> [attended(map, mask, threshold).flatten().int().tolist() for threshold in (0.5, "mean", "area")]
    [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    """
    if isinstance(threshold, int | float):
        return map > threshold
    slack = _TIED * map.abs().amax((2, 3), keepdim=True)
    if threshold == "mean":
        return map - map.mean((2, 3), keepdim=True) > slack
    if threshold == "area":
        area = mask.flatten(1).sum(1)
        falling = map.flatten(1).sort(dim=1, descending=True).values
        last = falling.gather(1, (area - 1).clamp_min(0)[:, None])
        return (map >= last[:, :, None, None] - slack) & (area > 0)[:, None, None, None]
    raise ValueError(f"threshold must be a number, 'mean' or 'area', not {threshold!r}")


def distribution(map: Tensor) -> Tensor:
    """The map (B, 1, H, W) normalised to sum to 1, uniform where it is zero.

    >>> distribution(torch.tensor([[[[3.0, 1.0]]], [[[0.0, 0.0]]]])).squeeze()
    tensor([[0.7500, 0.2500],
            [0.5000, 0.5000]])
    """
    map = map.clamp_min(0)
    top = map.amax((2, 3), keepdim=True)
    scaled = torch.where(top > 0, map / top.clamp_min(torch.finfo(map.dtype).tiny), 1.0)  # neither over- nor underflows
    return scaled / scaled.sum((2, 3), keepdim=True)


def aligned(map: Tensor | Gaze, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The map at the mask's size, float (B, 1, H, W), and the mask, boolean (B, 1, H, W), on the map's device.

    >>> map, mask = aligned(torch.rand(2, 1, 7, 7), torch.ones(2, 32, 24))
    >>> map.shape, mask.shape
    (torch.Size([2, 1, 32, 24]), torch.Size([2, 1, 32, 24]))
    """
    if mask.ndim == 3:
        mask = mask[:, None]
    if mask.ndim != 4 or mask.shape[1] != 1:
        raise ValueError(f"a mask must be of shape (B, H, W) or (B, 1, H, W), not {tuple(mask.shape)}")
    size = (mask.shape[2], mask.shape[3])
    if isinstance(map, Gaze):
        map = map.render(size)
    map = _map(map)
    if map.shape[0] != mask.shape[0]:
        raise ValueError(f"there are {map.shape[0]} maps and {mask.shape[0]} masks; each map needs its mask")
    if map.shape[2:] != mask.shape[2:]:
        map = Gaze(map).render(size)
    return map, mask.to(map.device) > 0.5


def _map(map: Tensor | Gaze) -> Tensor:
    """The map of a gaze, or the map itself, in float32 (half types are too coarse to sum in)."""
    map = map.map if isinstance(map, Gaze) else map
    if map.ndim != 4 or map.shape[1] != 1:
        raise ValueError(f"a map must be of shape (B, 1, H, W), not {tuple(map.shape)}")
    return map if map.dtype == torch.float64 else map.float()
