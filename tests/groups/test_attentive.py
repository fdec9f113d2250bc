"""Attentive convolutions against the paper's equations on stored responses, and equivariant for every group."""

import copy
import itertools
from functools import partial

import pytest
import torch
from groups.moving import equivariance_error
from groups.test_symmetries import EVERY
from torch import Tensor, nn

import foveate as fv
from foveate.groups import (
    P4,
    P4M,
    TRIVIAL,
    AttentiveGroupConv2d,
    AttentiveLiftConv2d,
    Group,
    GroupConv2d,
    PoseGaze,
    attentive,
    plain,
    theorem1_violation,
)

KINDS = ["full", "channel", "spatial", "input", "poses"]
INSIDE = KINDS[:3]
OPTIONS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "stride": 2, "bias": False, "spatial_kernel": 3},
    {"kernel_size": 2, "dilation": 2, "padding": 1, "reduction": 3},
    {"kernel_size": 1, "spatial_kernel": 5},
]


def inputs(
    group: Group, channels: int = 3, size: tuple[int, int] = (7, 6), dtype=torch.float64
) -> tuple[Tensor, Tensor]:
    return torch.randn(2, channels, *size, dtype=dtype), torch.randn(2, channels, len(group), *size, dtype=dtype)


def pair(group: Group, attention: str, channels: int = 3, **options) -> list[nn.Module]:
    layers = [
        kind(group, channels, 4, attention=attention, **options) for kind in (AttentiveLiftConv2d, AttentiveGroupConv2d)
    ]
    for parameter in itertools.chain(*(layer.parameters() for layer in layers)):
        nn.init.normal_(parameter, std=0.5)  # so that attention is neither 0, ½ nor 1
    return layers


@pytest.mark.parametrize("attention", INSIDE)
@pytest.mark.parametrize("group", [P4, P4M, TRIVIAL], ids=lambda group: group.name)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.filterwarnings("ignore::foveate.groups.InexactStride")
def test_without_the_responses_as_with_them(group: Group, attention: str, options: dict) -> None:
    for layer, x in zip(pair(group, attention, **options), inputs(group), strict=True):
        layer.double()
        x.requires_grad_()
        given = [x, *layer.parameters()]
        ours, theirs = layer(x), plain.attend_and_convolve(layer, x)
        assert (ours - theirs).abs().max() < 1e-9 * theirs.abs().max()
        weights = torch.randn_like(ours)
        gradients = (torch.autograd.grad((weights * y).sum(), given) for y in (ours, theirs))
        for a, b in zip(*gradients, strict=True):
            assert (a - b).abs().max() <= 1e-9 * b.abs().max()


@pytest.mark.parametrize("combine", ["multiply", "residual"])
@pytest.mark.parametrize("attention", INSIDE)
def test_the_other_ways_to_combine(attention: str, combine: str) -> None:
    for layer, x in zip(pair(P4, attention, kernel_size=3, combine=combine), inputs(P4), strict=True):
        assert torch.allclose(layer.double()(x), plain.attend_and_convolve(layer, x), atol=1e-12)


def test_in_float32_and_with_more_channels() -> None:
    (_, layer), (_, x) = pair(P4, "full", 12, kernel_size=3, padding=1), inputs(P4, 12, (16, 16), torch.float32)
    x.requires_grad_()
    given = [x, *layer.parameters()]
    ours, theirs = layer(x), plain.attend_and_convolve(layer, x)
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), given) for y in (ours, theirs)), strict=True):
        assert (a - b).abs().max() < 1e-4 * b.abs().max()


def test_in_parts_as_at_once(monkeypatch) -> None:
    for attention in INSIDE:
        for layer, x in zip(pair(P4, attention, kernel_size=3), inputs(P4), strict=True):
            layer.double()
            x.requires_grad_()
            whole = layer(x)
            expected = torch.autograd.grad(whole.square().sum(), [x, *layer.parameters()])
            with monkeypatch.context() as patch:
                patch.setattr(attentive, "AT_ONCE_ON_CPU", 1)  # image by image, made again in the backward pass
                parts = layer(x)
                found = torch.autograd.grad(parts.square().sum(), [x, *layer.parameters()])
            assert torch.allclose(parts, whole, atol=1e-12)
            for a, b in zip(found, expected, strict=True):
                assert torch.allclose(a, b, atol=1e-9)


# --- attention on the input (20) -----------------------------------------------------------------------------------


