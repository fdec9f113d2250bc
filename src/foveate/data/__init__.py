"""Data: scenes with ground truth, the papers' data sets, image folders; every one of them yields Items."""
# ruff: noqa: E402

from foveate.extras import require

require("numpy")
require("PIL")

from foveate.data.augmentation import Augmentation, Augmented, PerspectiveAndColors, ShiftAndMirror
from foveate.data.catalogue import NAMES, MissingData, data_root, open_dataset, open_split
from foveate.data.crossing import Crossed
from foveate.data.decode import BadImage, read_image
from foveate.data.folders import BadFiles, DataError, ImageFiles, class_folder, flat_folder
from foveate.data.item import ImageSet, Item
from foveate.data.packed import Packed, pack, some
from foveate.data.scenes import Scenes
from foveate.data.splits import Joined, Part, stratified_split
from foveate.data.transforms import InMemory, Prepared, Preprocess

__all__ = [
    "NAMES",
    "Augmentation",
    "Augmented",
    "BadFiles",
    "BadImage",
    "Crossed",
    "DataError",
    "ImageFiles",
    "ImageSet",
    "InMemory",
    "Item",
    "Joined",
    "MissingData",
    "Packed",
    "Part",
    "PerspectiveAndColors",
    "Prepared",
    "Preprocess",
    "Scenes",
    "ShiftAndMirror",
    "class_folder",
    "data_root",
    "flat_folder",
    "open_dataset",
    "open_split",
    "pack",
    "read_image",
    "some",
    "stratified_split",
]
