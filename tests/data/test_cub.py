"""CUB-200-2011 from a folder laid out as published."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.data import DataError, MissingData, open_dataset, open_split
from foveate.data.cub import CUB

BIRDS = ("001.Black_footed_Albatross", "002.Laysan_Albatross")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four images of two kinds; each has a white box, of its own size, where the bird is."""
    base = tmp_path / "CUB_200_2011"
    lists: dict[str, list[str]] = {
        name: [] for name in ("images", "image_class_labels", "train_test_split", "bounding_boxes")
    }
    for number in range(1, 5):
        bird = BIRDS[number > 2]
        (base / "images" / bird).mkdir(parents=True, exist_ok=True)
        pixels = np.zeros((20, 30, 3), dtype=np.uint8)
        pixels[3 : 3 + 2 * number, 5 : 5 + 4] = 255
        Image.fromarray(pixels).save(base / "images" / bird / f"{number}.png")
        lists["images"].append(f"{number} {bird}/{number}.png")
        lists["image_class_labels"].append(f"{number} {1 + (number > 2)}")
        lists["train_test_split"].append(f"{number} {number % 2}")
        lists["bounding_boxes"].append(f"{number} 5.0 3.0 4.0 {2 * number}.0")
    lists["classes"] = [f"{label} {bird}" for label, bird in enumerate(BIRDS, start=1)]
    for name, lines in lists.items():
        (base / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_each_part_has_its_images_cropped_to_their_birds(root: Path) -> None:
    train, test = open_split("cub-200-2011", root=root)
    assert train.classes == ("Black footed Albatross", "Laysan Albatross")
    assert [item.name for item in (train[0], train[1], test[0], test[1])] == [
        f"{BIRDS[0]}/1.png", f"{BIRDS[1]}/3.png", f"{BIRDS[0]}/2.png", f"{BIRDS[1]}/4.png",
    ]  # fmt: skip
    assert train.labels == test.labels == [0, 1]
    for item, number in ((train[0], 1), (train[1], 3), (test[0], 2), (test[1], 4)):
        assert torch.equal(item.image, torch.full((3, 2 * number, 4), 255, dtype=torch.uint8))
    assert len(open_dataset("cub-200-2011", "all", root=root)) == 4


def test_whole_images_on_demand(root: Path) -> None:
    item = open_dataset("cub-200-2011", root=root, crop=False)[0]
    assert item.image.shape == (3, 20, 30)
    assert item.image.bool().float().mean() == pytest.approx(8 / 600)


def test_a_box_beyond_the_image_is_cut_off(root: Path) -> None:
    boxes = root / "CUB_200_2011" / "bounding_boxes.txt"
    boxes.write_text(boxes.read_text().replace("1 5.0 3.0 4.0 2.0", "1 -2.0 -1.0 400.0 0.2"))
    assert CUB(root)[0].image.shape == (3, 1, 30)


def test_what_is_missing_or_cut_short_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"CUB_200_2011\.tgz"):
        open_dataset("cub-200-2011", root=tmp_path / "elsewhere")
    base = root / "CUB_200_2011"
    boxes = (base / "bounding_boxes.txt").read_text()
    (base / "bounding_boxes.txt").write_text(boxes[: boxes.index("3 5.0")])
    with pytest.raises(DataError, match="not of the same images"):
        CUB(root)
    (base / "bounding_boxes.txt").write_text(boxes[: boxes.index("3 5.0") + 1])
    with pytest.raises(DataError, match="cut short"):
        CUB(root)