def test_attention_on_the_input_against_a_loop() -> None:
    """(20) for p4, written with rot90 and roll: channels through 1×1 group convolutions, then positions."""
    (lift, conv), (image, x) = pair(P4, "input", 4, kernel_size=3), inputs(P4, 4)
    look, (image, x) = conv.double().look, (image, x)

    def linear(s: Tensor, weight: Tensor) -> Tensor:  # s (B, in, 4), weight (out, in, 4)
        return torch.stack([torch.einsum("bik,oik->bo", s, weight.roll(i, -1)) for i in range(4)], -1)

    scores = 0
    for s in (x.mean((-2, -1)), x.amax((-2, -1))):
        scores = scores + linear(linear(s, look.channel.reduce).relu(), look.channel.expand)
    channel = scores.sigmoid()[..., None, None]
    seen = torch.stack([(channel * x).mean(1), (channel * x).amax(1)], 1)
    weight = look.spatial.convolve.weight  # (1, 2, 4, 7, 7)
    poses = []
    for i in range(4):
        moved = weight.rot90(i, (-2, -1)).roll(i, 2)
        poses.append(2 * torch.pi / 4 * torch.conv2d(seen.flatten(1, 2), moved.flatten(1, 2), padding=3))
    alpha = channel * torch.stack(poses, 2).sigmoid()
    bare = GroupConv2d(P4, 4, 4, 3).double()
    bare.load_state_dict({name: value for name, value in conv.state_dict().items() if "look" not in name})
    assert torch.allclose(conv(x), bare(x - alpha * x), atol=1e-12)
    assert torch.allclose(look(x).attention, alpha, atol=1e-12)

    look = lift.double().look  # the image has no poses: one map, the maximum over those that it is looked at in
    scores = 0
    for s in (image.mean((-2, -1)), image.amax((-2, -1))):
        scores = scores + (s @ look.channel.reduce[..., 0].T).relu() @ look.channel.expand[..., 0].T
    channel = scores.sigmoid()[..., None, None]
    seen = torch.stack([(channel * image).mean(1), (channel * image).amax(1)], 1)
    turned = [torch.conv2d(seen, look.spatial.convolve.weight.rot90(i, (-2, -1)), padding=3) for i in range(4)]
    alpha = channel * torch.stack(turned).amax(0).sigmoid()
    assert torch.allclose(look(image).attention[:, :, 0], alpha, atol=1e-12)


def test_attention_over_poses_looks_at_every_position_by_itself() -> None:
    (_, conv), (_, x) = pair(P4, "poses", kernel_size=3), inputs(P4)
    alpha = conv.double().look(x).attention
    weight = conv.look.spatial.convolve.weight[0, :, :, 0, 0]  # (in, 4)
    for i, row, column in itertools.product(range(4), range(7), range(6)):
        score = 2 * torch.pi / 4 * (x[:, :, :, row, column] * weight.roll(i, 1)).sum((1, 2))  # a circulant matrix
        assert torch.allclose(alpha[:, 0, i, row, column], score.sigmoid())


# --- equivariance and Theorem 1 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)
@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("size", [(8, 8), (7, 7), (6, 9)], ids=str)
def test_every_attention_is_equivariant(group: Group, attention: str, size: tuple[int, int]) -> None:
    for options in ({"kernel_size": 3, "padding": 1}, {"kernel_size": 2}):
        layers = [
            kind(group, 3, 4, attention=attention, **options) for kind in (AttentiveLiftConv2d, AttentiveGroupConv2d)
        ]
        for layer, x in zip(layers, inputs(group, size=size, dtype=torch.float32), strict=True):
            assert equivariance_error(layer, group, x) < 1e-5


@pytest.mark.parametrize("attention", INSIDE)
def test_theorem_1_holds_for_the_attention_and_fails_for_a_broken_one(attention: str) -> None:
    layer = pair(P4, attention, kernel_size=3)[1].double()
    layer.look.keep_attention = True

    def operator(x: Tensor) -> Tensor:
        with fv.watch(layer) as gazes:
            layer(x)
        return gazes[""].attention  # (B, out, |H|, |H̃|, H, W)

    x = inputs(P4)[1]
    assert theorem1_violation(operator, P4, x, poses=(2, 3)) < 1e-12
    for half in (layer.look.channel, layer.look.spatial):
        if half is not None:  # matrices and filters that do not move with the poses
            half.bank_index.copy_(half.bank_index[:1].expand_as(half.bank_index).clone())
    assert theorem1_violation(operator, P4, x, poses=(2, 3)) > 1e-3


