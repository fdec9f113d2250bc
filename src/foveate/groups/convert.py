"""convert: an ordinary convolutional network to its group-equivariant counterpart, layer by layer.

The counterpart is the same network, run by the host's own code: only its layers are others. The convolution that takes
the image lifts, those behind it work on features (B, C, |H|, H, W), and the first linear layer pools over poses before
it goes on. Every layer is exactly equivariant, strided ones at any size (equivariant, Appendix C).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.attach import undisturbed, usual_images
from foveate.groups.attentive import AttentionName, AttentiveGroupConv2d, AttentiveLiftConv2d
from foveate.groups.layers import (
    GroupAvgPool2d,
    GroupConv2d,
    GroupMaxPool2d,
    LiftConv2d,
    PoseBatchNorm,
    PosePool,
)
from foveate.groups.symmetries import Group

ELEMENTWISE = (  # layers that treat every number by itself, or whole vectors behind the features
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Identity, nn.Flatten, nn.Dropout),
)
TOLERANCE = 1e-4  # of the logits, relative to the largest


class ConvertError(ValueError):
    """A network has no counterpart on the group; the text names the layers that stand in the way."""


def convert(
    model: nn.Module,
    group: Group,
    width: Literal["parameters", "channels"] = "parameters",
    attention: AttentionName | None = None,
    poses: Literal["max", "mean"] = "max",
    example: Tensor | None = None,
) -> nn.Module:
    """The group-equivariant counterpart of a sequential or residual network, with weights of its own, drawn anew.

    Its logits are the same for an image moved by any element of the group, and its features (B, C, |H|, H, W) move with
    it. Convolutions, batch norms, poolings, activations, dropout, residual sums, flatten and linear layers are known; a
    strided layer becomes one of stride 1 and a subsampling that is exact at every size.

    Args:
        model: the network, which stays as it is.
        group: the symmetries.
        width: "parameters" for about as many parameters as the model has, with 1/√|H| of its channels; "channels" for
            as many channels, and |H| times the parameters.
        attention: make the convolutions attentive ones of this kind, see `AttentiveGroupConv2d`.
        poses: how poses are pooled before the first linear layer.
        example: images (B, C, H, W) for the run that shows what goes where; needed only where zeros of a usual size
            are not an input that the model takes.

    Returns:
        the counterpart, in training mode if the model is.

    >>> from foveate.groups import P4
    >>> pool = nn.AdaptiveAvgPool2d(1)
    >>> host = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), pool, nn.Flatten(), nn.Linear(8, 5))
    >>> net, x = convert(host, P4), torch.rand(1, 3, 32, 32)
    >>> torch.allclose(net(x), net(x.rot90(1, (2, 3))), atol=1e-5)
    True
    """
    image, seen = _dry_run(model, example)
    plan = _Plan(group, width, attention, poses, image.shape[1])
    made: dict[str, nn.Module] = {}
    problems: list[str] = []
    for name, passed in seen.items():
        try:
            replacement = plan.counterpart(passed)
        except ConvertError as error:
            problems.append(f"{name} ({type(passed.layer).__name__}): {error}")
            continue
        if replacement is not None:
            made[name] = replacement
    if problems:
        raise ConvertError(f"these layers have no counterpart on {group.name}: {'; '.join(problems)}")
    if not any(isinstance(layer, PoseHead) for layer in made.values()):
        raise ConvertError("no linear layer was found behind the features, before which poses could be pooled")
    counterpart = copy.deepcopy(model)
    for name, layer in made.items():
        counterpart.set_submodule(name, layer)
    first = next(model.parameters())
    counterpart.to(first.device, first.dtype).train(model.training)
    _check(counterpart, group, image)
    return counterpart


class Subsample(nn.Module):
    """Keep every stride-th position; where they do not end as they begin, the maximum or mean of as many as are left.

    After a layer of stride 1 this makes one of that stride which is equivariant at every size, with as many outputs as
    the strided layer: the very same at sizes where that is exact, and with pooling at the others (Appendix C).

    >>> Subsample(2)(torch.arange(5.0).expand(1, 1, 4, 1, 5))[0, 0, 0]
    tensor([[0., 2., 4.]])
    >>> Subsample(2)(torch.arange(6.0).expand(1, 1, 4, 1, 6))[0, 0, 0]
    tensor([[1., 3., 5.]])
    """

    def __init__(self, stride: int, mode: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.stride, self.mode = stride, mode

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features (B, C, |H|, ⌈H/stride⌉, ⌈W/stride⌉)."""
        window = [1 + (size - 1) % self.stride for size in x.shape[-2:]]
        pool = F.max_pool2d if self.mode == "max" else F.avg_pool2d
        planes: Tensor = pool(x.flatten(1, 2), window, self.stride)
        return planes.reshape(*x.shape[:3], *planes.shape[2:])

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return f"stride={self.stride}, {self.mode!r}"


