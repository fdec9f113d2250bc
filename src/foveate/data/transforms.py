"""Transforms: what every image goes through on its way from the data set to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import default_collate

from foveate.data.item import ImageSet, Item
from foveate.extras import require
from foveate.progress import counted

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue, as in ITU-R BT.601


@dataclass(frozen=True)
class Preprocess:
    """From an image to what a model takes: a square of `size` pixels, the values normalised. Part of a shipped model.

    The image is squeezed into the square as a whole, so that the unit square of a gaze is the unit square of the image.

    Args:
        size: height and width.
        mean, std: of each channel, for values in [0, 1]; one of each means a model that takes grey images.

    >>> prepare = Preprocess(32)
    >>> prepare(torch.zeros(3, 50, 40, dtype=torch.uint8)).shape
    torch.Size([3, 32, 32])
    >>> Preprocess.from_dict(prepare.to_dict()) == prepare
    True
    """

    size: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if self.size < 1 or len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError(f"size and std must be positive, mean and std of equal length: {self}")

    def __call__(self, image: Image | Tensor) -> Tensor:
        """A Pillow image, or (..., C, H, W) of uint8 or of floats in [0, 1], to (..., C, size, size) float32."""
        return self.normalise(self.resize(image))

    def resize(self, image: Image | Tensor) -> Tensor:
        """The image (..., C, size, size), uint8 as it was or floats as they were."""
        if not isinstance(image, Tensor):
            from foveate.data.decode import to_tensor

            image = to_tensor(image)
        if image.shape[-2:] == (self.size, self.size):
            return image
        resized: Tensor = require("torchvision.transforms.v2.functional").resize(
            image, [self.size, self.size], antialias=True
        )
        return resized

    def normalise(self, image: Tensor) -> Tensor:
        """Values (..., C, H, W) of uint8, or of floats in [0, 1], to mean 0 and deviation 1 in each channel.

        Coloured images become grey ones (..., 1, H, W) for a model that takes these.
        """
        values = image.float() if image.is_floating_point() else image.float() / 255
        if len(self.mean) == 1 and values.shape[-3] == 3:
            values = (values * self._column(LUMINANCE, values)).sum(-3, keepdim=True)
        return (values - self._column(self.mean, values)) / self._column(self.std, values)

    def unnormalise(self, batch: Tensor) -> Tensor:
        """Normalised values (..., C, H, W) back to colours (..., 3, H, W) in [0, 1], to be looked at."""
        values = (batch * self._column(self.std, batch) + self._column(self.mean, batch)).clamp(0, 1)
        return values.expand(*values.shape[:-3], 3, -1, -1) if values.shape[-3] == 1 else values

    @property
    def levels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What black and what white is, in each channel of a normalised image.

        >>> Preprocess(mean=(0.5,), std=(0.25,)).levels
        ((-2.0,), (2.0,))
        """
        pairs = list(zip(self.mean, self.std, strict=True))
        return tuple(-mean / std for mean, std in pairs), tuple((1 - mean) / std for mean, std in pairs)

    def mask(self, mask: Tensor) -> Tensor:
        """Masks (..., 1, H, W) as images are resized, (..., 1, size, size): pixels of which half or more is inside."""
        if mask.shape[-2:] == (self.size, self.size):
            return mask.bool()
        planes = mask.reshape(-1, 1, *mask.shape[-2:]).float()
        share = F.interpolate(planes, (self.size, self.size), mode="bilinear", antialias=True)
        return (share >= 0.5).reshape(*mask.shape[:-2], self.size, self.size)

    def to_dict(self) -> dict[str, Any]:
        """The settings in what JSON knows."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Preprocess:
        """The preprocessing of these settings, as `to_dict` gave them."""
        known = {"size", "mean", "std"}
        if set(settings) != known:
            raise ValueError(f"preprocessing has the settings {sorted(known)}, not {sorted(settings)}")
        mean, std = (tuple(float(value) for value in settings[key]) for key in ("mean", "std"))
        return cls(int(settings["size"]), mean, std)

    def _column(self, values: tuple[float, ...], like: Tensor) -> Tensor:
        return constant(values, like.device, like.dtype)[:, None, None]


def constant(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of a few numbers that are known beforehand, on a device that is not waited for."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


class Prepared(ImageSet):
    """A data set ready for evaluation: images preprocessed, masks resized with them, the rest as it is."""

    def __init__(self, items: ImageSet, preprocess: Preprocess) -> None:
        self.items = items
        self.preprocess = preprocess
        self.classes = items.classes

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self.items.labels

    def __getitem__(self, index: int) -> Item:
        return self._prepare(self.items[index])

    def batch(self, indices: Sequence[int]) -> Item:
        """Several items as one, prepared at once where they are in memory."""
        in_memory = isinstance(self.items, InMemory)
        return self._prepare(self.items.batch(indices)) if in_memory else super().batch(indices)

    def _prepare(self, item: Item) -> Item:
        changes = {"image": self.preprocess(item.image)}
        if "mask" in item:
            changes["mask"] = self.preprocess.mask(item.mask)
        return item.but(**changes)


class InMemory(ImageSet):
    """A data set whose images are decoded and resized once, and kept: all other work of an epoch is the augmentation.

    It costs 3·size² bytes for each image, once for all workers that are forked; batches of it are slices of one tensor.
    """

    def __init__(self, items: ImageSet, size: int, threads: int = 4) -> None:
        self.classes = items.classes
        self._labels = items.labels
        resize = Preprocess(size)

        def load(index: int) -> Item:
            item = items[index]
            changes = {"image": resize.resize(item.image)}
            if "mask" in item:
                changes["mask"] = resize.mask(item.mask)
            return item.but(**changes)

        with ThreadPoolExecutor(threads) as pool:
            loaded = list(counted(pool.map(load, range(len(items))), "Reading images", len(items)))
        keys = list(loaded[0]) if loaded else []
        self._values = {key: default_collate([item.pop(key) for item in loaded]) for key in keys}

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        place = range(len(self))[index]
        return Item({key: values[place] for key, values in self._values.items()}).but(label=self._labels[place])

    def batch(self, indices: Sequence[int]) -> Item:
        """Several items as one, without looking at each."""
        return Item(
            {
                key: values[indices] if isinstance(values, Tensor) else [values[index] for index in indices]
                for key, values in self._values.items()
            }
        )
