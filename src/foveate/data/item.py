"""Item: what every data set of the project yields; ImageSet: what every data set of the project is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from torch.utils.data import Dataset, default_collate


class Item(dict[str, Any]):
    """One image with what is known about it; `item.image` and `item["image"]` are the same thing.

    Keys, of which the first two are always there:
        image: (3, H, W), uint8 or float32 in [0, 1].
        label: the class, an int.
        mask: (1, H, W) bool, the pixels of the object.
        center, extent, angle: (2,), (2,), () float32, the rectangle around the object, see `foveate.geometry`.
        name: where the image comes from.

    `torch.utils.data.default_collate` turns a list of items into an Item of batches.

    >>> item = Item(image=None, label=3)
    >>> item.label, item["label"], "mask" in item
    (3, 3, False)
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this item has no {key!r}; it has {', '.join(self) or 'nothing'}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def but(self, **changes: Any) -> Item:
        """A copy with some keys changed.

        >>> Item(label=1).but(label=2)
        {'label': 2}
        """
        return Item({**self, **changes})


class ImageSet(Dataset[Item], ABC):
    """A map-style data set of Items that knows its classes and, without opening an image, the label of each item."""

    classes: tuple[str, ...]

    @property
    @abstractmethod
    def labels(self) -> list[int]:
        """The label of each item."""

    @abstractmethod
    def __getitem__(self, index: int) -> Item:
        """The item at an index."""

    def batch(self, indices: Sequence[int]) -> Item:
        """The items at some indices as one, their values stacked; a data set that holds tensors has a faster way."""
        return cast(Item, default_collate([self[index] for index in indices]))

    def __len__(self) -> int:
        return len(self.labels)
