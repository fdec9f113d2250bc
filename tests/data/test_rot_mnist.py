import math
from pathlib import Path

import numpy as np
import pytest
import torch
from idx import write_idx

from foveate.data import DataError, MissingData, open_dataset, open_split
from foveate.data.rot_mnist import COUNTS, FILE, RotMNIST, turned
from foveate.geometry import similarity, warp


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MNIST's layout with 30 digits, each of one grey level of its own, of which 6 + 3 + 12 are drawn."""
    monkeypatch.setattr("foveate.data.rot_mnist.COUNTS", {"train": 6, "val": 3, "test": 12})
    for part, first, count in (("train", 0, 20), ("t10k", 20, 10)):
        pixels = np.zeros((count, 28, 28), dtype=np.uint8)
        pixels[:, 8:20, 8:20] = np.arange(first, first + count)[:, None, None] + 100
        write_idx(tmp_path / "MNIST" / "raw" / f"{part}-images-idx3-ubyte", pixels)
        write_idx(
            tmp_path / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte",
            np.arange(first, first + count, dtype=np.uint8) % 10,
        )
    return tmp_path


def test_the_parts_share_no_digit_and_keep_their_labels(root: Path) -> None:
    parts = {part: open_dataset("rot-mnist", part, root=root) for part in ("train", "val", "test")}
    assert [len(part) for part in parts.values()] == [6, 3, 12]
    greys = {name: [int(part[i].image[0, 14, 14]) - 100 for i in range(len(part))] for name, part in parts.items()}
    assert len({grey for values in greys.values() for grey in values}) == 21
    assert {name: [grey % 10 for grey in values] for name, values in greys.items()} == {
        name: part.labels for name, part in parts.items()
    }
    assert len(open_dataset("rot-mnist", "all", root=root)) == 21


def test_in_two_parts_the_digits_for_validation_are_for_training_too(root: Path) -> None:
    parts = {part: open_dataset("rot-mnist", part, root=root) for part in ("train", "val", "test")}
    training, validation = open_split("rot-mnist-12k", root=root)
    assert training.labels == [*parts["train"].labels, *parts["val"].labels]
    assert torch.equal(training[7].image, parts["val"][1].image)
    assert validation.labels == parts["test"].labels
    with pytest.raises(DataError, match="validation part"):
        open_dataset("rot-mnist-12k", "val", root=root)


def test_it_is_made_once_and_the_same_bytes_come_out(root: Path) -> None:
    RotMNIST(root, "train")
    first = (root / FILE).read_bytes()
    (root / FILE).unlink()
    RotMNIST(root, "test")
    assert (root / FILE).read_bytes() == first
    for file in (root / "MNIST" / "raw").iterdir():
        file.unlink()
    assert len(RotMNIST(root, "val")) == 3  # from the cache alone


def test_digits_are_turned_counter_clockwise_and_then_transposed() -> None:
    digit = torch.zeros(28, 28, dtype=torch.uint8)
    digit[6:22, 10:13] = 255
    digit[6:9, 10:20] = 200
    assert torch.equal(turned(digit, 0.0), digit.T)
    assert torch.equal(turned(digit, 90.0), digit.rot90(1).T)
    matrix = similarity(torch.tensor([math.radians(30)]), torch.ones(1), torch.zeros(1, 2))
    bilinear = warp(digit[None, None].float(), matrix)[0, 0].T
    assert (turned(digit, 30.0).float() - bilinear).abs().mean() < 3  # bicubic is not bilinear, but nearly
    assert (turned(digit, -30.0).float() - bilinear).abs().mean() > 20


@pytest.mark.slow
def test_the_real_one() -> None:
    try:
        train = RotMNIST(Path("~/.cache/foveate").expanduser(), "train")
    except RuntimeError as missing:
        pytest.skip(str(missing))
    assert len(train) == COUNTS["train"]
    values = train.images.float() / 255
    assert (values.mean().item(), values.std().item()) == pytest.approx((0.1318, 0.3029), abs=1e-4)


def test_without_mnist_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="from which it is made"):
        open_dataset("rot-mnist", root=tmp_path)
