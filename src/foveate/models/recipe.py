"""Recipe: what a network is made of, in words that a file can hold; build: the network itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from foveate.data.transforms import IMAGENET_MEAN, IMAGENET_STD
from foveate.extras import require
from foveate.models.registry import entry
from foveate.models.tiny import TinyCNN


@dataclass(frozen=True)
class Recipe:
    """What a network is made of.

    Attributes:
        backbone: "tiny", or the name of any timm model.
        class_names: one for each logit.
        attention: a registered name, see `foveate.models.names()`.
        where: layers to attend after; empty means the backbone's last feature map.
        options: options of the attention.
        hidden: width of a hidden layer before the logits, 0 for none (rectangular App. G: 512).
    """

    backbone: str
    class_names: Sequence[str]
    attention: str = "none"
    where: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    hidden: int = 0

    def __post_init__(self) -> None:
        for name in ("class_names", "where"):  # lists and tuples of the same words are the same recipe
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """In JSON's terms."""
        return asdict(self)


def build(recipe: Recipe, weights: str | Path | None = None) -> nn.Module:
    """The network of a recipe.

    Args:
        recipe: what it is made of.
        weights: of the backbone: None for random ones, "pretrained" for timm's own (downloaded), or the path of a
            safetensors file with the backbone's names; a classifier for other classes in it is left out.

    >>> build(Recipe("tiny", ["cat", "dog"], "rectangular"))(torch.rand(1, 3, 64, 64)).shape
    torch.Size([1, 2])
    """
    model = _backbone(recipe.backbone, len(recipe.class_names), pretrained=weights == "pretrained")
    if weights not in (None, "pretrained"):
        load_backbone(model, Path(weights))
    if recipe.hidden:
        _widen_head(model, recipe.hidden)
    where = tuple(recipe.where) or (last_feature_map(model),)
    return entry(recipe.attention).put(model, where, recipe.options)


def normalisation(backbone: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the channels that a backbone was, or would be, trained with.

    >>> normalisation("tiny")
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    """
    if backbone == "tiny":
        return IMAGENET_MEAN, IMAGENET_STD
    config = _checked(backbone).get_pretrained_cfg(backbone)
    return (tuple(config.mean), tuple(config.std)) if config else (IMAGENET_MEAN, IMAGENET_STD)


def last_feature_map(model: nn.Module) -> str:
    """The name of the layer that returns a backbone's last feature map."""
    if isinstance(model, TinyCNN):
        return model.attend_after
    info = getattr(model, "feature_info", None)
    if not info:
        raise ValueError(
            f"{type(model).__name__} does not say which layer its last feature map comes from; pass `where`"
        )
    name: str = info[-1]["module"]
    return name


def load_backbone(model: nn.Module, path: Path) -> None:
    """Load a backbone's weights from a safetensors file; only a classifier of another shape may be left out."""
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    weights = require("safetensors.torch").load_file(path)
    own = model.state_dict()
    head = _head_name(model)
    for name in [name for name in weights if name.startswith(f"{head}.")]:
        if name in own and weights[name].shape != own[name].shape:
            del weights[name]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    wrong = [name for name in missing if not name.startswith(f"{head}.")] + list(unexpected)
    if wrong:
        raise ValueError(f"{path.name} does not fit the backbone, for example at {', '.join(wrong[:3])}")


def _backbone(name: str, classes: int, pretrained: bool) -> nn.Module:
    if name == "tiny":
        return TinyCNN(classes)
    timm = _checked(name)
    model: nn.Module = timm.create_model(name, num_classes=classes, pretrained=pretrained)
    return model


def _checked(name: str) -> Any:
    """Timm, when it has a model of that name."""
    timm = require("timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, ["tiny", *timm.list_models()], n=4)
        raise ValueError(f"no backbone is named {name!r}" + (f"; near names: {', '.join(near)}" if near else ""))
    return timm


def _head_name(model: nn.Module) -> str:
    """The name of the linear layer that gives the logits."""
    config: Any = {"classifier": "classifier"} if isinstance(model, TinyCNN) else model.pretrained_cfg
    head = config["classifier"]
    if not isinstance(head, str):
        raise ValueError(f"{type(model).__name__} has {len(head)} classifiers; foveate trains networks with one")
    return head


def _widen_head(model: nn.Module, hidden: int) -> None:
    name = _head_name(model)
    old = model.get_submodule(name)
    if not isinstance(old, nn.Linear):
        raise ValueError(f"the classifier {name!r} is not linear, so it takes no hidden layer")
    head = nn.Sequential(nn.Linear(old.in_features, hidden), nn.ReLU(), nn.Linear(hidden, old.out_features))
    model.set_submodule(name, head)


def parameter_count(model: nn.Module) -> int:
    """How many numbers a network learns.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters())


def freeze(model: nn.Module, layers: Sequence[str]) -> list[nn.Module]:
    """Stop named layers from learning; returned so that they can be kept in evaluation mode, batch norms included."""
    frozen = []
    for name in layers:
        try:
            layer = model.get_submodule(name)
        except AttributeError:
            near = difflib.get_close_matches(name, dict(model.named_modules()), n=3)
            raise ValueError(
                f"cannot freeze {name!r}: no such layer; near names: {', '.join(near) or 'none'}"
            ) from None
        layer.requires_grad_(False)
        frozen.append(layer)
    return frozen
