"""The catalogue: every data set by name, and folders by path, through one function."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from foveate.data.folders import DataError, class_folder
from foveate.data.item import ImageSet, Item
from foveate.data.packed import SUFFIX, Packed
from foveate.data.rot_mnist import FILE, RotMNIST
from foveate.data.scenes import Scenes
from foveate.data.splits import Joined, Part, stratified_split
from foveate.extras import require

OwnPart = Literal["train", "val", "test"]
Split = Literal["train", "val", "test", "all"]
TEST_FOLDERS = ("test", "val", "valid", "validation")
RATIO = 0.8  # share of training where a data set comes without a split of its own


class MissingData(DataError):
    """A data set is not on this machine; the text says how to get it."""


@dataclass(frozen=True)
class Entry:
    """A data set of torchvision: its class there, arguments for either split, and classes where it names none."""

    kind: str
    train: dict[str, Any]
    test: dict[str, Any]
    classes: tuple[str, ...] = ()


_BY_FLAG = {"train": True}, {"train": False}
_BY_NAME = {"split": "train"}, {"split": "test"}
TORCHVISION = {
    "cifar10": Entry("CIFAR10", *_BY_FLAG),
    "cifar100": Entry("CIFAR100", *_BY_FLAG),
    "fashion-mnist": Entry("FashionMNIST", *_BY_FLAG),
    "mnist": Entry("MNIST", *_BY_FLAG),
    "stl10": Entry("STL10", *_BY_NAME),
    "svhn": Entry("SVHN", *_BY_NAME, classes=tuple("0123456789")),
}
PARTS: tuple[OwnPart, ...] = ("train", "val", "test")
IN_THREE_PARTS = ("rot-mnist", "cifar10-40k", "pcam")  # which have a validation part of their own
ROT_MNIST_12K = "rot-mnist-12k"
NAMES = ("scenes", "oxford-iiit-pet", "cub-200-2011", *TORCHVISION, *IN_THREE_PARTS, ROT_MNIST_12K)


def data_root(root: str | Path | None = None) -> Path:
    """Where data sets are: the argument, else the environment's FOVEATE_DATA, else ~/.cache/foveate."""
    return Path(root or os.environ.get("FOVEATE_DATA") or "~/.cache/foveate").expanduser()


def open_dataset(
    name: str | Path,
    split: Split = "train",
    *,
    root: str | Path | None = None,
    download: bool = False,
    masks: bool = False,
    **options: Any,
) -> ImageSet:
    """A data set by its name, or by the path of a folder or of a packed file.

    Names are those of `NAMES`; anything else is a path, to a folder of class folders, to one with `train` and `test`
    (or `val`) in it, or to a file that `pack` wrote. Where there is no split of the data set's own, "train" and "test"
    are a stratified 8:2.

    Args:
        name: a name or a path.
        split: "train", "test", "val" where there is such a part, or "all" for all parts in one.
        root: where data sets are, see `data_root`.
        download: get the data set if it is missing and has a name.
        masks: give items their `mask` where there is ground truth: for metrics, never for training.
        options: of the data set itself: those of `Scenes` (count, size, seed, …), `border` of `Pets`, `crop` of `CUB`.

    >>> len(open_dataset("scenes", "test", count=50))
    50
    """
    if split not in (*PARTS, "all"):
        raise DataError(f"split must be 'train', 'val', 'test' or 'all', not {split!r}")
    if name in IN_THREE_PARTS:
        return _in_three_parts(str(name), split, data_root(root), download)
    if split == "val":
        raise DataError(f"only {', '.join(IN_THREE_PARTS)} have a validation part of their own; use 'test', or a ratio")
    if name == "scenes":
        return _scenes(split, options)
    if name == ROT_MNIST_12K:
        return _rot_mnist_12k(split, data_root(root), download)
    if name == "oxford-iiit-pet":
        return _pets(split, data_root(root), download, masks, options)
    if name == "cub-200-2011":
        return _cub(split, data_root(root), **options)
    if options:
        raise DataError(f"{name} has no option {', '.join(map(repr, options))}")
    if name in TORCHVISION:
        return _torchvision(str(name), split, data_root(root), download)
    path = Path(name).expanduser()
    return Packed(path, split) if path.suffix == SUFFIX else _folder(path, split)


