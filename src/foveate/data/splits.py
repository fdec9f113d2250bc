"""Splits: part a data set into training and validation, class by class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from foveate.data.item import ImageSet, Item


def stratified_split(labels: Sequence[int], ratio: float, seed: int = 0) -> tuple[list[int], list[int]]:
    """Indices for training and for validation, the same ratio in every class (rectangular VI).

    Each class of n items gives round(ratio·n) of them to training, but keeps at least one for each side where n >= 2; a
    class of one goes to training. Both lists are in increasing order and depend on (labels, ratio, seed) alone.

    Args:
        labels: the class of each item.
        ratio: share of training, between 0 and 1.
        seed: another seed, another split.

    >>> stratified_split([0, 0, 0, 0, 1, 1], 0.5, seed=1)
    ([0, 1, 4], [2, 3, 5])
    """
    if not 0 < ratio < 1:
        raise ValueError(f"ratio is the share of training and must be between 0 and 1, not {ratio}")
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[int(label)].append(index)
    train: list[int] = []
    for label in sorted(members):
        indices = members[label]
        count = max(1, min(round(ratio * len(indices)), len(indices) - 1))
        # A generator for each class, so that a class is split alike whatever other classes there are.
        shuffled = np.random.default_rng((seed, label & 0xFFFFFFFF)).permutation(indices).tolist()
        train += shuffled[:count]
    chosen = set(train)
    return sorted(train), [index for index in range(len(labels)) if index not in chosen]


class Part(ImageSet):
    """The items of a data set at some indices.

    >>> from foveate.data import Scenes
    >>> part = Part(Scenes(10, 16), [7, 2])
    >>> len(part), part[0].name
    (2, 'scene-0-7')
    """

    def __init__(self, whole: ImageSet, indices: Sequence[int]) -> None:
        self.whole = whole
        self.indices = list(indices)
        self.classes = whole.classes
        labels = whole.labels
        self._labels = [labels[index] for index in self.indices]

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        return self.whole[self.indices[index]]


class Joined(ImageSet):
    """The items of several data sets of the same classes, one after the other."""

    def __init__(self, parts: Sequence[ImageSet]) -> None:
        self.classes = parts[0].classes
        self.parts = list(parts)
        self._places = [(part, index) for part in self.parts for index in range(len(part))]
        self._labels = [label for part in self.parts for label in part.labels]

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        part, place = self._places[index]
        return part[place]
