"""SE, CBAM and BAM come out of the attention on features with the trivial group."""

import pytest
import torch
from groups.moving import equivariance_error
from torch import Tensor, nn

import foveate as fv
from foveate.groups import P4, P4M, TRIVIAL, FeatureAttention


def scramble(model: nn.Module) -> nn.Module:
    """Weights, and running statistics, of a network that has seen something."""
    for value in (*model.parameters(), *model.buffers()):
        if value.is_floating_point():
            nn.init.uniform_(value, 0.2, 0.8) if value.ndim == 1 else nn.init.normal_(value, std=0.5)
    return model.eval()


def test_se_is_timms() -> None:
    layers = pytest.importorskip("timm.layers")
    theirs = scramble(layers.SEModule(8, rd_channels=2))
    ours = FeatureAttention.se(TRIVIAL, 8, reduction=4)
    with torch.no_grad():
        for name, layer in (("reduce", theirs.fc1), ("expand", theirs.fc2)):
            getattr(ours.look.channel, name).copy_(layer.weight.flatten(2))
            getattr(ours.look.channel, f"{name}_bias").copy_(layer.bias)
    x = torch.randn(3, 8, 6, 5)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


def test_cbam_is_timms() -> None:
    layers = pytest.importorskip("timm.layers.cbam")
    theirs = scramble(layers.CbamModule(8, rd_channels=2))
    ours = FeatureAttention.cbam(TRIVIAL, 8, reduction=4).eval()
    convolution, norm = ours.look.spatial.convolve
    with torch.no_grad():
        ours.look.channel.reduce.copy_(theirs.channel.fc1.weight.flatten(2))
        ours.look.channel.expand.copy_(theirs.channel.fc2.weight.flatten(2))
        convolution.weight.copy_(theirs.spatial.conv.conv.weight[:, :, None])
    norm.load_state_dict(theirs.spatial.conv.bn.state_dict())
    x = torch.randn(3, 8, 6, 5)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


def test_bam_is_its_papers() -> None:
    ours = scramble(FeatureAttention.bam(TRIVIAL, 8, reduction=4, dilation=2))
    channel, spatial = ours.look.channel, ours.look.spatial.convolve
    x = torch.randn(3, 8, 6, 5)
    hidden = (x.mean((2, 3)) @ channel.reduce[..., 0].T + channel.reduce_bias).relu()
    channels = (hidden @ channel.expand[..., 0].T + channel.expand_bias)[:, :, None, None]
    y = x
    for k, (padding, dilation) in enumerate([(0, 1), (2, 2), (2, 2)]):
        conv, norm = spatial[3 * k], spatial[3 * k + 1]
        y = torch.conv2d(y, conv.weight[:, :, 0], conv.bias, padding=padding, dilation=dilation)
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        y = ((y - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]).relu()
    places = torch.conv2d(y, spatial[9].weight[:, :, 0], spatial[9].bias)
    assert torch.allclose(ours(x), x + x * (channels + places).sigmoid(), atol=1e-5)


@pytest.mark.parametrize("make", [FeatureAttention.se, FeatureAttention.cbam, FeatureAttention.bam])
@pytest.mark.parametrize("group", [P4, P4M], ids=lambda group: group.name)
def test_for_any_group_they_are_equivariant_and_seen(make, group) -> None:
    attention = make(group, 8, reduction=4).eval()
    x: Tensor = torch.randn(2, 8, len(group), 7, 7)
    assert equivariance_error(attention, group, x) < 1e-5
    with fv.watch(attention) as gazes:
        attention(x)
    assert gazes[""].poses.shape == (2, len(group), 7, 7)


def test_what_looks_at_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at channels, at positions or at both"):
        type(FeatureAttention.se(P4, 8).look)(P4)
