"""One file for a whole data set: images in lossless WebP, one after the other, that travels where folders do not."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from foveate.data.decode import to_tensor
from foveate.data.folders import DataError
from foveate.data.item import ImageSet, Item
from foveate.data.splits import Part, stratified_split
from foveate.extras import require
from foveate.files import writing

SUFFIX = ".safetensors"
_FORMAT = "packed-1"
_THREADS = 4


def pack(train: ImageSet, test: ImageSet, path: str | Path) -> None:
    """Write the training and the testing images of a data set into one safetensors file, as small as it gets unharmed.

    `open_dataset(path, "train")` opens it again. CIFAR-10 takes 105 MB; see `some` for a part of it. Images of floats
    are rounded to 8 bits, those of 8 bits come back to the last bit.

    Args:
        train, test: two data sets of the same classes.
        path: of the file, which ends in `.safetensors`.

    >>> from foveate.data import Scenes, open_dataset
    >>> pack(Scenes(6, 16), Scenes(2, 16, seed=1), "scenes.safetensors")
    >>> len(open_dataset("scenes.safetensors", "test")), open_dataset("scenes.safetensors")[5].image.shape
    (2, torch.Size([3, 16, 16]))
    """
    if Path(path).suffix != SUFFIX:
        raise DataError(f"a packed data set is a file that ends in {SUFFIX!r}, not {str(path)!r}")
    parts = (train, test)
    places = [(part, index) for part in parts for index in range(len(part))]
    with ThreadPoolExecutor(_THREADS) as pool:
        files = list(pool.map(lambda place: _compressed(place[0][place[1]].image), places))
    tensors = {
        "files": torch.from_numpy(np.frombuffer(b"".join(files), dtype=np.uint8).copy()),
        "ends": torch.tensor([len(file) for file in files]).cumsum(0),
        "labels": torch.tensor([label for part in parts for label in part.labels]),
        "training": torch.tensor([part is train for part, _ in places]),
    }
    header = {"foveate": _FORMAT, "classes": json.dumps(list(train.classes))}
    with writing(path) as beside:
        beside.write_bytes(require("safetensors.torch").save(tensors, header))


def some(items: ImageSet, count: int, seed: int = 0) -> ImageSet:
    """About `count` of the images, as many of each class as its share is; all where there are no more than that.

    >>> from foveate.data import Scenes
    >>> len(some(Scenes(100, 16), 40))
    40
    """
    if count >= len(items):
        return items
    return Part(items, stratified_split(items.labels, count / len(items), seed)[0])


class Packed(ImageSet):
    """A data set in one file, as `pack` wrote it; its images are decoded when they are asked for.

    Args:
        path: of the file.
        part: "train", "test" or "all".
    """

    def __init__(self, path: str | Path, part: Literal["train", "test", "all"] = "train") -> None:
        safetensors = require("safetensors")
        if not Path(path).is_file():
            raise DataError(f"there is no file {str(path)!r}")
        try:
            with safetensors.safe_open(path, "pt") as file:
                header = file.metadata() or {}
                values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except safetensors.SafetensorError as error:
            raise DataError(f"{Path(path).name} is not a safetensors file, or is cut short: {error}") from error
        if header.get("foveate") != _FORMAT:
            raise DataError(f"{Path(path).name} is not a data set that foveate packed")
        self.classes = tuple(json.loads(header["classes"]))
        self._files = values["files"].numpy()
        self._ends = [0, *values["ends"].tolist()]
        chosen = torch.ones_like(values["training"]) if part == "all" else values["training"] == (part == "train")
        self._places: list[int] = chosen.nonzero().flatten().tolist()
        self._labels: list[int] = values["labels"][chosen].tolist()

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        place = self._places[index]
        file = self._files[self._ends[place] : self._ends[place + 1]].tobytes()
        with Image.open(io.BytesIO(file), formats=["WEBP"]) as image:
            return Item(image=to_tensor(image), label=self._labels[index], name=f"{place}")

    def images(self, indices: Sequence[int] | None = None) -> Tensor:
        """All images, or those at some indices, (N, 3, H, W) uint8; they must be of one size."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return torch.stack([item.image for item in pool.map(self.__getitem__, indices or range(len(self)))])


def _compressed(image: Tensor) -> bytes:
    values = (image * 255).round().to(torch.uint8) if image.is_floating_point() else image
    file = io.BytesIO()
    Image.fromarray(values.permute(1, 2, 0).numpy()).save(file, "WEBP", lossless=True, method=4, exact=True)
    return file.getvalue()
