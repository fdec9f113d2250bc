"""Transforms: what happens to an image between the data set and the model, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.item import ImageSet, Item
from foveate.extras import require
from foveate.progress import counted

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Preprocess:
    """From an image to what a model takes: a square of `size` pixels, the values normalised. Part of a shipped model.

    The image is squeezed into the square as a whole, so that the unit square of a gaze is the unit square of the image.

    Args:
        size: height and width.
        mean, std: of each channel, for values in [0, 1].

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
        """Values (..., C, H, W) of uint8, or of floats in [0, 1], to mean 0 and deviation 1 in each channel."""
        values = image.float() if image.is_floating_point() else image.float() / 255
        return (values - self._column(self.mean, values)) / self._column(self.std, values)

    def unnormalise(self, batch: Tensor) -> Tensor:
        """Normalised values (..., C, H, W) back to [0, 1], to be looked at."""
        return (batch * self._column(self.std, batch) + self._column(self.mean, batch)).clamp(0, 1)

    def mask(self, mask: Tensor) -> Tensor:
        """A mask (1, H, W) as the image is resized, (1, size, size) bool: pixels of which half or more is inside."""
        if mask.shape[-2:] == (self.size, self.size):
            return mask.bool()
        share = F.interpolate(mask[None].float(), (self.size, self.size), mode="bilinear", antialias=True)
        return share[0] >= 0.5

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
        return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


def training_transform(
    preprocess: Preprocess, jitter: float = 0.3, perspective: float = 0.5, distortion: float = 0.5
) -> Transform:
    """Random perspective and colours (rectangular, App. G), then what `preprocess` does.

    Args:
        preprocess: the size and the normalisation.
        jitter: ColorJitter's brightness, contrast and saturation; 0 for none.
        perspective: how probable RandomPerspective is; 0 for never.
        distortion: its distortion_scale.

    Returns:
        a function of an image (C, H, W), uint8 or floats in [0, 1], to (C, size, size) float32; it draws from torch's
        global random numbers.

    >>> training_transform(Preprocess(16))(torch.zeros(3, 20, 20, dtype=torch.uint8)).shape
    torch.Size([3, 16, 16])
    """
    v2 = require("torchvision.transforms.v2")
    steps: list[Any] = [preprocess.resize]
    if perspective:
        steps.append(v2.RandomPerspective(distortion, p=perspective))
    if jitter:
        # On floats, where it takes a third of the time that it takes on uint8.
        steps += [v2.ToDtype(torch.float32, scale=True), v2.ColorJitter(jitter, jitter, jitter)]
    transform: Transform = v2.Compose([*steps, preprocess.normalise])
    return transform


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
        item = self.items[index]
        changes = {"image": self.preprocess(item.image)}
        if "mask" in item:
            changes["mask"] = self.preprocess.mask(item.mask)
        return item.but(**changes)


class Augmented(ImageSet):
    """A data set ready for training: images transformed at random, and nothing but images and labels.

    What happens to an image depends on (seed, epoch, index) alone, so a run is the same with any number of workers, and
    one that is resumed the same as one that was not. Call `set_epoch` before each epoch; workers that persist hear it.
    """

    def __init__(self, items: ImageSet, transform: Transform, seed: int = 0) -> None:
        self.items = items
        self.transform = transform
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
        item = self.items[index]
        with _random_numbers_of(self.seed, int(self._epoch), index):
            return Item(image=self.transform(item.image), label=item.label)


@contextmanager
def _random_numbers_of(*key: int) -> Iterator[None]:
    """Torch's global random numbers are those of a key inside, and go on outside as if nothing had been."""
    state = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
        yield
    finally:
        torch.set_rng_state(state)


class InMemory(ImageSet):
    """A data set whose images are decoded and resized once, and kept: all other work of an epoch is the augmentation.

    It costs 3·size² bytes for each image, once for all workers that are forked.
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
            self._items = list(counted(pool.map(load, range(len(items))), "Reading images", len(items)))

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        return self._items[index].but()
