"""CUB-200-2011: 200 kinds of birds in the folder as published, cropped to their bounding boxes (Jetley et al. 2018)."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from foveate.data.folders import DataError, ImageFiles

FOLDER = "CUB_200_2011"
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt", "classes.txt")


class CUB(ImageFiles):
    """The images of one part, each cropped to the box around its bird.

    Args:
        root: the folder that holds `CUB_200_2011`, as its archive unpacks.
        train: whether the 5,994 training or the 5,794 testing images.
        crop: whether to crop them.
    """

    def __init__(self, root: str | Path, train: bool = True, crop: bool = True) -> None:
        base = Path(root) / FOLDER
        files, labels, training, boxes, classes = (_rows(base / name) for name in LISTS)
        if not set(files) == set(labels) == set(training) == set(boxes):
            raise DataError(f"the lists in {base} are not of the same images; unpack the archive again")
        chosen = [key for key in files if training[key] == [str(int(train))]]
        names = [classes[number][0] for number in sorted(classes, key=int)]
        paths = [base / "images" / files[key][0] for key in chosen]
        self.boxes = {path: [float(n) for n in boxes[key]] for path, key in zip(paths, chosen, strict=True)}
        self.crop = crop
        plain = [name.partition(".")[2].replace("_", " ") for name in names]
        super().__init__(paths, [int(labels[key][0]) - 1 for key in chosen], plain, base / "images")

    def _read(self, index: int) -> tuple[int, Tensor]:
        place, image = super()._read(index)
        if not self.crop:
            return place, image
        left, top, width, height = (round(number) for number in self.boxes[self.paths[place]])
        first, start = max(0, top), max(0, left)
        return place, image[:, first : max(first + 1, top + height), start : max(start + 1, left + width)]


def there(root: str | Path) -> bool:
    """Whether CUB-200-2011 is under `root`."""
    base = Path(root) / FOLDER
    return all((base / name).is_file() for name in LISTS) and (base / "images").is_dir()


def _rows(path: Path) -> dict[str, list[str]]:
    """The words of each line by the first of them."""
    rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
    if not rows or any(len(row) < 2 for row in rows):
        raise DataError(f"{path} is cut short or not the file that CUB-200-2011 has; unpack its archive again")
    return {row[0]: row[1:] for row in rows}