class AdaptivePool(nn.Module):
    """Adaptive average or max pooling in space, of each pose by itself: its windows are symmetric at every size."""

    def __init__(self, size: int | tuple[int, int], mode: Literal["max", "mean"] = "mean", least: bool = False) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else size
        self.mode, self.least = mode, least

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, |H|, H, W) to features of the size; where `least`, larger ones stay as they are."""
        height, width = self.size
        if self.least:
            height, width = max(height, x.shape[-2]), max(width, x.shape[-1])
            if (height, width) == tuple(x.shape[-2:]):
                return x
        pool = F.adaptive_max_pool2d if self.mode == "max" else F.adaptive_avg_pool2d
        planes: Tensor = pool(x.flatten(1, 2), (height, width))
        return planes.reshape(*x.shape[:3], *planes.shape[2:])


class GlobalAverage(nn.Module):
    """The mean over the plane of each pose: features (B, C, |H|, H, W) to what is flattened next."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        """To (B, C·|H|) where the host's own pooling flattens, else (B, C, |H|, 1, 1)."""
        means = x.mean((-2, -1), keepdim=True)
        return means.flatten(1) if self.flat else means


class PoseHead(nn.Module):
    """The first linear layer: it pools over poses and goes on as the host's does.

    Where the host flattens more than one position, the linear layer is a group convolution over all of them, for only
    that is equivariant, and poses are pooled after it.
    """

    def __init__(
        self, group: Group, channels: int, size: tuple[int, int], out: int, bias: bool, poses: Literal["max", "mean"]
    ) -> None:
        super().__init__()
        self.shape = (channels, len(group), *size)
        self.pool = PosePool(poses)
        self.linear: nn.Module = (
            nn.Linear(channels, out, bias=bias)
            if size == (1, 1)
            else GroupConv2d(group, channels, out, size[0], bias=bias)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Flattened features (B, C·|H|·h·w) to vectors (B, out)."""
        features = x.reshape(len(x), *self.shape)
        if isinstance(self.linear, nn.Linear):
            logits: Tensor = self.linear(self.pool(features)[:, :, 0, 0])
            return logits
        pooled: Tensor = self.pool(self.linear(features))
        return pooled[:, :, 0, 0]


@dataclass(frozen=True)
class _Passed:
    """A layer and what went through it in the dry run."""

    layer: nn.Module
    taken: Tensor
    returned: Tensor
    image: bool  # what it took is the image itself

    @property
    def averages(self) -> bool:
        """Whether it is a global average, whatever its class."""
        if self.taken.ndim != 4 or any(True for _ in self.layer.parameters()):
            return False
        means = self.taken.mean((2, 3))
        shapes = (means.shape, (*means.shape, 1, 1))
        return self.returned.shape in shapes and torch.allclose(self.returned.flatten(1), means, atol=1e-6)


@dataclass
class _Plan:
    """How the layers of one network become those of another."""

    group: Group
    width: str
    attention: AttentionName | None
    poses: Literal["max", "mean"]
    colours: int
    features: Tensor | None = field(default=None, init=False)  # the last that the host had, (B, C, H, W)
    pooled: bool = field(default=False, init=False)  # whether poses have been

    def counterpart(self, passed: _Passed) -> nn.Module | None:
        """The layer in the place of the host's; None leaves that."""
        layer = passed.layer
        made = self._make(passed, layer)
        if passed.returned.ndim == 4:
            self.features = passed.returned
        return made

    def _make(self, passed: _Passed, layer: nn.Module) -> nn.Module | None:
        if isinstance(layer, nn.Linear):
            return self._linear(passed, layer)
        if self.pooled or isinstance(layer, ELEMENTWISE):
            return None
        if passed.image and not isinstance(layer, nn.Conv2d):
            raise ConvertError("it takes the image itself, which only a convolution can lift")
        if passed.averages:
            return GlobalAverage(flat=passed.returned.ndim == 2)
        for kind, make in self._makers().items():
            if isinstance(layer, kind):
                return make(passed)
        if type(layer).__name__ == "ConvMlp":  # timm's head of VGG, whose functional pooling takes planes alone
            return self._conv_mlp(passed)
        raise ConvertError("this kind of layer is not known")

    def _makers(self) -> dict[type[nn.Module], Callable[[_Passed], nn.Module]]:
        return {
            nn.Conv2d: self._convolution,
            nn.BatchNorm2d: self._norm,
            nn.MaxPool2d: self._max_pool,
            nn.AvgPool2d: self._average_pool,
            nn.AdaptiveAvgPool2d: lambda passed: AdaptivePool(_sizes(passed)),
            nn.AdaptiveMaxPool2d: lambda passed: AdaptivePool(_sizes(passed), "max"),
            nn.Dropout2d: lambda passed: nn.Dropout3d(passed.layer.p),  # type: ignore[arg-type]
        }

    def channels(self, count: int) -> int:
        """How many channels so many become."""
        return count if self.width == "channels" else max(1, round(count / math.sqrt(len(self.group))))

    def _convolution(self, passed: _Passed) -> nn.Module:
        layer: Any = passed.layer
        size, stride, dilation = (_one(getattr(layer, name)) for name in ("kernel_size", "stride", "dilation"))
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            raise ConvertError(f"padding {layer.padding!r} of mode {layer.padding_mode!r}; known are zeros, in numbers")
        colours = passed.image
        into, out = self.colours if colours else self.channels(layer.in_channels), self.channels(layer.out_channels)
        groups = into if layer.groups == layer.in_channels and layer.groups > 1 else layer.groups
        if into % groups or out % groups:
            raise ConvertError(f"{into} and {out} channels do not split into its {groups} groups; try width='channels'")
        own = 1 if any(self.group.flips) else stride
        options: dict[str, Any] = {
            "stride": own,
            "padding": _one(layer.padding),
            "dilation": dilation,
            "groups": groups,
        }
        options["bias"] = layer.bias is not None
        kinds = (AttentiveLiftConv2d, AttentiveGroupConv2d) if self.attention else (LiftConv2d, GroupConv2d)
        if self.attention:
            options |= {"attention": self.attention, "reduction": max(1, min(16, into // 2))}
        kind: Callable[..., nn.Module] = kinds[0 if colours else 1]
        convolution = kind(self.group, into, out, size, **options)
        return convolution if own == stride else nn.Sequential(convolution, Subsample(stride))

    def _norm(self, passed: _Passed) -> nn.Module:
        layer: Any = passed.layer
        norm = PoseBatchNorm(
            self.channels(layer.num_features), layer.eps, layer.momentum, layer.affine, layer.track_running_stats
        )
        after = [module for module in layer.children() if not isinstance(module, nn.Identity)]  # timm's BatchNormAct2d
        if any(not isinstance(module, ELEMENTWISE) for module in after):
            raise ConvertError("what it does after normalising is not known")
        return nn.Sequential(norm, *copy.deepcopy(after)) if after else norm

    def _max_pool(self, passed: _Passed) -> nn.Module:
        layer: Any = passed.layer
        if layer.ceil_mode or layer.return_indices:
            raise ConvertError("ceil_mode and return_indices are not known")
        size, stride, padding, dilation = (
            _one(getattr(layer, name)) for name in ("kernel_size", "stride", "padding", "dilation")
        )
        return self._strided(GroupMaxPool2d(self.group, size, 1, padding, dilation), stride, "max")

    def _average_pool(self, passed: _Passed) -> nn.Module:
        layer: Any = passed.layer
        padding = _one(layer.padding)
        if layer.ceil_mode or layer.divisor_override or (padding and not layer.count_include_pad):
            raise ConvertError("ceil_mode, divisor_override and averages that leave the padding out are not known")
        return self._strided(
            GroupAvgPool2d(self.group, _one(layer.kernel_size), 1, padding), _one(layer.stride), "mean"
        )

    def _strided(self, pool: nn.Module, stride: int, mode: Literal["max", "mean"]) -> nn.Module:
        return pool if stride == 1 else nn.Sequential(pool, Subsample(stride, mode))

    def _linear(self, passed: _Passed, layer: nn.Linear) -> nn.Module | None:
        if self.pooled:
            return None
        if self.features is None or passed.taken.ndim != 2:
            raise ConvertError("it does not take flattened features")
        channels, *size = self.features.shape[1:]
        if layer.in_features == channels:
            size = [1, 1]
        if layer.in_features != channels * math.prod(size) or size[0] != size[1]:
            raise ConvertError(f"its {layer.in_features} inputs are not {channels} channels of square maps, flattened")
        self.pooled = True
        bias = layer.bias is not None
        return PoseHead(self.group, self.channels(channels), (size[0], size[1]), layer.out_features, bias, self.poses)

    def _conv_mlp(self, passed: _Passed) -> nn.Module:
        layer: Any = passed.layer
        inner = [
            self._convolution(_Passed(part, passed.taken, passed.returned, image=False))
            if isinstance(part, nn.Conv2d)
            else copy.deepcopy(part)
            for part in layer.children()
        ]
        return nn.Sequential(AdaptivePool(layer.input_kernel_size, least=True), *inner)


def _one(value: int | tuple[int, ...]) -> int:
    """The number that both axes share."""
    values = {value} if isinstance(value, int) else set(value)
    if len(values) > 1:
        raise ConvertError(f"{value} differs between the axes, which a group may exchange")
    return values.pop()


def _sizes(passed: _Passed) -> tuple[int, int]:
    height, width = passed.returned.shape[-2:]
    return height, width


def _whole(module: nn.Module) -> bool:
    """Whether a layer is converted as one: it has no layers in it, or is of a kind that is known with them."""
    return (
        not any(True for _ in module.children())
        or isinstance(module, nn.BatchNorm2d)
        or (type(module).__name__ == "ConvMlp")
    )


def _layers(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers that are converted as one, by name."""
    if name and _whole(module):
        yield name, module
        return
    for child, inner in module.named_children():
        yield from _layers(inner, f"{name}.{child}" if name else child)


def _dry_run(model: nn.Module, example: Tensor | None) -> tuple[Tensor, dict[str, _Passed]]:
    """An image that the model takes, and its layers in the order in which they run."""
    failure: Exception | None = None
    usual = sorted(usual_images(model), key=lambda zeros: abs(zeros.shape[-1] - 64))  # small ones are quick
    for zeros in usual if example is None else [example]:
        seen: dict[str, _Passed] = {}
        image = torch.randn_like(zeros)
        try:
            with undisturbed(model), _hooked(model, image, seen):
                model(image)
            return image, seen
        except Exception as error:
            failure = failure or error
    hint = "pass `example=`, images that the model takes"
    raise ConvertError(f"the run that shows what goes where failed ({failure}); {hint}") from failure


@contextmanager
def _hooked(model: nn.Module, image: Tensor, seen: dict[str, _Passed]) -> Iterator[None]:
    def see(name: str, layer: nn.Module, taken: tuple[Any, ...], returned: Any) -> None:
        if len(taken) == 1 and isinstance(taken[0], Tensor) and isinstance(returned, Tensor):
            seen[name] = _Passed(layer, taken[0].detach(), returned.detach(), taken[0] is image)

    handles = [
        layer.register_forward_hook(lambda *passed, name=name: see(name, *passed)) for name, layer in _layers(model)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _check(counterpart: nn.Module, group: Group, image: Tensor) -> None:
    """Run it: what the host's own code does between its layers may not suit features, or tell poses apart."""
    at = ["the network"]
    handles = [
        layer.register_forward_pre_hook(lambda *_, name=name: at.__setitem__(0, name))
        for name, layer in counterpart.named_modules()
        if name
    ]
    try:
        with undisturbed(counterpart):
            logits = counterpart(torch.cat([group.transform(image[:1], h) for h in range(len(group))]))
    except Exception as error:
        raise ConvertError(
            f"the counterpart does not run; what the network itself does in or after {at[0]} does not suit features "
            f"(B, C, |H|, H, W): {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    worst = float((logits - logits[:1]).abs().max())
    if not worst <= TOLERANCE * max(1.0, float(logits.abs().max())):
        raise ConvertError(f"logits change by {worst:.1e} when the image is moved: the network tells poses apart")
