"""Several draws through one network: the maps and codes of an information bottleneck, and what they agree on.

Lai et al., "Information Bottleneck Approach to Spatial Attention Learning": 4 maps and 12 codes for each. What comes
before the maps runs once, what comes before the codes once for each map, and only the decoder for every pair.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from foveate.attention.bottleneck import BottleneckAttention, BottleneckGaze, BottleneckLook
from foveate.attention.latent import Encode

Average = Literal["logits", "probabilities"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What several draws agree on, and how far they do.

    Attributes:
        logits: (B, classes), of the average.
        probabilities: (B, classes), their softmax.
        spread: (B, classes), standard deviation of the probabilities over the draws; zero where there is one draw.
    """

    logits: Tensor
    probabilities: Tensor
    spread: Tensor


def predict(
    model: nn.Module,
    images: Tensor,
    attention: int = 4,
    latent: int = 12,
    average: Average = "logits",
    generator: torch.Generator | None = None,
) -> Prediction:
    """Classify images by the average over `attention` maps and, for each, `latent` codes.

    Args:
        model: a network with `BottleneckAttention`, with a `BottleneckHead` at its end, or with both.
        images: (B, 3, H, W), prepared.
        attention: how many maps are drawn.
        latent: how many codes are drawn for each map.
        average: "logits", whose average is that of log q(y|z) in bottleneck (7), or "probabilities".
        generator: of the random numbers, on the device of the images; the global one where there is none.

    >>> from foveate import BottleneckAttention, BottleneckHead
    >>> layers = nn.Conv2d(3, 8, 3), BottleneckAttention(8), nn.AdaptiveAvgPool2d(1), BottleneckHead(8, 16, 5)
    >>> predict(nn.Sequential(*layers).eval(), torch.rand(2, 3, 9, 9)).spread.shape
    torch.Size([2, 5])
    """
    if average not in ("logits", "probabilities"):
        raise ValueError(f"average must be 'logits' or 'probabilities', not {average!r}")
    drawn = draws(model, images, attention, latent, generator).flatten(0, 1).float()
    each = drawn.softmax(dim=-1)
    logits = drawn.mean(dim=0) if average == "logits" else each.mean(dim=0).clamp_min(torch.finfo().tiny).log()
    return Prediction(logits, logits.softmax(dim=-1), (each - each.mean(dim=0)).square().mean(dim=0).sqrt())


def draws(
    model: nn.Module,
    images: Tensor,
    attention: int = 4,
    latent: int = 12,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The logits of every draw, (attention, latent, B, classes), with gradients; arguments as those of `predict`.

    Where the network has no bottleneck attention there is one map, and where it has no bottleneck head one code.

    >>> from foveate import BottleneckHead
    >>> draws(nn.Sequential(nn.Flatten(), BottleneckHead(12, 4, 5)), torch.rand(3, 3, 2, 2)).shape
    torch.Size([1, 12, 3, 5])
    """
    maps = attention if any(isinstance(m, BottleneckLook) for m in model.modules()) else 1
    codes = latent if any(isinstance(m, Encode) for m in model.modules()) else 1
    if maps < 1 or codes < 1:
        raise ValueError(f"attention and latent must be positive, not {attention} and {latent}")
    with _drawing(model, len(images), maps, codes, generator):
        logits: Tensor = model(images)
    try:
        return logits.reshape(codes, maps, len(images), logits.shape[-1]).transpose(0, 1)
    except RuntimeError as error:
        raise ValueError(
            f"{maps} maps and {codes} codes of {len(images)} images gave {tuple(logits.shape)}, not logits for each; "
            "the bottleneck head must be the last layer, and what lies before it must treat images one by one"
        ) from error


@contextmanager
def _drawing(model: nn.Module, batch: int, maps: int, codes: int, generator: torch.Generator | None) -> Iterator[None]:
    """Inside, a network returns the logits (codes, maps·B, classes), or (maps·B, classes) without a head."""

    def ask(module: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        count = codes if isinstance(module, Encode) else maps if len(inputs[0]) == batch else 1
        return inputs, {**options, "samples": count, "generator": generator}

    def apart(module: nn.Module, inputs: Any, gaze: BottleneckGaze) -> None:
        if gaze.samples.shape[1] > 1:  # a map for each draw, in place of their average
            gaze.map = gaze.applied.transpose(0, 1).flatten(0, 1)[:, None]

    def repeat(module: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, map = inputs
        return x.repeat(len(map) // max(1, len(x)), 1, 1, 1), map

    handles: list[Any] = []
    try:
        for module in model.modules():
            if isinstance(module, BottleneckLook | Encode):
                handles.append(module.register_forward_pre_hook(ask, with_kwargs=True))
            if isinstance(module, BottleneckLook):
                handles.append(module.register_forward_hook(apart))
            if isinstance(module, BottleneckAttention):
                handles.append(module.combine.register_forward_pre_hook(repeat))
        yield
    finally:
        for handle in handles:
            handle.remove()
