"""attach: put attentions into a model that is there already; detach: take them out again."""

from __future__ import annotations

import copy
import difflib
import fnmatch
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from foveate.gaze import COMPILED, Attached, attached

M = TypeVar("M", bound=nn.Module)
Passed = tuple[tuple[Any, ...], Any]  # what a layer was given, and what it returned
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)  # what runs whatever child it is given
CHILD = "foveate"  # the name under which an attention's parameters appear in the host's state dict


class AttachError(ValueError):
    """An attention cannot be put where it was asked for."""


def attach(
    model: M,
    where: str | Iterable[str],
    attention: type[nn.Module] | nn.Module,
    *,
    example: Tensor | None = None,
    **options: Any,
) -> M:
    """Put an attention behind layers of a model, in place, so that it sees and modulates what they return.

    A pooling attention, one with a true `pools`, takes the place of a layer that makes a vector of a feature map, as a
    network's global average pooling does: it gets what the layer is given.

    The names in the host's state dict stay as they were; those of the attention are added. A hook applies it, so that
    copying, saving, `torch.compile`, `torch.export` and DDP work on the model as before.

    Args:
        model: any model; it is changed and returned.
        where: names of layers as `model.named_modules()` gives them, or glob patterns over them ("layer[34]").
        attention: a class, built for each layer as `attention(channels, **options)`, or one ready instance.
        example: an input for the dry run that finds the channels; needed only where an image of zeros in the model's
            own input size, or one of the usual sizes, is not an input that it takes.
        options: passed to the class.

    >>> host = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> attach(host, "1", nn.Conv2d, out_channels=8, kernel_size=1)(torch.rand(1, 3, 9, 9)).shape
    torch.Size([1, 8, 7, 7])
    """
    _refuse_compiled(model)
    layers = _find(model, where)
    if isinstance(attention, nn.Module):
        if any(module is attention for module in model.modules()):
            raise AttachError("this attention is in the model already; pass its class for another one, or a copy")
        if options:
            raise AttachError(
                f"a ready attention takes no options, but got {', '.join(options)}; pass its class instead"
            )
        if len(layers) > 1:
            raise AttachError(
                f"one ready attention cannot be behind {len(layers)} layers at once; pass its class instead"
            )
    elif not (inspect.isclass(attention) and issubclass(attention, nn.Module)):
        raise AttachError(f"attention must be a module or its class, not {attention!r}")

    seen = _dry_run(model, layers, example)
    pools = getattr(attention, "pools", False)
    hooks = {}
    for name, features in {name: _features(name, *passed, pools) for name, passed in seen.items()}.items():
        if isinstance(attention, nn.Module):
            hooks[name] = Attached(attention)
        else:
            hooks[name] = Attached(attention(features.shape[1], **options))
        hooks[name].attention.to(features.device, features.dtype)
        _check_fit(hooks[name], name, features)
    for name, hook in hooks.items():
        hook.attention.train(layers[name].training)
        _home(layers[name]).add_module(CHILD, hook.attention)
        hook.handle = layers[name].register_forward_hook(hook)
        # torch.compile takes a graph again for a model of the same class, whatever hooks that one has; but it does look
        # whether a layer has a `forward` of its own, and so finds out that this is not the plain model
        vars(layers[name]).setdefault("forward", layers[name].forward)
    return model


def detach(model: M) -> M:
    """Take every attached attention out of a model, in place; it computes, bit for bit, what it did before.

    >>> host = attach(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), "1", nn.Identity)
    >>> list(detach(host).state_dict())
    ['0.weight', '0.bias']
    """
    _refuse_compiled(model)
    hooks = [hook for layer in model.modules() for hook in attached(layer)]
    attentions = [hook.attention for hook in hooks]
    for hook in hooks:
        hook.handle.remove()
    for layer in list(model.modules()):
        if layer._modules.get(CHILD) in attentions:
            delattr(layer, CHILD)
        if getattr(vars(layer).get("forward"), "__func__", None) is type(layer).forward:
            del layer.forward
    return model


def _refuse_compiled(model: nn.Module) -> None:
    if hasattr(model, COMPILED):
        raise AttachError("this model went through torch.compile: change the plain model, and compile it afterwards")


def _find(model: nn.Module, where: str | Iterable[str]) -> dict[str, nn.Module]:
    names = {name: layer for name, layer in model.named_modules() if name}
    found: dict[str, nn.Module] = {}
    for pattern in [where] if isinstance(where, str) else where:
        matches = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not matches:
            near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.4) or list(dict(model.named_children()))[-5:]
            raise AttachError(f"the model has no layer {pattern!r}; near names: {', '.join(near) or 'none'}")
        found.update((name, names[name]) for name in matches)
    if not found:
        raise AttachError("no layer was named, and none is known to be meant: pass a name or a glob as `where`")
    homes: dict[int, str] = {}
    for name, layer in found.items():
        home = _home(layer)
        if isinstance(home, CONTAINERS):
            raise AttachError(f"layer {name!r} holds no layers and so can keep no attention; name the one before it")
        if attached(layer) or CHILD in home._modules:
            raise AttachError(f"layer {name!r} has an attention already; call `detach(model)` first")
        if hasattr(home, CHILD):
            raise AttachError(
                f"layer {name!r} has an attribute {CHILD!r} of its own, so no attention can be kept there"
            )
        if id(home) in homes:
            raise AttachError(f"layers {homes[id(home)]!r} and {name!r} have one and the same output; name one of them")
        homes[id(home)] = name
    return found


