"""Does what a network sees turn with the image? One image, moved by every element of a group, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.gaze import Gaze, watch
from foveate.groups import P4, Group, GroupConv2d, LiftConv2d, PoseGaze
from foveate.groups.layers import Strided

Size = tuple[int, int]


@dataclass(frozen=True)
class Sight:
    """What a network saw of some images, and how strong its layers responded.

    Attributes:
        gazes: by the layer. Of a network that has none, how strong its convolutions respond.
        strengths: how strong layers with poses respond in each, by the names of `gazes`.
        reach: the part of the image's sides that the positions of a gaze lie in: less than 1 without padding.
        logits: (B, classes).
    """

    gazes: Mapping[str, Gaze]
    strengths: Mapping[str, PoseGaze]
    reach: Mapping[str, float]
    logits: Tensor

    def placed(self, name: str, side: int) -> Gaze:
        """A gaze as one of the whole image, `side` pixels wide: a map that reaches less of it has zeros around.

        >>> sight = Sight({"a": Gaze(torch.ones(1, 1, 3, 3))}, {}, {"a": 0.5}, torch.zeros(1, 2))
        >>> sight.placed("a", side=4).map[0, 0, 3]  # twice as fine as the image
        tensor([0., 0., 1., 1., 1., 1., 0., 0.])
        """
        gaze, half = self.gazes[name], round(side * self.reach[name])
        if self.reach[name] >= 1 or type(gaze) not in (Gaze, PoseGaze):  # one with numbers knows where it is
            return gaze
        return Gaze(F.pad(gaze.render((2 * half, 2 * half)), (side - half,) * 4))

    @classmethod
    def of(cls, model: nn.Module, images: Tensor) -> Self:
        """The sight of a network in evaluation mode on images (B, C, H, W) as it takes them.

        >>> from foveate.groups import p4cnn
        >>> sight = Sight.of(p4cnn("input").eval(), torch.rand(2, 1, 28, 28))
        >>> sight.strengths["c3"].poses.shape, round(28 * sight.reach["c3"])  # its input covers 24 of the 28 pixels
        (torch.Size([2, 4, 10, 10]), 24)
        """
        with torch.no_grad(), watch(model) as gazes, _noting(model) as notes:
            logits = model(images).float().cpu()
        responses = {name: _strength(layer, output) for name, (layer, output) in notes.responses.items()}
        seen = {name: gaze.detach() for name, gaze in gazes.items()} or responses
        return cls(
            seen,
            {name: gaze for name, gaze in responses.items() if name in seen and isinstance(gaze, PoseGaze)},
            {name: notes.reach(cast(Size, tuple(gaze.map.shape[-2:]))) for name, gaze in seen.items()},
            logits,
        )


@dataclass(frozen=True)
class Turned:
    """What a network saw of an image moved by every element of a group, the identity first.

    Attributes:
        group: by whose |G| elements the image was moved.
        sight: of the |G| images.
    """

    group: Group
    sight: Sight

    def expected(self, name: str) -> Gaze:
        """The gaze of the image as it is, moved as an equivariant one moves: what the gazes should be."""
        first = self.sight.gazes[name].apply(lambda t: t[:1])
        if not self._with_poses(first):
            return Gaze(torch.cat([self.group.move(first.map, h) for h in range(len(self.group))]))
        small = replace(cast(PoseGaze, first), attention=None)
        return Gaze.join([small.turn(small.group.elements.index(element)) for element in self.group.elements])

    def differences(self, name: str) -> Tensor:
        """How far a map is from the expected one at each position, (|G|, H', W'), in parts of what the map spans."""
        return _off(self.sight.gazes[name].map, self.expected(name).map)[:, 0]

    def errors(self, name: str) -> Tensor:
        """How far a gaze is from the expected one, its poses included, (|G|,): the largest of the differences."""
        seen, expected = self.sight.gazes[name], self.expected(name)
        if self._with_poses(seen):
            return _off(cast(PoseGaze, seen).poses, cast(PoseGaze, expected).poses).flatten(1).amax(1)
        return _off(seen.map, expected.map).flatten(1).amax(1)

    def logit_errors(self) -> Tensor:
        """How far logits are from those of the image as it is, (|G|,), in parts of what these span."""
        logits = self.sight.logits
        return _off(logits, logits[:1].expand_as(logits)).amax(1)

    def _with_poses(self, gaze: Gaze) -> bool:
        """Whether a gaze knows where its poses go under every element."""
        return isinstance(gaze, PoseGaze) and set(self.group.elements) <= set(gaze.group.elements)


def turn(model: nn.Module, image: Tensor, group: Group | None = None) -> Turned:
    """Run a network in evaluation mode on an image (1, C, H, H), as it takes them, moved by every element of a group.

    Args:
        model: any network from images to logits; a gaze without poses has a map that turns or fails to.
        image: a square, for some elements make columns of rows.
        group: None takes the model's own, or P4 where it has none.

    >>> from foveate.groups import p4cnn
    >>> turned = turn(p4cnn("input").eval(), torch.rand(1, 1, 28, 28))
    >>> turned.errors("c1").shape, bool(turned.errors("c1").max() < 1e-4)
    (torch.Size([4]), True)
    """
    if image.ndim != 4 or image.shape[0] != 1 or image.shape[-1] != image.shape[-2]:
        raise ValueError(f"one square image (1, C, H, H) is turned, not {tuple(image.shape)}")
    group = group or group_of(model) or P4
    return Turned(group, Sight.of(model, torch.cat([group.move(image, h) for h in range(len(group))])))


def group_of(model: nn.Module) -> Group | None:
    """The largest group of a network's layers; None where no layer has one that moves anything."""
    owned = (getattr(module, "group", None) for module in model.modules())
    groups = [group for group in owned if isinstance(group, Group) and len(group) > 1]
    return max(groups, key=len, default=None)


