"""Data: scenes with ground truth, the papers' data sets, image folders; every one of them yields Items."""

from foveate.data.item import ImageSet, Item
from foveate.data.scenes import Scenes

__all__ = ["ImageSet", "Item", "Scenes"]
