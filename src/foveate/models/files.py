"""A trained network as one safetensors file: weights, and in the header what it takes to build and feed the network."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from foveate.data.transforms import Preprocess
from foveate.extras import require
from foveate.files import writing
from foveate.models.recipe import Recipe, build

_FORMAT = "1"
PACKAGED = Path(__file__).with_name("weights")


class LoadError(ValueError):
    """A file is not a network that foveate saved."""


def save(
    model: nn.Module, recipe: Recipe, preprocess: Preprocess, path: str | Path, notes: dict[str, Any] | None = None
) -> None:
    """Write a network with all that `load` needs; an existing file is replaced whole or not at all."""
    header = {
        "foveate": _FORMAT,
        "recipe": json.dumps(recipe.to_dict()),
        "preprocess": json.dumps(preprocess.to_dict()),
        "notes": json.dumps(notes or {}),
    }
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with writing(path) as beside:
        beside.write_bytes(require("safetensors.torch").save(weights, header))


def load(path_or_name: str | Path) -> nn.Module:
    """A network ready to use, from a file that `foveate train` or `foveate compare` wrote, or by a packaged name.

    It is in evaluation mode, with its attention in place, and has `recipe`, `class_names`, `preprocess` (images to
    input) and `notes` as attributes. Nothing in the file is executed: it holds numbers and JSON, and names only
    registered attentions and timm backbones.

    >>> from foveate.data import Scenes
    >>> model = load("scenes-rectangular")
    >>> scene = Scenes(10)[3]
    >>> model.class_names[model(model.preprocess(scene.image)[None]).argmax()] == Scenes.classes[scene.label]
    True
    """
    path = PACKAGED / f"{path_or_name}.safetensors" if str(path_or_name) in packaged() else Path(path_or_name)
    if not path.is_file():
        names = ", ".join(packaged())
        raise LoadError(
            f"there is no file {str(path_or_name)!r}, and no packaged network of that name; there are: {names}"
        )
    safetensors = require("safetensors")
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise LoadError(f"{path.name} is not a safetensors file, or is cut short: {error}") from error
    if header.get("foveate") != _FORMAT:
        raise LoadError(f"{path.name} holds weights alone, not a network that foveate saved (format {_FORMAT})")
    try:
        recipe = _recipe(json.loads(header["recipe"]))
        preprocess = Preprocess.from_dict(json.loads(header["preprocess"]))
        model = build(recipe)
        model.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise LoadError(f"{path.name} does not describe a network that can be built: {error}") from error
    for name, value in {
        "recipe": recipe,
        "class_names": list(recipe.class_names),
        "preprocess": preprocess,
        "notes": json.loads(header.get("notes", "{}")),
    }.items():
        object.__setattr__(model, name, value)
    return model.eval()


def packaged() -> list[str]:
    """The names of the trained networks that come with the package.

    >>> "scenes-rectangular" in packaged()
    True
    """
    return sorted(path.stem for path in PACKAGED.glob("*.safetensors"))


def _recipe(values: dict[str, Any]) -> Recipe:
    unknown = set(values) - {field.name for field in fields(Recipe)}
    if unknown:
        raise ValueError(f"it names {', '.join(sorted(unknown))}, which this version of foveate does not know")
    return Recipe(**values)