def _home(layer: nn.Module) -> nn.Module:
    """The module that keeps a layer's attention: the layer, or its last child where it runs its children in turn."""
    while isinstance(layer, CONTAINERS) and (children := list(layer.children())):
        layer = children[-1]
    return layer


class _SeenAll(Exception):
    """Ends the dry run when the last layer has been seen."""


def _dry_run(model: nn.Module, layers: dict[str, nn.Module], example: Tensor | None) -> dict[str, Passed]:
    """What each layer is given and returns for the example, or for the first usual size of image the model takes."""
    seen: dict[str, Passed] = {}
    failure: Exception | None = None
    for image in [example] if example is not None else usual_images(model):
        handles = [
            layer.register_forward_hook(lambda _, *passed, name=name: _see(seen, name, passed, len(layers)))
            for name, layer in layers.items()
        ]
        try:
            with undisturbed(model):
                model(image)
        except _SeenAll:
            break
        except Exception as error:
            failure = failure or error
            seen.clear()
        finally:
            for handle in handles:
                handle.remove()
    missed = [name for name in layers if name not in seen]
    if missed and failure:
        hint = "pass `example=`, an input that the model takes"
        raise AttachError(f"the dry run that finds the channels failed ({failure}); {hint}") from failure
    if missed:
        raise AttachError(f"layer {missed[0]!r} did not run in a forward pass of the model")
    return {name: seen[name] for name in layers}


def _see(seen: dict[str, Passed], name: str, passed: Passed, expected: int) -> None:
    seen[name] = passed
    if len(seen) == expected:
        raise _SeenAll


def _features(name: str, taken: tuple[Any, ...], returned: Any, pools: bool) -> Tensor:
    """The feature map that an attention at a layer gets, or an error where there is none."""
    what = (taken[0] if taken else None) if pools else returned
    if not (isinstance(what, Tensor) and what.ndim == 4 and what.is_floating_point()):
        does = "is given" if pools else "returns"
        raise AttachError(f"layer {name!r} {does} {_shape(what)}, not a feature map of shape (B, C, H, W)")
    vector = tuple(what.shape[:2])
    if pools and not (isinstance(returned, Tensor) and tuple(returned.shape) in (vector, (*vector, 1, 1))):
        raise AttachError(
            f"layer {name!r} makes {_shape(returned)} of {_shape(what)}, so it is no pooling to take the place of; "
            "name the layer that makes one vector per image, often 'global_pool'"
        )
    return what


def _shape(what: Any) -> str:
    return str(tuple(what.shape)) if isinstance(what, Tensor) else type(what).__name__


def usual_images(model: nn.Module) -> Iterator[Tensor]:
    """Images of zeros in the model's own input size, where it says one, and then in the usual sizes."""
    first = next((p for p in model.parameters() if p.ndim == 4), None)
    channels = 3 if first is None else first.shape[1]
    config = getattr(model, "pretrained_cfg", None) or {}
    own = tuple(config.get("input_size") or ())
    for size in [own[1:], *((n, n) for n in (224, 64, 32, 28, 96, 128, 256, 299, 512))]:
        if size:
            zeros = torch.zeros(2, channels, *size)
            yield zeros if first is None else zeros.to(first.device, first.dtype)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation without gradients, after which training modes and random numbers are as they were."""
    training = {module: module.training for module in model.modules()}
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.no_grad(), torch.random.fork_rng(devices):
        model.eval()
        try:
            yield
        finally:
            for module, mode in training.items():
                module.training = mode


def _check_fit(hook: Attached, name: str, features: Tensor) -> None:
    """An attention built for other channels fails here, with names, rather than in the middle of a forward pass."""
    probe = copy.deepcopy(hook.attention).eval()
    try:
        with torch.no_grad():
            attended = probe(features)
    except RuntimeError as error:
        shape = tuple(features.shape[1:])
        where = "input" if hook.pools else "output"
        raise AttachError(f"the attention does not fit layer {name!r}, whose {where} is {shape}: {error}") from error
    if not isinstance(attended, Tensor):
        raise AttachError(
            f"an attention must return a tensor, but {type(hook.attention).__name__} returned {type(attended)}"
        )
    if hook.pools and attended.shape != features.shape[:2]:
        raise AttachError(
            f"a pooling attention must return {tuple(features.shape[:2])} here, one vector per image, "
            f"but {type(hook.attention).__name__} returned {tuple(attended.shape)}"
        )