def open_split(
    name: str | Path, ratio: float | None = None, seed: int = 0, **arguments: Any
) -> tuple[ImageSet, ImageSet]:
    """Training and validation parts of a data set: its own where ratio is None, else all of it split by ratio and seed.

    Where it has no validation part of its own, its test part takes the place.

    >>> train, val = open_split("scenes", 0.75, count=100)
    >>> train.classes == val.classes
    True
    """
    if ratio is None:
        held_out: Split = "val" if name in IN_THREE_PARTS else "test"
        return open_dataset(name, "train", **arguments), open_dataset(name, held_out, **arguments)
    whole = open_dataset(name, "all", **arguments)
    train, val = stratified_split(whole.labels, ratio, seed)
    return Part(whole, train), Part(whole, val)


def _scenes(split: Split, options: dict[str, Any]) -> ImageSet:
    """Scenes of one seed for training and of the next one for testing; their masks are always there."""
    seed = 2 * int(options.pop("seed", 0))
    count = options.pop("count", None)
    train = Scenes(3000 if count is None else count, seed=seed, **options)
    test = Scenes(1000 if count is None else count, seed=seed + 1, **options)
    if split == "all":
        return Joined([train, test])
    return train if split == "train" else test


def _pets(split: Split, root: Path, download: bool, masks: bool, options: dict[str, Any]) -> ImageSet:
    from foveate.data.pets import FOLDER, Pets, lists_there

    there = lists_there(root)
    if not there and download:
        _get(lambda: require("torchvision.datasets").OxfordIIITPet(root, download=True), "oxford-iiit-pet")
        there = lists_there(root)
    if not there:
        layout = f"{root / FOLDER}/images/*.jpg and {root / FOLDER}/annotations/trainval.txt"
        raise _missing("oxford-iiit-pet", root, layout)
    own = {"train": ("trainval",), "test": ("test",)}.get(split, there)
    if split == "all" or len(there) == 2:
        return Pets(root, own, masks, **options)
    return _share(Pets(root, there, masks, **options), split)


def _cub(split: Split, root: Path, crop: bool = True) -> ImageSet:
    from foveate.data import cub

    if not cub.there(root):
        raise MissingData(
            f"cub-200-2011 is not in {root}. Unpack its CUB_200_2011.tgz there, so that {root / cub.FOLDER}/images.txt "
            "exists, or name another place with `root=` or FOVEATE_DATA"
        )
    if split == "all":
        return Joined([cub.CUB(root, train, crop) for train in (True, False)])
    return cub.CUB(root, split == "train", crop)


class Wrapped(ImageSet):
    """A data set of torchvision as one of Items."""

    def __init__(self, source: Any, classes: Sequence[str]) -> None:
        self.source = source
        self.classes = tuple(classes)
        labels = source.targets if hasattr(source, "targets") else source.labels
        self._labels = [int(label) for label in labels]

    @property
    def labels(self) -> list[int]:
        """The label of each item."""
        return self._labels

    def __getitem__(self, index: int) -> Item:
        from foveate.data.decode import to_tensor

        image, label = self.source[range(len(self))[index]]
        return Item(image=to_tensor(image), label=int(label), name=f"{index}")


def _torchvision(name: str, split: Split, root: Path, download: bool) -> ImageSet:
    """From class folders `root/name/{train,test}/class/*.png` where these are, else from torchvision's own files."""
    if (root / name / "train").is_dir():
        return _folder(root / name, split)
    if split == "all":
        return Joined([_torchvision(name, part, root, download) for part in ("train", "test")])
    if name == "svhn":
        require("scipy")  # its files are MATLAB's
    entry = TORCHVISION[name]
    kind = getattr(require("torchvision.datasets"), entry.kind)
    arguments = entry.train if split == "train" else entry.test
    if download:
        root.mkdir(parents=True, exist_ok=True)
        source = _get(lambda: kind(root, download=True, **arguments), name)
    else:
        try:
            source = kind(root, **arguments)
        except RuntimeError:
            layout = (
                f"what torchvision.datasets.{entry.kind} keeps in {root}, or {root / name}/{{train,test}}/CLASS/*.png"
            )
            raise _missing(name, root, layout) from None
    return Wrapped(source, entry.classes or source.classes)


