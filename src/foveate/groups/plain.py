"""Attentive convolution as the paper writes it: all responses f̃ are made, kept and attended to. Slow, and the measure.

What `foveate.groups.AttentiveGroupConv2d` computes without f̃ is compared with this, in tests and in
`benchmarks/attentive.py`.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.groups.attentive import AttentiveGroupConv2d, AttentiveLiftConv2d, ResponseLook


def attend_and_convolve(layer: AttentiveLiftConv2d | AttentiveGroupConv2d, x: Tensor) -> Tensor:
    """What a layer whose attention is full, channel or spatial returns for x, by (16)–(19) and 3.3 on kept responses.

    >>> from foveate.groups import P4
    >>> layer, x = AttentiveGroupConv2d(P4, 3, 2, kernel_size=3), torch.rand(1, 3, 4, 6, 6)
    >>> torch.allclose(attend_and_convolve(layer, x), layer(x), atol=1e-6)
    True
    """
    lifts, look = isinstance(layer, AttentiveLiftConv2d), cast(ResponseLook, layer.look)
    bank = layer.bank()
    if lifts:
        bank, x = bank[:, :, :, None], x[:, :, None]
    f = responses(x, bank, layer.stride, layer.padding, layer.dilation)
    channel = channel_attention(f, *look.channel.matrices()) if look.channel is not None else None
    seen = f if channel is None else channel[..., None, None] * f
    spatial = spatial_attention(seen, look.spatial.bank()) if look.spatial is not None else None
    y = attended(f, channel, spatial)
    if look.combine != "multiply":
        y = f.sum((3, 4)) - y if look.combine == "suppress" else f.sum((3, 4)) + y
    y = y if lifts else y * layer.group.measure
    return y if layer.bias is None else y + layer.bias[:, None, None, None]


def responses(x: Tensor, bank: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
    """f̃ of equivariant (16), (B, out, |H|, in, T, H', W'): x (B, in, T, H, W), filters (out, |H|, in, T, k, k)."""
    out, poses, channels, sources, size, _ = bank.shape
    filters = bank.permute(2, 3, 0, 1, 4, 5).reshape(-1, 1, size, size)
    f = F.conv2d(x.flatten(1, 2), filters, None, stride, padding, dilation, groups=channels * sources)
    return f.reshape(len(x), channels, sources, out, poses, *f.shape[2:]).permute(0, 3, 4, 1, 2, 5, 6)


def channel_attention(f: Tensor, reduce: Tensor, expand: Tensor) -> Tensor:
    """α^C of (17), (B, out, |H|, in, T): matrices (out, |H|, in/r, in, T) and (out, |H|, in, in/r, T)."""
    mean, maximum = f.mean((-2, -1)), f.flatten(-2).max(-1).values

    def perceptron(s: Tensor) -> Tensor:
        hidden = torch.einsum("ohrit,bohit->bohrt", reduce, s).relu()
        return torch.einsum("ohirt,bohrt->bohit", expand, hidden)

    return torch.sigmoid(perceptron(mean) + perceptron(maximum))


def spatial_attention(f: Tensor, weight: Tensor) -> Tensor:
    """α^X of (18): f̃ (B, out, |H|, in, T, H', W'), ψ^X (out, |H|, 2, T, n, n), to (B, out, |H|, T, H', W')."""
    statistics = torch.stack([f.mean(3), f.amax(3)], dim=3)  # (B, out, |H|, 2, T, H', W')
    planes = statistics.flatten(1, 4)
    z = F.conv2d(planes, weight.flatten(0, 3)[:, None], padding=weight.shape[-1] // 2, groups=planes.shape[1])
    return torch.sigmoid(z.reshape(statistics.shape).sum(3))


def attended(f: Tensor, channel: Tensor | None, spatial: Tensor | None) -> Tensor:
    """Σ α^X·α^C·f̃ of (19) over input channels and poses: to (B, out, |H|, H', W')."""
    if channel is not None:
        f = channel[..., None, None] * f
    if spatial is not None:
        f = spatial[:, :, :, None] * f
    return f.sum((3, 4))
