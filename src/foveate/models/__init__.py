"""Networks: named attentions, recipes that files can hold, saving and loading."""

from foveate.models.files import LoadError, load, save
from foveate.models.recipe import Recipe, build, freeze, last_feature_map, normalisation, parameter_count
from foveate.models.registry import Entry, attaching, entry, names, register
from foveate.models.tiny import TinyCNN

__all__ = [
    "Entry",
    "LoadError",
    "Recipe",
    "TinyCNN",
    "attaching",
    "build",
    "entry",
    "freeze",
    "last_feature_map",
    "load",
    "names",
    "normalisation",
    "parameter_count",
    "register",
    "save",
]