def _in_three_parts(name: str, split: Split, root: Path, download: bool) -> ImageSet:
    if split == "all":
        return Joined([_in_three_parts(name, part, root, download) for part in PARTS])
    if name == "rot-mnist":
        return _rot_mnist(split, root, download)
    return _pcam(split, root, download) if name == "pcam" else _cifar10_40k(split, root, download)


def _rot_mnist(part: OwnPart, root: Path, download: bool, name: str = "rot-mnist") -> ImageSet:
    if download:
        return cast(ImageSet, _get(lambda: RotMNIST(root, part, download=True), name))
    try:
        return RotMNIST(root, part)
    except RuntimeError:
        layout = f"{root / FILE}, or what torchvision.datasets.MNIST keeps in {root}, from which it is made"
        raise _missing(name, root, layout) from None


def _rot_mnist_12k(split: Split, root: Path, download: bool) -> ImageSet:
    """Rotated MNIST in two parts: the digits for validation are for training too, as the paper's authors have it."""
    parts = {"train": PARTS[:2], "test": PARTS[2:]}.get(split, PARTS)
    return Joined([_rot_mnist(part, root, download, ROT_MNIST_12K) for part in parts])


def _pcam(part: OwnPart, root: Path, download: bool) -> ImageSet:
    from foveate.data import pcam

    if not pcam.there(root):
        if not download:
            raise _missing("pcam", root, f"{root / pcam.FOLDER}/camelyonpatch_level_2_split_{{train,valid,test}}_*.h5")
        for own in PARTS:
            _get(lambda: require("torchvision.datasets").PCAM(root, own, download=True), "pcam")  # noqa: B023
    return pcam.PCam(root, part)


def _cifar10_40k(part: OwnPart, root: Path, download: bool) -> ImageSet:
    """CIFAR-10 whose training part keeps 1,000 images of each class for validation (equivariant 4.2)."""
    if part == "test":
        return _torchvision("cifar10", "test", root, download)
    whole = _torchvision("cifar10", "train", root, download)
    train, val = stratified_split(whole.labels, 0.8)
    return Part(whole, train if part == "train" else val)


def _folder(path: Path, split: Split) -> ImageSet:
    """A folder with a split of its own, or one that is split here."""
    if not path.exists() and path.parent == Path("."):
        near = difflib.get_close_matches(str(path), NAMES, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(f"{str(path)!r} is neither a folder nor one of the names {', '.join(NAMES)}{hint}")
    if not (path / "train").is_dir():
        whole = class_folder(path)
        return whole if split == "all" else _share(whole, split)
    train = class_folder(path / "train")
    if split == "train":
        return train
    held_out = next((path / part for part in TEST_FOLDERS if (path / part).is_dir()), None)
    if held_out is None:
        raise DataError(f"{path} has a folder 'train' but none for testing; expected one of {', '.join(TEST_FOLDERS)}")
    test = class_folder(held_out, train.classes)
    return test if split == "test" else Joined([train, test])


def _share(whole: ImageSet, split: Split) -> ImageSet:
    train, test = stratified_split(whole.labels, RATIO)
    return Part(whole, train if split == "train" else test)


def _get(fetch: Callable[[], Any], name: str) -> Any:
    try:
        return fetch()
    except (OSError, RuntimeError) as error:
        raise MissingData(f"{name} could not be downloaded: {error}") from error


def _missing(name: str, root: Path, layout: str) -> MissingData:
    return MissingData(
        f"{name} is not in {root}. Get it with `download=True` (on the command line `--data.download true`), "
        f"name another place with `root=` or FOVEATE_DATA, or put there: {layout}"
    )