def inexact_strides(model: nn.Module, channels: int, size: int) -> list[str]:
    """The strided layers that break equivariance for images of this size (equivariant, Appendix C)."""
    first = next(model.parameters())
    with torch.no_grad(), _noting(model) as notes:
        model(torch.zeros(1, channels, size, size, device=first.device, dtype=first.dtype))
    return notes.inexact


def exact_size(model: nn.Module, channels: int, size: int) -> int | None:
    """The next larger size of images at which no strided layer breaks equivariance; None where none is near.

    >>> from foveate.groups import P4, GroupMaxPool2d
    >>> net = nn.Sequential(LiftConv2d(P4, 3, 2, kernel_size=3, stride=2, padding=1), GroupMaxPool2d(P4, 3, stride=2))
    >>> exact_size(net, channels=3, size=32)
    33
    """
    near = range(size + 1, size + 33)
    return next((side for side in near if not inexact_strides(model, channels, side)), None)


def _off(seen: Tensor, expected: Tensor) -> Tensor:
    """Differences in parts of what the first of several tensors spans; where it hardly varies, of a bit of its size."""
    first = expected[0].float()
    span = (first.max() - first.min()).clamp_min(1e-3 * first.abs().max()).clamp_min(1e-12)
    return (seen.float() - expected.float()).abs() / span


@dataclass
class _Notes:
    """What hooks note down in a run.

    Attributes:
        responses: what convolutions returned.
        inexact: strides that break equivariance.
        steps: how many pixels of the image lie between neighbouring positions, by the size of the map.
        side: of the image.
    """

    responses: dict[str, tuple[nn.Module, Tensor]] = field(default_factory=dict)
    inexact: list[str] = field(default_factory=list)
    steps: dict[Size, int] = field(default_factory=dict)
    side: int = 0

    def note(self, name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """A forward hook of a layer that slides a window."""
        if not (inputs and all(isinstance(x, Tensor) and x.ndim in (4, 5) for x in (inputs[0], output))):
            return
        before, after = (cast(Size, tuple(x.shape[-2:])) for x in (inputs[0], output))
        if not self.steps:
            self.steps[before], self.side = 1, before[0]
        stride = cast("int | tuple[int, ...]", layer.stride)
        stride = stride[0] if isinstance(stride, tuple) else stride
        self.steps.setdefault(after, self.steps.get(before, max(1, self.side // before[0])) * stride)
        if isinstance(layer, Strided) and stride > 1 and any(layer.group.flips) and not layer.is_exact(before[0]):
            self.inexact.append(f"{name} at size {before[0]}")
        if isinstance(layer, nn.Conv2d | LiftConv2d | GroupConv2d):
            self.responses[name] = (layer, output.detach())

    def reach(self, size: Size) -> float:
        """The part of the image's sides that a map of this size lies in."""
        return min(1.0, size[0] * self.steps[size] / self.side) if size in self.steps else 1.0


@contextmanager
def _noting(model: nn.Module) -> Iterator[_Notes]:
    notes = _Notes()
    sliding = ((name, layer) for name, layer in model.named_modules() if hasattr(layer, "stride"))
    handles = [layer.register_forward_hook(partial(notes.note, name)) for name, layer in sliding]
    try:
        yield notes
    finally:
        for handle in handles:
            handle.remove()


def _strength(layer: nn.Module, output: Tensor) -> Gaze:
    """How strong a layer responds, at most 1: the positive part, which a ReLU lets through, the mean over channels."""
    strength = output.float().relu().mean(1).cpu()
    strength = strength / strength.max().clamp_min(1e-12)
    return PoseGaze.of(strength, cast(Strided, layer).group) if strength.ndim == 4 else Gaze(strength[:, None])
