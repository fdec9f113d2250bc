"""CIFAR-10's classes on STL-10: who is whom, who is left out, and that images and labels stay together."""

import pytest
import torch

from foveate.data import DataError, ImageSet, Item, Prepared, Preprocess
from foveate.data.crossing import Crossed, counterparts

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


class Pictures(ImageSet):
    """Images of 96×96 whose grey is their label: what STL-10 would give, known by its colours."""

    classes = STL10

    def __init__(self, labels):
        self._labels = labels

    @property
    def labels(self):
        return self._labels

    def __getitem__(self, index):
        label = self._labels[index]
        return Item(image=torch.full((3, 96, 96), 20 * label, dtype=torch.uint8), label=label, name=f"{index}")


def test_nine_classes_of_stl10_are_classes_of_cifar10():
    labels = counterparts(STL10, CIFAR10)
    pairs = {STL10[k]: None if label is None else CIFAR10[label] for k, label in enumerate(labels)}
    assert pairs.pop("monkey") is None
    assert pairs.pop("car") == "automobile"
    assert all(theirs == ours for theirs, ours in pairs.items())
    assert len(pairs) == 8


def test_images_go_with_their_new_labels_at_the_networks_size():
    pictures = Pictures([7, 2, 0, 6, 7, 9, 1])
    crossed = Crossed(pictures, CIFAR10)
    assert crossed.unmatched == ["monkey"]
    assert crossed.share == pytest.approx(5 / 7)
    assert crossed.classes == CIFAR10
    assert crossed.labels == [1, 0, 7, 9, 2]
    prepared = Prepared(crossed, Preprocess(32, (0.0,) * 3, (1.0,) * 3))
    for item, theirs in zip((prepared[k] for k in range(len(prepared))), (2, 0, 6, 9, 1), strict=True):
        assert CIFAR10[item.label].replace("automobile", "car") == STL10[theirs]
        assert item.image.shape == (3, 32, 32)
        assert item.image.mean().item() == pytest.approx(20 * theirs / 255)


def test_by_number_every_class_is_taken_for_the_one_with_its_number():
    crossed = Crossed(Pictures([7, 2, 0]), CIFAR10, "number")
    assert (crossed.labels, crossed.share, crossed.unmatched) == ([7, 2, 0], 1.0, [])
    assert counterparts(STL10, CIFAR10[:3], "number") == [0, 1, 2, *[None] * 7]


def test_names_are_told_by_their_words():
    assert counterparts(["Motorbike", "cat", "Great_Dane"], ["motorcycle", "great dane"]) == [0, None, 1]


def test_errors_say_what_was_wrong():
    with pytest.raises(DataError, match=r"no class of these data \(airplane, bird, car, cat, …\) is one of 0, 1"):
        Crossed(Pictures([1, 2]), ["0", "1"])
    with pytest.raises(DataError, match="by 'name' or 'number', not by 'colour'"):
        counterparts(STL10, CIFAR10, "colour")
