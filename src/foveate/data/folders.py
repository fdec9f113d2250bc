"""Folders: images in files, with one sub-folder per class or with no classes at all; bad files are named, not fatal."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import Tensor

from foveate.data.decode import BadImage, check_image, read_image
from foveate.data.item import ImageSet, Item
from foveate.progress import counted

IGNORED = {"thumbs.db", "desktop.ini"}  # left by operating systems; names with a dot in front are ignored as well
NO_LABEL = -1


class DataError(ValueError):
    """Data cannot be used as it is; the text says what is wrong and what is expected."""


class BadFiles(UserWarning):
    """Some files are left out of a data set."""


class ImageFiles(ImageSet):
    """Images in files.

    Files that are no usable image are left out and kept in `problems`, path to reason; one warning sums them up. Only
    the ends of each file are read for this. A file that turns out to be bad when it is decoded, maybe in the middle of
    training, is replaced by the next readable one of its class, and named once.

    Args:
        paths: the files.
        labels: the class of each, as an index into `classes`; none means that there are no labels, and -1 is given.
        classes: names of the classes.
        root: what the names of items and of problems are relative to.

    Each item has `image` (3, H, W) uint8 in its own size, `label`, and `name`.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        labels: Sequence[int] | None = None,
        classes: Sequence[str] = (),
        root: Path | None = None,
    ) -> None:
        self.classes = tuple(classes)
        self.root = root
        self.problems: dict[str, str] = {}
        with ThreadPoolExecutor(min(16, 2 * (os.cpu_count() or 1))) as pool, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's opinions on metadata
            reasons = list(counted(pool.map(_problem, paths), "Checking files", len(paths)))
        labels = [NO_LABEL] * len(paths) if labels is None else labels
        good = [(p, label) for p, label, reason in zip(paths, labels, reasons, strict=True) if reason is None]
        self.paths = [path for path, _ in good]
        self._labels = [label for _, label in good]
        self.problems |= {self._name(p): reason for p, reason in zip(paths, reasons, strict=True) if reason}
        if self.problems:
            warnings.warn(self.report(limit=5), BadFiles, stacklevel=2)

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        place, image = self._read(range(len(self))[index])
        return Item(image=image, label=self._labels[place], name=self._name(self.paths[place]))

    def report(self, limit: int | None = None) -> str:
        """The bad files, one line for each, and how many there are; at most `limit` of them by name."""
        count = len(self.problems)
        lines = [f"{count} bad file{'' if count == 1 else 's'} left out, {len(self)} images are used:"]
        lines += [f"  {name} {reason}" for name, reason in list(self.problems.items())[:limit]]
        if limit is not None and count > limit:
            lines.append(f"  and {count - limit} more, see `problems`")
        return "\n".join(lines)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if self.root and path.is_relative_to(self.root) else str(path)

    def _read(self, index: int) -> tuple[int, Tensor]:
        """The image at an index, or the next one of its class that can be read, with the index it has."""
        size, label = len(self), self._labels[index]
        for place in ((index + step) % size for step in range(size)):
            name = self._name(self.paths[place])
            if self._labels[place] != label or name in self.problems:
                continue
            try:
                return place, read_image(self.paths[place])
            except BadImage as error:
                self.problems[name] = str(error)
                warnings.warn(f"{name} {error}; another image of its class takes its place", BadFiles, stacklevel=3)
        kind = f"of class {self.classes[label]!r}" if label != NO_LABEL else ""
        raise DataError(f"no readable image {kind} is left in {self.root or 'the files given'}\n{self.report(limit=5)}")


def class_folder(root: str | Path, classes: Sequence[str] | None = None) -> ImageFiles:
    """The images under a folder with one sub-folder per class: `root/cat/1.jpg`, `root/dog/any/where/2.png`.

    Args:
        root: the folder.
        classes: names of the sub-folders in the order of the labels; sorted by name where they are not given.
    """
    root = _existing(root)
    found = sorted(d.name for d in root.iterdir() if d.is_dir() and not d.name.startswith("."))
    if not found:
        raise DataError(f"{root} has no sub-folders; expected one for each class: {root}/cat/1.jpg, {root}/dog/2.jpg")
    if classes is not None and (unknown := sorted(set(found) - set(classes))):
        raise DataError(f"{root} has classes that training does not have: {', '.join(unknown[:5])}")
    names = list(found if classes is None else classes)
    if len(names) == 1:
        raise DataError(f"{root} has one class only, {names[0]!r}; there must be two sub-folders or more")
    files = {name: _files(root / name) if name in found else [] for name in names}
    images = ImageFiles(
        [path for paths in files.values() for path in paths],
        [label for label, paths in enumerate(files.values()) for _ in paths],
        names,
        root,
    )
    filled = Counter(images.labels)
    if not filled:
        raise DataError(f"{root} has no readable image in any of its sub-folders\n{images.report(limit=5)}".rstrip())
    if classes is None and (empty := [name for label, name in enumerate(names) if not filled[label]]):
        raise DataError(f"no readable image in the sub-folder {empty[0]!r} of {root}; fill it or remove it")
    return images


def flat_folder(where: str | Path | Iterable[str | Path]) -> ImageFiles:
    """The images in files and folders, without labels: those of a folder are all that are in it, at any depth."""
    places = [Path(where)] if isinstance(where, str | Path) else [Path(place) for place in where]
    paths: list[Path] = []
    for place in places:
        if not place.exists():
            raise DataError(f"{place} does not exist")
        paths += _files(place) if place.is_dir() else [place]
    images = ImageFiles(paths, root=places[0] if len(places) == 1 and places[0].is_dir() else None)
    if not len(images):
        listed = ", ".join(map(str, places[:3])) or "an empty list of files"
        raise DataError(f"no readable image in {listed}" + (f"\n{images.report(limit=5)}" if images.problems else ""))
    return images


def _existing(root: str | Path) -> Path:
    root = Path(root).expanduser()
    if not root.exists():
        raise DataError(f"the folder {root} does not exist")
    if not root.is_dir():
        raise DataError(f"{root} is a file; expected a folder of images")
    if not any(root.iterdir()):
        raise DataError(f"the folder {root} is empty")
    return root


def _files(root: Path) -> list[Path]:
    """The files under a folder, sorted, but for hidden ones."""
    found = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder, n) for n in sorted(files) if not n.startswith(".") and n.lower() not in IGNORED]
    return found


def _problem(path: Path) -> str | None:
    try:
        check_image(path)
    except BadImage as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None
