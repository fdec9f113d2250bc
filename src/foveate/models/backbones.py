"""Every network that a recipe may name: the project's own by `register_backbone`, and all of timm's."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from foveate.data.transforms import IMAGENET_MEAN, IMAGENET_STD
from foveate.extras import require
from foveate.groups import TRIVIAL
from foveate.groups.rotmnist import RotMNISTNet
from foveate.models.equivariant import allcnn, densenet, resnet44
from foveate.models.tiny import TinyCNN
from foveate.models.vggs import vgg, vgg_aib, vgg_att2, vgg_att3, vgg_dvib, vgg_gap, vgg_pan
from foveate.models.wide_resnets import wrn, wrn_abn, wrn_aib

CIFAR_MEAN, CIFAR_STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


@dataclass(frozen=True)
class Backbone:
    """A named network.

    Attributes:
        name: as in recipes and on the command line.
        build: makes it, with random weights, as `build(classes, **options)`.
        attend_after: the layer that returns its last feature map; None where the network's `feature_info` says it.
        classifier: the linear layer that gives the logits; None where the network's `pretrained_cfg` says it.
        mean, std: of each channel of the images it takes.
        rate: the learning rate that suits it by default.
    """

    name: str
    build: Callable[..., nn.Module]
    attend_after: str | None = None
    classifier: str | None = None
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    rate: float = 1e-4

    def last_feature_map(self, model: nn.Module) -> tuple[str, ...]:
        """The layer that returns the last feature map of a model of this kind; none where nothing says which it is."""
        info = getattr(model, "feature_info", None)
        name = self.attend_after or (info[-1]["module"] if info else None)
        return (name,) if name else ()

    def pooling(self, model: nn.Module) -> tuple[str, ...]:
        """The layer of a model of this kind that makes one vector of its last feature map; none where it has none."""
        names = [name for name, _ in model.named_modules() if name.rpartition(".")[2] == "global_pool"]
        return tuple(names[-1:])

    def head(self, model: nn.Module) -> str:
        """The name of the linear layer that gives the logits of a model of this kind."""
        if self.classifier is not None:
            return self.classifier
        head = getattr(model, "pretrained_cfg", {}).get("classifier")
        if not isinstance(head, str):
            what = f"has {len(head)} classifiers" if head else "does not say which layer is its classifier"
            raise ValueError(f"{self.name} {what}; foveate trains networks with one")
        return head


_BACKBONES: dict[str, Backbone] = {}


def register_backbone(backbone: Backbone) -> Backbone:
    """Give a network of the project its name; a name is given once."""
    if backbone.name in _BACKBONES:
        raise ValueError(f"a backbone named {backbone.name!r} is registered already")
    _BACKBONES[backbone.name] = backbone
    return backbone


def backbones() -> list[str]:
    """The names of the project's own networks.

    >>> "tiny" in backbones()
    True
    """
    return list(_BACKBONES)


def backbone(name: str) -> Backbone:
    """The network of that name, the project's own or timm's; an unknown name says the near ones.

    >>> backbone("tiny").attend_after
    'stages.3'
    """
    if name in _BACKBONES:
        return _BACKBONES[name]
    timm = require("timm")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, [*_BACKBONES, *timm.list_models()], n=4)
        raise ValueError(f"no backbone is named {name!r}" + (f"; near names: {', '.join(near)}" if near else ""))
    config = timm.get_pretrained_cfg(name)
    mean, std = (tuple(config.mean), tuple(config.std)) if config else (IMAGENET_MEAN, IMAGENET_STD)
    return Backbone(name, partial(_timm, name), mean=mean, std=std)


def load_weights(model: nn.Module, kind: Backbone, path: Path) -> None:
    """Load a backbone's weights from a safetensors file; only a classifier of another shape may be left out."""
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    weights = require("safetensors.torch").load_file(path)
    own = model.state_dict()
    head = kind.head(model)
    for name in [name for name in weights if name.startswith(f"{head}.")]:
        if name in own and weights[name].shape != own[name].shape:
            del weights[name]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    wrong = [name for name in missing if not name.startswith(f"{head}.")] + list(unexpected)
    if wrong:
        raise ValueError(f"{path.name} does not fit the backbone, for example at {', '.join(wrong[:3])}")


def _timm(name: str, classes: int, **options: Any) -> nn.Module:
    model: nn.Module = require("timm").create_model(name, num_classes=classes, **options)
    return model


def _with_classes(make: Callable[..., nn.Module], classes: int, **options: Any) -> nn.Module:
    return make(classes=classes, **options)


register_backbone(Backbone("tiny", TinyCNN, attend_after="stages.3", classifier="classifier", rate=2e-3))

# the networks of "Information Bottleneck Approach to Spatial Attention Learning", with its Q for each backbone
_BOTTLENECK: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "vgg": (vgg, "classifier"),
    "vgg_gap": (vgg_gap, "classifier.look.classifier"),
    "vgg_pan": (vgg_pan, "classifier"),
    "vgg_dvib": (vgg_dvib, "head.decode.2"),
    "vgg_att2": (vgg_att2, "classifier"),
    "vgg_att3": (vgg_att3, "classifier"),
    "vgg_aib": (vgg_aib, "head.decode.2"),
    "vgg_aib_qt": (partial(vgg_aib, anchors=20), "head.decode.2"),
    "wrn": (wrn, "classifier"),
    "wrn_abn": (wrn_abn, "classifier"),
    "wrn_aib": (wrn_aib, "head.decode.1"),
    "wrn_aib_qt": (partial(wrn_aib, anchors=50), "head.decode.1"),
}
for _name, (_build, _classifier) in _BOTTLENECK.items():
    register_backbone(Backbone(_name, _build, "features", _classifier, CIFAR_MEAN, CIFAR_STD, rate=1e-3))

# the networks of "Attentive Group Equivariant Convolutional Networks"; rotated MNIST is grey
_GREY = ((0.1318,), (0.3029,))  # mean and deviation of the training part of `foveate.data.RotMNIST`
_COLOURS = (IMAGENET_MEAN, IMAGENET_STD)
_EQUIVARIANT: dict[str, tuple[Callable[..., nn.Module], str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "p4cnn": (RotMNISTNet, "c7", _GREY),
    "z2cnn": (partial(RotMNISTNet, TRIVIAL, width=20), "c7", _GREY),
    "allcnn": (allcnn, "stages.8", _COLOURS),
    "resnet44": (resnet44, "classifier", _COLOURS),
    "densenet": (densenet, "classifier", _COLOURS),
}
for _name, (_build, _classifier, (_mean, _std)) in _EQUIVARIANT.items():
    register_backbone(Backbone(_name, partial(_with_classes, _build), None, _classifier, _mean, _std, rate=1e-3))
