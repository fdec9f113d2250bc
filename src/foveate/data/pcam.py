"""PatchCamelyon: patches of lymph nodes, with or without tumour in their middle, from torchvision's H5 files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from foveate.data.item import ImageSet, Item
from foveate.extras import require

FOLDER = "pcam"  # where torchvision puts it
PARTS = {"train": "train", "val": "valid", "test": "test"}


class PCam(ImageSet):
    """One part of PatchCamelyon: 96×96 patches, read from the H5 file one by one.

    Args:
        root: the folder that holds `pcam`.
        part: "train" (262,144 patches), "val" or "test" (32,768 each).
    """

    classes = ("no tumour", "tumour")

    def __init__(self, root: str | Path, part: str) -> None:
        self.part = part
        self.path = file(root, part, "x")
        with require("h5py").File(file(root, part, "y")) as labels:
            self._labels: list[int] = labels["y"][:].reshape(-1).tolist()
        self._opened: tuple[int, Any] = (0, None)

    @property
    def labels(self) -> list[int]:
        """Whether there is tumour in the middle of each patch."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        place = range(len(self))[index]
        if self._opened[0] != os.getpid():  # each process opens the file for itself
            self._opened = os.getpid(), require("h5py").File(self.path)["x"]
        image = torch.from_numpy(self._opened[1][place]).permute(2, 0, 1).contiguous()
        return Item(image=image, label=self._labels[place], name=f"{self.part}-{place}")

    def __getstate__(self) -> dict[str, Any]:
        """All but the open file."""
        return {**self.__dict__, "_opened": (0, None)}


def file(root: str | Path, part: str, kind: str) -> Path:
    """The H5 file of a part: "x" with the images, "y" with the labels."""
    return Path(root) / FOLDER / f"camelyonpatch_level_2_split_{PARTS[part]}_{kind}.h5"


def there(root: str | Path) -> bool:
    """Whether all files are."""
    return all(file(root, part, kind).is_file() for part in PARTS for kind in "xy")