def test_theorem_1_of_attention_on_features_and_planes() -> None:
    lift, conv = pair(P4M, "input", kernel_size=3)
    image, x = inputs(P4M, dtype=torch.float32)
    assert theorem1_violation(lambda x: conv.look(x).attention, P4M, x) < 1e-5
    assert theorem1_violation(lambda x: lift.look(x).attention, P4M, image, poses=()) < 1e-5
    assert theorem1_violation(lambda x: conv.look.channel(x), P4M, x, space=False) < 1e-4
    assert theorem1_violation(lambda x: x.cumsum(3), P4M, x) > 1


# --- gazes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("group", [P4, P4M], ids=lambda group: group.name)
def test_gazes_show_what_comes_through_and_turn_with_the_image(group: Group, attention: str) -> None:
    model = nn.Sequential(
        *pair(group, attention, kernel_size=3)[:1], pair(group, attention, 4, kernel_size=3)[1]
    ).double()
    x = inputs(group)[0]

    def watched(x: Tensor) -> dict[str, PoseGaze]:
        with fv.watch(model) as gazes:
            model(x)
        return gazes

    gazes = watched(x)
    assert list(gazes) == ["0", "1"]
    for h in range(len(group)):
        for name, moved in watched(group.transform(x, h)).items():
            turned = gazes[name].turn(h)
            assert torch.allclose(turned.map, moved.map, atol=1e-12)
            assert torch.allclose(turned.poses, moved.poses, atol=1e-12)
    for gaze in gazes.values():
        assert gaze.poses.shape[1] == len(group)
        assert gaze.map.shape == (2, 1, *gaze.poses.shape[2:])
        assert torch.allclose(gaze.map, gaze.poses.mean(1, keepdim=True))
        assert 0 <= gaze.map.min() <= gaze.map.max() <= 1


@pytest.mark.parametrize("combine", ["suppress", "multiply"])
def test_the_attention_of_a_convolution_is_there_on_request(combine: str) -> None:
    layer, x = pair(P4, "full", kernel_size=3, combine=combine)[1].double(), inputs(P4)[1]
    with fv.watch(layer) as gazes:
        layer(x)
    assert gazes[""].attention is None
    layer.look.keep_attention = True
    with fv.watch(layer) as gazes:
        layer(x)
    f = plain.responses(x, layer.bank())
    channel = plain.channel_attention(f, *layer.look.channel.matrices())
    spatial = plain.spatial_attention(channel[..., None, None] * f, layer.look.spatial.bank())
    alpha = (channel[..., None, None] * spatial[:, :, :, None]).mean(3)
    assert gazes[""].attention.shape == (2, 4, 4, 4, 5, 4)
    assert torch.allclose(gazes[""].attention, alpha, atol=1e-12)
    share = 1 - alpha if combine == "suppress" else alpha
    assert torch.allclose(gazes[""].poses, share.mean((1, 3)), atol=1e-12)
    turned = gazes[""].turn(1)
    assert torch.allclose(turned.attention, P4.permute(P4.permute(P4.move(alpha, 1), 1, 2), 1, 3), atol=1e-12)


def test_gradients_flow_through_gazes() -> None:
    for attention in KINDS:
        layer, x = pair(P4, attention, kernel_size=3)[1], inputs(P4, dtype=torch.float32)[1].requires_grad_()
        with fv.watch(layer) as gazes:
            layer(x)
        gazes[""].map.sum().backward()
        assert x.grad.abs().max() > 0


def test_a_gaze_moves_by_matrices_too() -> None:
    with fv.watch(layer := pair(P4M, "full", kernel_size=2)[1]) as gazes:
        layer(torch.randn(3, 3, 8, 7, 7))
    gaze = gazes[""]
    for h in range(8):
        linear = torch.tensor(P4M.elements[h], dtype=torch.float32)
        center = torch.full((2,), 0.5)
        matrix = torch.cat([linear, (center - linear @ center)[:, None]], 1).expand(3, 2, 3)
        moved, turned = gaze.move(matrix), gaze.turn(h)
        assert torch.allclose(moved.map, turned.map, atol=1e-5)
        assert torch.allclose(moved.poses, turned.poses, atol=1e-5)


