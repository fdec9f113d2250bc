"""Oxford-IIIT Pet: 37 breeds of cats and dogs, with trimaps that say where the animal is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from foveate.data.folders import DataError, ImageFiles
from foveate.data.item import Item

ANIMAL, BACKGROUND, BORDER = 1, 2, 3  # values of a trimap
FOLDER = "oxford-iiit-pet"  # where torchvision puts it


class Pets(ImageFiles):
    """The images that `annotations/{list}.txt` names, those of all lists given, in the layout of torchvision.

    Args:
        root: the folder that holds `oxford-iiit-pet`.
        lists: "trainval", "test" or both.
        masks: whether items have a `mask`, for metrics; never train on it.
        border: whether the border of an animal, drawn generously around it, counts as animal.
    """

    def __init__(
        self, root: str | Path, lists: tuple[str, ...] = ("trainval",), masks: bool = False, border: bool = True
    ) -> None:
        base = Path(root) / FOLDER
        rows = [
            line.split()
            for name in lists
            for line in (base / "annotations" / f"{name}.txt").read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]
        breeds = {int(row[1]) - 1: row[0].rsplit("_", 1)[0].replace("_", " ") for row in rows}
        if sorted(breeds) != list(range(len(breeds))):
            raise DataError(f"the lists in {base / 'annotations'} have gaps in their classes; download them again")
        self.masks = masks
        self.foreground = (ANIMAL, BORDER) if border else (ANIMAL,)
        self.trimaps = base / "annotations" / "trimaps"
        super().__init__(
            [base / "images" / f"{row[0]}.jpg" for row in rows],
            [int(row[1]) - 1 for row in rows],
            [breeds[label] for label in sorted(breeds)],
            base / "images",
        )

    def __getitem__(self, index: int) -> Item:
        item = super().__getitem__(index)
        if self.masks:
            with Image.open(self.trimaps / f"{Path(item.name).stem}.png") as trimap:
                pixels = np.array(trimap)
            item.mask = torch.from_numpy(np.isin(pixels, self.foreground))[None]
        return item


def lists_there(root: str | Path) -> tuple[str, ...]:
    """Which of the two lists of Oxford-IIIT Pet are under `root`, and their images."""
    base = Path(root) / FOLDER
    there = tuple(name for name in ("trainval", "test") if (base / "annotations" / f"{name}.txt").is_file())
    return there if (base / "images").is_dir() else ()
