"""Gaze: where a network looked; Look: the module that decides it; watch: see the gazes of a forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.geometry import warp

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

G = TypeVar("G", bound="Gaze")
COMPILED = "_orig_mod"  # the child under which torch.compile keeps the module that it wraps


@dataclass(eq=False)
class Gaze:
    """Where an attention looks, for a batch of images: the map and, on subclasses, the few numbers that define it.

    Attributes:
        map: attention values in [0, 1], shape (B, 1, H, W).
    """

    map: Tensor

    @property
    def penalty(self) -> Tensor:
        """A scalar to add to the loss; zero unless the mechanism has an objective of its own."""
        return self.map.new_zeros(())

    def render(self, size: tuple[int, int]) -> Tensor:
        """The map (B, 1, *size) at another resolution."""
        rendered: Tensor = F.interpolate(self.map.float(), size, mode="bilinear", align_corners=False)
        return rendered

    def move(self, matrix: Tensor) -> Self:
        """The gaze that an equivariant attention has on images moved by `matrix` (B, 2, 3), see `foveate.geometry`."""
        return replace(self, map=warp(self.map, matrix))

    def distance(self, other: Self) -> Tensor:
        """How far another gaze is: (B,) mean squared differences of the maps, unless a subclass knows better."""
        return (self.map - other.map).float().square().flatten(1).mean(1)

    def apply(self, change: Any) -> Self:
        """A gaze of the same kind with `change` applied to each of its tensors: `gaze.apply(lambda t: t[:4])`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: change(v) for k, v in values.items() if isinstance(v, Tensor)})

    @staticmethod
    def join(gazes: Sequence[G]) -> G:
        """The gazes of several batches as those of one.

        >>> len(Gaze.join([Gaze(torch.ones(2, 1, 3, 3)), Gaze(torch.ones(1, 1, 3, 3))]))
        3
        """
        first = gazes[0]
        tensors = [f.name for f in fields(first) if isinstance(getattr(first, f.name), Tensor)]
        return replace(first, **{name: torch.cat([getattr(gaze, name) for gaze in gazes]) for name in tensors})

    def detach(self) -> Self:
        """The same gaze without its gradients, on the CPU."""
        return self.apply(lambda t: t.detach().cpu())

    def __len__(self) -> int:
        return self.map.shape[0]


class Priced(Protocol):
    """What has a price: a scalar that is added to the loss. Gazes do, and what other watched modules return."""

    @property
    def penalty(self) -> Tensor:
        """A scalar to add to the loss."""
        ...


class Watched(nn.Module, ABC):
    """A module whose output `watch` sees, so that its price reaches the loss though no module keeps state."""

    @abstractmethod
    def forward(self, x: Tensor) -> Priced:
        """Features in, something with a penalty out."""


class Look(Watched):
    """The half of an attention that decides where to look: features in, a `Gaze` out. `watch` sees each of them."""

    @abstractmethod
    def forward(self, x: Tensor) -> Gaze:
        """Decide where to look in features x of shape (B, C, H, W)."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Gaze:
            """Call `forward` and the hooks."""
            ...


class Gazes(dict[str, Gaze]):
    """Gazes by the name of the layer that they belong to; a missing name says which ones there are.

    `others` holds what watched modules that are no looks returned: no maps, but penalties.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[str, Priced] = {}

    @property
    def penalty(self) -> Tensor:
        """What everything that was seen asks to add to the loss, a scalar."""
        return sum((seen.penalty for seen in (*self.values(), *self.others.values())), torch.zeros(()))

    @property
    def priced(self) -> bool:
        """Whether anything that was seen may ask to add to the loss; where nothing does, training need not watch."""
        return bool(self.others) or any(type(gaze).penalty is not Gaze.penalty for gaze in self.values())

    def __missing__(self, name: str) -> Gaze:
        there = ", ".join(map(repr, self)) or "none: has the model run inside the `with` block?"
        raise KeyError(f"no gaze at {name!r}; there are: {there}")


@contextmanager
def watch(model: nn.Module) -> Iterator[Gazes]:
    """Collect the gazes of the forward passes inside the block, by the name of the layer they belong to.

    Gradients flow through what it hands out. A layer that runs twice leaves the gaze of its last run. A model that
    went through `torch.compile` runs eagerly inside the block, for a compiled graph has no place to look into.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), RectangularAttention(8))   # doctest: +SKIP
    >>> with watch(model) as gazes:                                          # doctest: +SKIP
    ...     model(torch.rand(2, 3, 32, 32))
    >>> gazes["1"].center.shape                                              # doctest: +SKIP
    torch.Size([2, 2])
    """
    gazes = Gazes()
    handles: list[RemovableHandle] = []
    compiled = any(hasattr(module, COMPILED) or module._compiled_call_impl for module in model.modules())
    try:
        for name, module in watched(model).items():
            handles.append(module.register_forward_hook(partial(_keep, gazes, name)))
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield gazes
    finally:
        for handle in handles:
            handle.remove()


def looks(model: nn.Module) -> dict[str, Look]:
    """Every look of a model by the name of the layer it belongs to: the host's where it was attached, else its own."""
    return {name: module for name, module in watched(model).items() if isinstance(module, Look)}


def watched(model: nn.Module) -> dict[str, Watched]:
    """Every module of a model that `watch` sees, by the name of the layer it belongs to."""
    while hasattr(model, COMPILED) or isinstance(model, nn.parallel.DistributedDataParallel):
        model = getattr(model, COMPILED, None) or cast(nn.Module, model.module)
    layers = dict(model.named_modules())
    hosts = {id(hook.attention): name for name, layer in layers.items() for hook in attached(layer)}
    found: dict[str, Watched] = {}
    for name, module in layers.items():
        if isinstance(module, Watched):
            owner = name.removesuffix("look").removesuffix(".")
            host = hosts.get(id(layers[owner]), owner)
            found[".".join(part for part in host.split(".") if part != COMPILED)] = module
    return found


class Attached:
    """The forward hook that applies an attention at a layer of a host; `foveate.attach` hangs it up.

    A modulating attention gets what the layer returned. A pooling one, that has a true `pools`, gets what the layer
    was given, and its vector for each image takes the place, and the shape, of what the layer made of it.
    """

    handle: RemovableHandle  # it travels with copies and pickles, so that no later hook takes this one's number

    def __init__(self, attention: nn.Module) -> None:
        self.attention = attention

    @property
    def pools(self) -> bool:
        """Whether the attention takes the place of a layer rather than following it."""
        return bool(getattr(self.attention, "pools", False))

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        """What goes on in the host instead of the layer's output."""
        if not self.pools:
            attended: Tensor = self.attention(output)
            return attended
        pooled: Tensor = self.attention(inputs[0])
        return pooled.reshape(pooled.shape + (1,) * (output.ndim - pooled.ndim))


def attached(layer: nn.Module) -> list[Attached]:
    """The attentions that hang on a layer: none or one."""
    return [hook for hook in layer._forward_hooks.values() if isinstance(hook, Attached)]


def _keep(gazes: Gazes, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    seen = gazes if isinstance(output, Gaze) else gazes.others
    seen[name] = output
