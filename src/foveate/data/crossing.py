"""Crossing: a data set under the classes of another one, so that a network trained there can be tested here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foveate.data.folders import DataError
from foveate.data.item import ImageSet, Item

Match = Literal["name", "number"]
SYNONYMS = (("airplane", "aeroplane", "plane"), ("automobile", "car"), ("motorcycle", "motorbike"))


class Crossed(ImageSet):
    """The items of a data set that belong to one of other `classes`, with the labels of these.

    STL-10 under the classes of CIFAR-10 has nine of its ten: `car` is `automobile`, and `monkey` is left out.

    Args:
        items: the data set.
        classes: those that a network was trained for.
        match: "name" finds each class by its name or a synonym of it, and leaves out items of classes without a
            counterpart; "number" takes label 3 for class 3, whatever they are called.

    Attributes:
        share: of the items, how many are left.
        unmatched: names of the classes whose items are left out.

    >>> from foveate.data import Scenes
    >>> scenes = Scenes(100, 16)
    >>> crossed = Crossed(scenes, ["zebra", scenes.classes[2]])
    >>> set(crossed.labels), crossed.unmatched == [name for name in scenes.classes if name != scenes.classes[2]]
    ({1}, True)
    """

    def __init__(self, items: ImageSet, classes: Sequence[str], match: Match = "name") -> None:
        labels = counterparts(items.classes, classes, match)
        found = [(index, labels[label]) for index, label in enumerate(items.labels)]
        kept = [(index, label) for index, label in found if label is not None]
        if not kept:
            raise DataError(f"no class of these data ({_some(items.classes)}) is one of {_some(classes)}")
        self.items = items
        self.classes = tuple(classes)
        self.unmatched = [name for name, label in zip(items.classes, labels, strict=True) if label is None]
        self.share = len(kept) / len(found)
        self._indices = [index for index, _ in kept]
        self._labels = [label for _, label in kept]

    @property
    def labels(self) -> list[int]:
        """The label of each item, as a number of one of `classes`."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        return self.items[self._indices[index]].but(label=self._labels[index])


def counterparts(theirs: Sequence[str], ours: Sequence[str], match: Match = "name") -> list[int | None]:
    """For each class of `theirs`, which of `ours` it is; None for one without a counterpart.

    >>> counterparts(["car", "monkey", "Ship"], ["automobile", "frog", "ship"])
    [0, None, 2]
    >>> counterparts(["car", "monkey"], ["automobile", "frog"], "number")
    [0, 1]
    """
    if match not in ("name", "number"):
        raise DataError(f"classes are matched by 'name' or 'number', not by {match!r}")
    if match == "number":
        return [label if label < len(ours) else None for label in range(len(theirs))]
    places = {_plain(name): place for place, name in enumerate(ours)}
    return [places.get(_plain(name)) for name in theirs]


def _plain(name: str) -> str:
    """A name as all its synonyms have it."""
    word = name.lower().replace("_", " ").replace("-", " ").strip()
    return next((names[0] for names in SYNONYMS if word in names), word)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
