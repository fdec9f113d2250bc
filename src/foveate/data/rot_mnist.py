"""Rotated MNIST, as Larochelle et al. made theirs in 2007: each digit turned by its own angle, then transposed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from foveate.data.item import ImageSet, Item
from foveate.extras import require
from foveate.files import writing

COUNTS = {"train": 10_000, "val": 2_000, "test": 50_000}  # equivariant 4.1
FILE = "rot-mnist.safetensors"
_SEED = "0"  # which digits go where, and by which angle each is turned


class RotMNIST(ImageSet):
    """One part of rotated MNIST, from the cache in `root`, which is made from MNIST's files where it is not there.

    Of MNIST's 70,000 digits, 62,000 are drawn and dealt to the parts; no digit is in two. The same bytes come out
    everywhere, for all that is random follows one seed.

    Args:
        root: where `torchvision.datasets.MNIST` keeps its files, and where the cache lies.
        part: "train" (10,000 digits), "val" (2,000) or "test" (50,000).
        download: fetch MNIST if it is not there.
    """

    classes = tuple("0123456789")

    def __init__(self, root: str | Path, part: Literal["train", "val", "test"], download: bool = False) -> None:
        self.part = part
        images, labels = _cached(Path(root), download)
        start = sum(COUNTS[before] for before in list(COUNTS)[: list(COUNTS).index(part)])
        self.images = images[start : start + COUNTS[part]]
        self._labels: list[int] = labels[start : start + COUNTS[part]].tolist()

    @property
    def labels(self) -> list[int]:
        """The digit in each image."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        place = range(len(self))[index]
        image = self.images[place].expand(3, -1, -1)
        return Item(image=image, label=self._labels[place], name=f"{self.part}-{place}")


def turned(digit: Tensor, angle: float) -> Tensor:
    """A digit (H, W) uint8, turned by `angle` in degrees, counter-clockwise, bicubic, and then transposed.

    >>> torch.equal(turned(torch.eye(3, dtype=torch.uint8), 0.0), torch.eye(3, dtype=torch.uint8))
    True
    """
    image = Image.fromarray(digit.numpy()).rotate(angle, Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).T


def _cached(root: Path, download: bool) -> tuple[Tensor, Tensor]:
    """Images (62000, 28, 28) uint8 and labels, the parts one after the other."""
    safetensors = require("safetensors.torch")
    if not (root / FILE).is_file():
        images, labels = _make(root, download)
        content = safetensors.save({"images": images, "labels": labels}, {"seed": _SEED})
        with writing(root / FILE) as beside:
            beside.write_bytes(content)
    values = safetensors.load_file(root / FILE)
    return values["images"], values["labels"]


def _make(root: Path, download: bool) -> tuple[Tensor, Tensor]:
    mnist = require("torchvision.datasets").MNIST
    sources = [mnist(root, train=train, download=download) for train in (True, False)]
    digits, labels = (torch.cat([getattr(source, name) for source in sources]) for name in ("data", "targets"))
    generator = np.random.default_rng(int(_SEED))
    chosen: Sequence[int] = generator.permutation(len(digits))[: sum(COUNTS.values())].tolist()
    angles = generator.uniform(0, 360, len(chosen)).tolist()
    images = torch.stack([turned(digits[index], angle) for index, angle in zip(chosen, angles, strict=True)])
    return images, labels[chosen].clone()
