"""Modifications of images that a trustworthy attention bears (bottleneck 4.4): blocks of colour, patches, bands.

Each takes a batch (B, C, H, W) and a generator and returns a batch of the same shape, made at once on its device. What
is random is drawn on the generator's device, so the same seed modifies alike on a CPU and on a GPU.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Generator, Tensor

Modification = Callable[[Tensor, Generator | None], Tensor]
Level = float | Sequence[float]
Levels = tuple[Level, Level]  # what black and what white is, in each channel or in all

WINDOWS = (4, 8, 12, 16)  # p, in pixels of the papers' 32×32 images
PAPER_SIDE = 32
HIGH, LOW = 4, 12  # r > 4 and r < 12, in cycles per image


def color_block(
    images: Tensor, generator: Generator | None = None, *, size: int, levels: Levels = (0.0, 1.0)
) -> Tensor:
    """A square of `size` pixels somewhere inside each image, of one random colour.

    Args:
        images: (B, C, H, W).
        generator: of the places and the colours; nothing follows the global seed.
        size: p, the side of the square.
        levels: what black and white are in these images; of normalised images −mean/std and (1 − mean)/std.

    >>> blocked = color_block(torch.zeros(2, 3, 8, 8), size=4, levels=(1.0, 2.0))
    >>> (blocked >= 1).sum((1, 2, 3)).tolist()
    [48, 48]
    """
    place = _places(images, size, generator)
    shades = _uniform((images.shape[0], images.shape[1], 1, 1), generator).to(images)
    black, white = _columns(levels, images)
    return torch.where(_square(images, place, size), black + (white - black) * shades, images)


def patch(images: Tensor, generator: Generator | None = None, *, size: int, donors: Tensor | None = None) -> Tensor:
    """A square of `size` pixels somewhere inside each image, cut from somewhere in another image.

    Args:
        images: (B, C, H, W).
        generator: of the places and of who gives to whom; nothing follows the global seed.
        size: p, the side of the square.
        donors: (N, C, H, W), of another data set for instance; nothing means the other images of the batch.

    >>> patched = patch(torch.zeros(2, 3, 8, 8), size=4, donors=torch.ones(5, 3, 8, 8))
    >>> patched.sum((1, 2, 3)).tolist()
    [48.0, 48.0]
    """
    batch, device = images.shape[0], images.device
    place, source = _places(images, size, generator), _places(images, size, generator)
    if donors is None:
        others = 1 + _integers(batch, max(1, batch - 1), generator).to(device)
        giver, donors = (torch.arange(batch, device=device) + others) % max(1, batch), images
    else:
        if donors.shape[1:] != images.shape[1:]:
            raise ValueError(f"donors are {tuple(donors.shape[1:])} each, but images are {tuple(images.shape[1:])}")
        giver = _integers(batch, len(donors), generator).to(donors.device)
    rows, columns = (
        (torch.arange(length, device=device) - place[:, axis, None] + source[:, axis, None]) % length
        for axis, length in enumerate(images.shape[2:])
    )
    moved = donors[giver].to(images)
    moved = moved.gather(2, rows[:, None, :, None].expand_as(moved))
    moved = moved.gather(3, columns[:, None, None, :].expand_as(moved))
    return torch.where(_square(images, place, size), moved, images)


def band(
    images: Tensor,
    generator: Generator | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    stretch: bool = False,
    levels: Levels = (0.0, 1.0),
) -> Tensor:
    """The part of each image that lies in a band of frequencies, channel by channel.

    The radius of a frequency is its Euclidean distance from the centre of the spectrum, in cycles per image along
    either axis (Wang et al. 2020).

    Args:
        images: (B, C, H, W).
        generator: not needed, for nothing here is random.
        above, below: keep the frequencies of radius > above, and < below; the mean has radius 0.
        stretch: afterwards stretch each channel linearly from black to white, as if the part were a picture.
        levels: see `color_block`.

    >>> band(torch.full((1, 1, 4, 4), 3.0), above=0).abs().max() < 1e-6, band(torch.ones(1, 1, 4, 4), below=1).mean()
    (tensor(True), tensor(1.))
    """
    if above is None and below is None:
        raise ValueError("a band needs `above`, `below` or both: the radii between which frequencies are kept")
    if images.numel() == 0:
        return images
    full = images if images.dtype == torch.float64 else images.float()
    height, width = images.shape[2:]
    rows = torch.fft.fftfreq(height, 1 / height, dtype=full.dtype, device=full.device)[:, None]
    columns = torch.fft.rfftfreq(width, 1 / width, dtype=full.dtype, device=full.device)
    squares = rows.square() + columns.square()  # of integers, so that comparing them is exact
    kept = torch.ones_like(squares, dtype=torch.bool)
    if above is not None:
        kept &= squares > above**2
    if below is not None:
        kept &= squares < below**2
    part: Tensor = torch.fft.irfft2(torch.fft.rfft2(full) * kept, s=(height, width))
    if stretch:
        low, high = part.amin((2, 3), keepdim=True), part.amax((2, 3), keepdim=True)
        black, white = _columns(levels, part)
        part = black + (white - black) * (part - low) / (high - low).clamp_min(torch.finfo(part.dtype).eps)
    return part.to(images.dtype)


def paper_modifications(
    side: int = PAPER_SIDE,
    *,
    donors: Tensor | None = None,
    levels: Levels = (0.0, 1.0),
    windows: Sequence[int] = WINDOWS,
    stretch: bool = False,
) -> dict[str, Modification]:
    """The modifications of bottleneck Table 2, by name: colour and patches at p = 4, 8, 12, 16; r > 4; r < 12.

    Args:
        side: of the images. Windows are scaled by side/32, so that they cover the same share of larger images; radii
            are in cycles per image and need no scale.
        donors: (N, C, side, side), whose patches are taken; nothing means the other images of a batch.
        levels: see `color_block`.
        windows: p, in pixels of images of 32×32.
        stretch: see `band`.

    >>> list(paper_modifications(64, windows=[8]))
    ['color p=8', 'patch p=8', 'r > 4', 'r < 12']
    """
    scaled = {p: max(1, round(p * side / PAPER_SIDE)) for p in windows}
    return {
        **{f"color p={p}": partial(color_block, size=size, levels=levels) for p, size in scaled.items()},
        **{f"patch p={p}": partial(patch, size=size, donors=donors) for p, size in scaled.items()},
        f"r > {HIGH}": partial(band, above=HIGH, stretch=stretch, levels=levels),
        f"r < {LOW}": partial(band, below=LOW, stretch=stretch, levels=levels),
    }


def _places(images: Tensor, size: int, generator: Generator | None) -> Tensor:
    """The upper-left pixel (B, 2) of a square of `size` that lies inside the image wherever it is."""
    height, width = images.shape[2:]
    if not 0 < size <= min(height, width):
        raise ValueError(f"a square of {size} pixels does not fit into images of {height}×{width}")
    ends = [_integers(images.shape[0], length - size + 1, generator) for length in (height, width)]
    return torch.stack(ends, dim=1).to(images.device)


def _square(images: Tensor, place: Tensor, size: int) -> Tensor:
    """The pixels (B, 1, H, W), boolean, of the squares of `size` at places (B, 2)."""
    rows, columns = (
        (torch.arange(length, device=images.device) - place[:, axis, None])
        for axis, length in enumerate(images.shape[2:])
    )
    inside_rows, inside_columns = ((steps >= 0) & (steps < size) for steps in (rows, columns))
    return (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]


def _columns(levels: Levels, like: Tensor) -> Iterator[Tensor]:
    return (torch.as_tensor(level).to(like).reshape(-1, 1, 1) for level in levels)


def _integers(count: int, below: int, generator: Generator | None) -> Tensor:
    device = generator.device if generator is not None else None
    return torch.randint(below, (count,), generator=generator, device=device)


def _uniform(shape: tuple[int, ...], generator: Generator | None) -> Tensor:
    device = generator.device if generator is not None else None
    return torch.rand(shape, generator=generator, device=device)
