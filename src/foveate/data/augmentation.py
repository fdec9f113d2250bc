"""Augmentation: what happens to training images at random, a whole batch at a time, on the device where they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.item import ImageSet, Item
from foveate.data.transforms import LUMINANCE, InMemory, Preprocess, constant
from foveate.geometry import pixel_centers

ORDERS = tuple(permutations(range(3)))  # in which brightness, contrast and saturation may come


class Augmentation:
    """Images to what a network trains on: resized, changed at random, normalised. This one changes nothing.

    It takes the random numbers that it needs instead of drawing them, so that what happens to an image does not depend
    on the batch, the process or the device that it is in.

    Args:
        preprocess: the size and the normalisation.

    >>> Augmentation(Preprocess(16))(torch.zeros(5, 3, 20, 20, dtype=torch.uint8), torch.rand(5, 0)).shape
    torch.Size([5, 3, 16, 16])
    """

    draws = 0  # random numbers for each image

    def __init__(self, preprocess: Preprocess) -> None:
        self.preprocess = preprocess

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images (B, C, H, W), uint8 or floats in [0, 1], and numbers (B, draws) in [0, 1) to (B, C, size, size)."""
        return self.preprocess.normalise(self.change(self.preprocess.resize(images), numbers))

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images (B, C, size, size) as they are, changed."""
        return images


class ShiftAndMirror(Augmentation):
    """What small photographs are trained with (CIFAR-10+): shifted, black coming in, and mirrored every other time.

    Args:
        preprocess: the size and the normalisation.
        shift: the most by which an image is moved up, down, left or right, in pixels.
    """

    draws = 3

    def __init__(self, preprocess: Preprocess, shift: int = 4) -> None:
        super().__init__(preprocess)
        self.shift = shift

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images (B, C, size, size), moved by whole pixels."""
        size, count = self.preprocess.size, len(images)
        padded = F.pad(images, [self.shift] * 4)
        first = (numbers[:, :2] * (2 * self.shift + 1)).long()  # the upper left pixel of what is kept
        along = torch.arange(size, device=images.device).expand(count, -1)
        across = torch.where(numbers[:, 2:] < 0.5, along, along.flip(1))
        rows, columns = first[:, :1] + along, first[:, 1:] + across
        which = torch.arange(count, device=images.device)[:, None, None]
        # Indexed with the channels last, so that each pixel is copied as a whole.
        return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class PerspectiveAndColors(Augmentation):
    """What photographs are trained with: RandomPerspective and ColorJitter (rectangular, App. G), as torchvision's.

    Args:
        preprocess: the size and the normalisation.
        jitter: by how much brightness, contrast and saturation are multiplied at most, up or down; 0 for never.
        perspective: how probable a change of perspective is; 0 for never.
        distortion: how far the corners move inwards at most, as a share of half the image.
    """

    draws = 13

    def __init__(
        self, preprocess: Preprocess, jitter: float = 0.3, perspective: float = 0.5, distortion: float = 0.5
    ) -> None:
        super().__init__(preprocess)
        self.jitter, self.perspective, self.distortion = jitter, perspective, distortion

    def change(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images (B, C, size, size), seen from elsewhere in another light, as floats in [0, 1]."""
        values = images.float() if images.is_floating_point() else images.float() / 255
        chance, corners, factors, order = torch.split(numbers, [1, 8, 3, 1], dim=1)
        if self.perspective:
            moved = self.corners(corners, self.preprocess.size) * (chance < self.perspective)[:, :, None]
            values = see_from(values, moved)
        if self.jitter:
            factors = 1 + self.jitter * (2 * factors - 1)
            values = color_jitter(values, factors, (order[:, 0] * len(ORDERS)).long())
        return values

    def corners(self, numbers: Tensor, size: int) -> Tensor:
        """How far corners move inwards, (B, 4, 2) in whole pixels, right and down; clockwise from the upper left."""
        bound = int(self.distortion * (size // 2)) + 1
        inwards = constant([[1, 1], [-1, 1], [-1, -1], [1, -1]], numbers.device)
        return (numbers.reshape(-1, 4, 2) * bound).floor() * inwards


def see_from(images: Tensor, moved: Tensor) -> Tensor:
    """Images (B, C, H, W), floats, whose corners are moved by (B, 4, 2), x and y, clockwise; black comes in.

    >>> narrower = torch.tensor([[[10, 0], [-10, 0], [-10, 0], [10, 0]]])
    >>> see_from(torch.ones(1, 1, 40, 40), narrower).mean().round(decimals=1)
    tensor(0.5000)
    """
    height, width = images.shape[-2:]
    right, down = max(width - 1, 1), max(height - 1, 1)  # the corners are those that torchvision takes
    corners = constant([[0, 0], [right, 0], [right, down], [0, down]], images.device, torch.float64)
    back = _from_quadrangle(corners + moved).to(images.dtype)
    x, y = width * pixel_centers(width, images), height * pixel_centers(height, images)
    grid = torch.stack([*torch.meshgrid(x, y, indexing="xy"), x.new_ones(height, width)], dim=-1)
    u, v, w = (grid.reshape(1, -1, 3) @ back.mT).unbind(-1)
    source = torch.stack([u * (2 * right / width) / w - 1, v * (2 * down / height) / w - 1], dim=-1)
    return F.grid_sample(images, source.reshape(-1, height, width, 2), align_corners=False)


def _from_quadrangle(corners: Tensor) -> Tensor:
    """The projective maps (B, 3, 3) of quadrangles (B, 4, 2), clockwise, to the unit square; scaled in some way."""
    first, second, third, fourth = corners.unbind(1)
    one, other, odd = second - third, fourth - third, first - second + third - fourth
    whole = _cross(one, other)
    g, h = _cross(odd, other) / whole, _cross(one, odd) / whole
    rows = torch.stack([second - first + g * second, fourth - first + h * fourth, first], dim=-1)  # (B, 2, 3)
    last = torch.stack([g, h, torch.ones_like(g)], dim=-1)
    x, y, w = *rows.unbind(1), last[:, 0]
    # the inverse but for its scale, which a projective map has none of; and no device is waited for
    return torch.stack([y.cross(w, dim=1), w.cross(x, dim=1), x.cross(y, dim=1)], dim=-1)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[:, :1] * b[:, 1:] - a[:, 1:] * b[:, :1]


def color_jitter(images: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """Images (B, 3, H, W), floats in [0, 1], brighter, richer in contrast and in colour, in an order of their own.

    Args:
        images: in RGB; one channel (B, 1, H, W) is taken for grey.
        factors: (B, 3), of brightness, contrast and saturation; 1 for no change.
        order: (B,), an index into `ORDERS`.

    >>> color_jitter(torch.full((1, 3, 1, 1), 0.5), torch.tensor([[1.2, 1.0, 1.0]]), torch.tensor([0])).mean()
    tensor(0.6000)
    """
    turns = constant(ORDERS, images.device)[order]  # (B, 3)
    for turn in turns.unbind(1):
        factor = factors.gather(1, turn[:, None])[:, :, None, None]
        contrast, saturation = ((turn == which).to(images)[:, None, None, None] for which in (1, 2))
        grey = luminance(images)
        # Each is a step away from something: from black, from the mean grey, from the pixel's own grey.
        towards = contrast * grey.mean((2, 3), keepdim=True) + saturation * grey
        images = torch.lerp(towards, images, factor).clamp(0, 1)
    return images


def luminance(images: Tensor) -> Tensor:
    """Images (B, 3, H, W) in RGB, or grey ones (B, 1, H, W), to grey ones (B, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    grey: Tensor = LUMINANCE[0] * red + LUMINANCE[1] * green + LUMINANCE[2] * blue
    return grey[:, None]


class Augmented(ImageSet):
    """A data set ready for training: images changed at random, and nothing but images and labels.

    What happens to an image depends on (seed, epoch, index) alone, so a run is the same with any number of workers, and
    one that is resumed the same as one that was not. Call `set_epoch` before each epoch; workers that persist hear it.

    Args:
        items: the data set.
        augment: what happens to a batch of images.
        seed: of the random numbers.
    """

    def __init__(self, items: ImageSet, augment: Augmentation, seed: int = 0) -> None:
        self.items = items
        self.augment = augment
        self.seed = seed
        self.classes = items.classes
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self.items.labels

    def set_epoch(self, epoch: int) -> None:
        """Draw the random numbers of this epoch from now on."""
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> Item:
        item = self.batch([range(len(self))[index]])
        return Item(image=item.image[0], label=int(item.label))

    def batch(self, indices: Sequence[int]) -> Item:
        """Several items as one: `image` and `label`."""
        item = self.untouched(indices)
        return Item(image=self.augment(item.image, item.numbers), label=item.label)

    def untouched(self, indices: Sequence[int]) -> Item:
        """Several items as one before anything happens to them, and the `numbers` that say what will.

        `augment(image, numbers)` is then `image` of `batch`, wherever it is computed.
        """
        if isinstance(self.items, InMemory):
            item = self.items.batch(indices)
            images, labels = item.image, item.label
        else:
            items = [self.items[index] for index in indices]
            images = torch.stack([self.augment.preprocess.resize(item.image) for item in items])
            labels = torch.tensor([item.label for item in items])
        numbers = _table(self.seed, int(self._epoch), len(self), self.augment.draws)[indices]
        return Item(image=images, label=labels, numbers=numbers)


@lru_cache(maxsize=2)
def _table(seed: int, epoch: int, rows: int, columns: int) -> Tensor:
    """A row of random numbers for each image, the same for all who ask."""
    key = int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0])
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(key))