# --- the house's rules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", KINDS)
def test_in_the_place_of_an_ordinary_convolution(attention: str) -> None:
    plain_conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2)
    ours = AttentiveGroupConv2d(TRIVIAL, 4, 6, 3, attention, stride=2, padding=1, dilation=2)
    x = torch.randn(2, 4, 9, 8)
    assert ours(x).shape == plain_conv(x).shape
    with torch.no_grad():
        ours.weight.copy_(plain_conv.weight[:, :, None])
        ours.bias.copy_(plain_conv.bias)
    closed = copy.deepcopy(ours)
    closed.look.combine = "residual"
    assert torch.allclose(ours(x) + closed(x), 2 * plain_conv(x), atol=1e-5)  # (1 − α) + (1 + α)


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("size", [(1, 1), (5, 2)])
def test_any_shape(attention: str, batch: int, size: tuple[int, int]) -> None:
    model = nn.Sequential(*(layer for layer in [pair(P4, attention, kernel_size=3, padding=1)[0]]))
    x = torch.randn(batch, 3, *size, requires_grad=True)
    y = model(x)
    assert y.shape == (batch, 4, 4, *size)
    y.sum().backward()
    assert x.grad.isfinite().all()
    last = x.detach().contiguous(memory_format=torch.channels_last)
    assert torch.allclose(model(last), y, atol=1e-6)


@pytest.mark.parametrize("attention", KINDS)
def test_as_one_graph_compiled_and_exported(attention: str) -> None:
    net, x = pair(P4, attention, 2, kernel_size=2, dilation=2)[1], torch.randn(2, 2, 4, 7, 7)
    y = net(x)
    close = partial(torch.allclose, rtol=1e-4, atol=1e-4 * float(y.detach().abs().max()))
    gradients = torch.autograd.grad(y.square().sum(), list(net.parameters()))
    try:
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")(x)
        found = torch.autograd.grad(compiled.square().sum(), list(net.parameters()))
        assert close(compiled, y)
        for a, b in zip(found, gradients, strict=True):
            assert (a - b).abs().max() <= 1e-4 * b.abs().max()
        exported = torch.export.export(net, (x,)).module()
        assert close(exported(x), y)
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", KINDS)
def test_autocast_attends_in_float32(attention: str, dtype: torch.dtype) -> None:
    layer, x = AttentiveGroupConv2d(P4, 3, 4, 3, attention), torch.randn(2, 3, 4, 6, 6)
    with torch.autocast("cpu", dtype), fv.watch(layer) as gazes:
        y = layer(x.to(dtype))
    assert y.dtype == dtype
    assert gazes[""].map.dtype == torch.float32
    assert torch.allclose(y.float(), layer(x), atol=0.05)


@pytest.mark.parametrize("attention", KINDS)
def test_nothing_is_nan_for_constant_and_huge_features(attention: str) -> None:
    layer = AttentiveGroupConv2d(P4, 3, 4, 3, attention)
    for x in (torch.zeros(1, 3, 4, 5, 5), torch.full((1, 3, 4, 5, 5), 1e30), -torch.full((1, 3, 4, 5, 5), 1e30)):
        x.requires_grad_()
        y = layer(x)
        y.sum().backward()
        assert y.isfinite().all()
        assert x.grad.isfinite().all()


def test_a_copy_computes_the_same_and_the_state_dict_holds_what_is_learnt() -> None:
    layer, x = pair(P4, "full", kernel_size=3)[1], inputs(P4, dtype=torch.float32)[1]
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert set(layer.state_dict()) == {
        "weight",
        "bias",
        "look.channel.reduce",
        "look.channel.expand",
        "look.spatial.weight",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "ful"}, "attention must be full, channel, spatial, input or poses, not 'ful'"),
        ({"combine": "add"}, "combine must be one of 'suppress', 'multiply', 'residual', not 'add'"),
        ({"spatial_kernel": 4}, "spatial_kernel must be odd, not 4"),
        ({"reduction": 0}, "reduction must be a whole number above 0"),
        ({"groups": 2, "in_channels": 4}, "'full' takes no groups of channels"),
    ],
)
def test_bad_options_say_what_was_expected(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentiveGroupConv2d(**{"group": P4, "in_channels": 3, "out_channels": 4, "kernel_size": 3, **options})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("attention", KINDS)
def test_on_a_gpu_without_a_round_trip(attention: str) -> None:
    layer, x = pair(P4, attention, kernel_size=3)[1].double(), inputs(P4)[1]
    expected = layer(x)
    layer.cuda()
    given = x.cuda().requires_grad_()
    layer(given).sum().backward()  # warm up: libraries synchronise when they start
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = layer(given)
        y.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.allclose(y.cpu(), expected, atol=1e-9)
