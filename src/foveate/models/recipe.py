"""Recipe: what a network is made of, in words that a file can hold; build: the network itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from foveate.models.backbones import Backbone, backbone, load_weights
from foveate.models.registry import entry


@dataclass(frozen=True)
class Recipe:
    """What a network is made of.

    Attributes:
        backbone: the name of one of the project's own networks, see `foveate.models.backbones()`, or of any timm model.
        class_names: one for each logit.
        attention: a registered name, see `foveate.models.names()`.
        where: layers to attend after; empty means the backbone's last feature map, or for a pooling its global pooling.
        options: options of the attention.
        hidden: width of a hidden layer before the logits, 0 for none (rectangular App. G: 512).
        backbone_options: options of the backbone.
    """

    backbone: str
    class_names: Sequence[str]
    attention: str = "none"
    where: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    hidden: int = 0
    backbone_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("class_names", "where"):  # lists and tuples of the same words are the same recipe
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def title(self) -> str:
        """The attention's name; of a network that has none, or its own, what says which network it is.

        >>> Recipe("tiny", ["a"], "cbam").title, Recipe("allcnn", ["a"], backbone_options={"group": "p4"}).title
        ('cbam', 'allcnn p4')
        """
        if self.attention != "none":
            return self.attention
        return " ".join([self.backbone, *(value for value in self.backbone_options.values() if isinstance(value, str))])

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
    kind, attention = backbone(recipe.backbone), entry(recipe.attention)
    if weights is not None and attention.anew:
        raise ValueError(f"{attention.name} makes the layers of {kind.name} anew, so it cannot start from weights")
    pretrained = {"pretrained": True} if weights == "pretrained" else {}
    model = kind.build(len(recipe.class_names), **recipe.backbone_options, **pretrained)
    if weights not in (None, "pretrained"):
        load_weights(model, kind, Path(weights))
    if recipe.hidden:
        _widen_head(model, kind, recipe.hidden)
    where = tuple(recipe.where) or (kind.pooling if attention.pools else kind.last_feature_map)(model)
    return attention.put(model, where, recipe.options)


def _widen_head(model: nn.Module, kind: Backbone, hidden: int) -> None:
    name = kind.head(model)
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
