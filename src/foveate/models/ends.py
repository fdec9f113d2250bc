"""Attentions that come with an end of their own: they take a network's linear classifier into account, or its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from foveate.attach import attach
from foveate.attention import BottleneckAttention, BottleneckHead
from foveate.attention.activation import ActivationPool
from foveate.attention.branch import BranchAttention

LATENT = 256  # K, which did best in the bottleneck paper's Fig. 4(b)
OF_THE_HEAD = ("latent", "beta")


def put_bottleneck(model: nn.Module, where: Sequence[str], options: Mapping[str, Any], **defaults: Any) -> nn.Module:
    """`BottleneckAttention` behind layers and a `BottleneckHead` in the place of the classifier: bottleneck (10) whole.

    Options are those of the attention, and `latent` and `beta` of the head.

    >>> from foveate.models import TinyCNN
    >>> model = put_bottleneck(TinyCNN(5), ["stages.3"], {"latent": 16}, anchors=20)
    >>> type(model.classifier).__name__
    'BottleneckHead'
    """
    ours = {**defaults, **options}
    put_head(model, where, {name: ours.pop(name) for name in OF_THE_HEAD if name in ours})
    return attach(model, where, BottleneckAttention, **ours)


def put_head(model: nn.Module, where: Sequence[str], options: Mapping[str, Any]) -> nn.Module:
    """A `BottleneckHead` in the place of the classifier, and no attention: the bottleneck of Alemi et al. 2017."""
    name, linear = linear_classifier(model)
    head = BottleneckHead(linear.in_features, classes=linear.out_features, **{"latent": LATENT, **options})
    model.set_submodule(name, head.to(linear.weight.device, linear.weight.dtype))
    return model


def put_branch(model: nn.Module, where: Sequence[str], options: Mapping[str, Any]) -> nn.Module:
    """An attention branch behind layers, whose side classifier has the classes of the network's own."""
    return attach(model, where, BranchAttention, classes=linear_classifier(model)[1].out_features, **options)


def put_activation(model: nn.Module, where: Sequence[str], options: Mapping[str, Any]) -> nn.Module:
    """Class activation maps (Zhou et al. 2016) of the network as it is, in the place of its global average."""
    return attach(model, where, ActivationPool, classifier=linear_classifier(model)[1], **options)


def linear_classifier(model: nn.Module) -> tuple[str, nn.Linear]:
    """The linear layer that gives a network's logits, by what the network says of itself, else the last one it has.

    >>> from foveate.models import TinyCNN
    >>> linear_classifier(TinyCNN(5))
    ('classifier', Linear(in_features=96, out_features=5, bias=True))
    """
    said = (getattr(model, "pretrained_cfg", None) or {}).get("classifier")
    prefix = said if isinstance(said, str) else ""
    linears = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.startswith(prefix)]
    if not linears:
        raise ValueError(
            f"{type(model).__name__} has no linear classifier, so no bottleneck or branch can take its classes; "
            "put a BottleneckHead where its logits are made"
        )
    return linears[-1]
