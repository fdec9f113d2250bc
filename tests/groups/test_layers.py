"""Every layer against its definition in loops, and exactly equivariant for every group that there is."""

import warnings
from itertools import product

import pytest
import torch
from groups.moving import equivariance_error
from groups.test_symmetries import EVERY
from torch import Tensor, nn

from foveate.groups import (
    MIRROR,
    P4,
    P4M,
    TRIVIAL,
    Group,
    GroupAvgPool2d,
    GroupConv2d,
    GroupMaxPool2d,
    InexactStride,
    LiftConv2d,
    PoseBatchNorm,
    PoseDropout,
    PosePool,
)

by_name = pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)


# --- the definition -----------------------------------------------------------------------------------------------


def naive_convolution(layer: LiftConv2d | GroupConv2d, x: Tensor) -> Tensor:
    """equivariant (13) as it stands: one plain convolution for each (out, h, in, h̃), summed in a loop."""
    group, lifts = layer.group, isinstance(layer, LiftConv2d)
    per_group_in, per_group_out = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    channels = []
    for out, h in product(range(layer.out_channels), range(len(group))):
        filters = group.transform(layer.weight[out : out + 1], h)[0]  # L_h[ψ]
        total = 0
        for c in range(per_group_in):
            source = out // per_group_out * per_group_in + c
            for k in [None] if lifts else range(len(group)):
                plane, kernel = (x[:, source], filters[c]) if lifts else (x[:, source, k], filters[c, k])
                total = total + torch.conv2d(
                    plane[:, None], kernel[None, None], None, layer.stride, layer.padding, layer.dilation
                )
        total = total * (1 if lifts or len(group) == 1 else 2 * torch.pi / len(group))
        channels.append(total + (layer.bias[out] if layer.bias is not None else 0))
    return torch.cat(channels, 1).unflatten(1, (layer.out_channels, len(group)))


OPTIONS = [
    {"kernel_size": 3},
    {"kernel_size": 1},
    {"kernel_size": 4, "padding": 2, "bias": False},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "groups": 2},
]


@by_name
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.filterwarnings("ignore::foveate.groups.InexactStride")
def test_convolutions_against_a_loop(group: Group, options: dict) -> None:
    lift, conv = (kind(group, 2, 4, **options).double() for kind in (LiftConv2d, GroupConv2d))
    images, features = torch.randn(2, 2, 6, 5).double(), torch.randn(2, 2, len(group), 6, 5).double()
    assert torch.allclose(lift(images), naive_convolution(lift, images), atol=1e-12)
    assert torch.allclose(conv(features), naive_convolution(conv, features), atol=1e-12)


def test_with_the_trivial_group_they_are_ordinary_convolutions() -> None:
    options = {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2}
    plain = nn.Conv2d(4, 6, **options)
    x = torch.randn(2, 4, 7, 8)
    for ours, given in (
        (LiftConv2d(TRIVIAL, 4, 6, **options), x),
        (GroupConv2d(TRIVIAL, 4, 6, **options), x[:, :, None]),
    ):
        with torch.no_grad():
            ours.weight.copy_(plain.weight.reshape(ours.weight.shape))
            ours.bias.copy_(plain.bias)
        assert torch.allclose(ours(given)[:, :, 0], plain(x), atol=1e-6)


def test_pooling_normalising_and_dropping_by_hand() -> None:
    x = torch.randn(3, 2, 4, 6, 4)
    for pose in range(4):
        assert torch.equal(GroupMaxPool2d(P4, 2)(x)[:, :, pose], nn.MaxPool2d(2)(x[:, :, pose]))
        assert torch.equal(GroupAvgPool2d(P4, 3, 1, 1)(x)[:, :, pose], nn.AvgPool2d(3, 1, 1)(x[:, :, pose]))
    assert torch.equal(PosePool()(x), torch.stack([x[:, :, k] for k in range(4)]).amax(0))
    assert torch.allclose(PosePool("mean")(x), sum(x[:, :, k] for k in range(4)) / 4)
    normal = PoseBatchNorm(2)(x)
    assert torch.allclose(normal.mean((0, 2, 3, 4)), torch.zeros(2), atol=1e-6)
    assert torch.allclose(normal.var((0, 2, 3, 4), correction=0), torch.ones(2), atol=1e-3)


def test_whole_poses_are_dropped_at_the_rate_asked_for() -> None:
    x = torch.rand(4000, 2, 4, 2, 3) + 1
    dropped = PoseDropout(0.3)(x)
    kept = (dropped != 0).flatten(3)
    assert torch.equal(kept.all(3), kept.any(3))  # all positions or none
    assert torch.equal(kept.all(1), kept.any(1))  # all channels or none
    assert torch.allclose(dropped[dropped != 0], (x / 0.7)[dropped != 0])
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert torch.equal(PoseDropout(0.3).eval()(x), x)


# --- equivariance -------------------------------------------------------------------------------------------------


@by_name
@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10), (5, 4)])
def test_convolutions_are_equivariant(group: Group, size: tuple[int, int]) -> None:
    images, features = torch.randn(2, 2, *size), torch.randn(2, 2, len(group), *size)
    for options in OPTIONS:
        if options.get("stride", 1) == 1:
            assert equivariance_error(LiftConv2d(group, 2, 4, **options), group, images) < 1e-5
            assert equivariance_error(GroupConv2d(group, 2, 4, **options), group, features) < 1e-5


@by_name
@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10)])
def test_the_other_layers_are_equivariant(group: Group, size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, len(group), *size)
    norm = PoseBatchNorm(3).eval()
    norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2), nn.init.normal_(norm.weight)
    for layer in (norm, PoseDropout().eval(), GroupMaxPool2d(group, 3, 1, 1), GroupAvgPool2d(group, 3, 1)):
        assert equivariance_error(layer, group, x) < 1e-5
    for mode in ("max", "mean"):
        assert equivariance_error(PosePool(mode), group, x) < 1e-5  # from features to planes


def test_batch_norm_in_training_is_equivariant() -> None:
    x = torch.randn(4, 3, 8, 6, 6)
    assert equivariance_error(PoseBatchNorm(3), P4M, x) < 1e-5


# --- Appendix C: strides ------------------------------------------------------------------------------------------


STRIDED = [
    (lambda group: GroupConv2d(group, 2, 2, 3, stride=2, padding=1), 9, 8),
    (lambda group: GroupConv2d(group, 2, 2, 3, stride=3), 9, 10),
    (lambda group: GroupMaxPool2d(group, 2), 8, 9),
    (lambda group: GroupAvgPool2d(group, 3, 2), 9, 8),
]


@pytest.mark.parametrize("group", [P4, P4M, MIRROR], ids=lambda group: group.name)
@pytest.mark.parametrize(("make", "exact", "rough"), STRIDED)
def test_strides_are_exact_at_some_sizes_and_warn_once_at_the_others(make, exact: int, rough: int, group) -> None:
    layer = make(group)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert equivariance_error(layer, group, torch.randn(2, 2, len(group), exact, exact)) < 1e-5
    x = torch.randn(2, 2, len(group), rough, rough)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert equivariance_error(layer, group, x) > 1e-2
    (warning,) = caught
    assert issubclass(warning.category, InexactStride)
    assert f"at size {rough}" in str(warning.message)
    named = [int(word) for word in str(warning.message).split("exact are ")[1].split(", or")[0].split(",")]
    for size in named:  # the sizes that the warning names are exact
        assert equivariance_error(make(group), group, torch.randn(2, 2, len(group), size, size)) < 1e-5


def test_only_the_axes_that_the_group_flips_matter() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conv = GroupConv2d(MIRROR, 2, 2, 3, stride=2, padding=1)
        assert equivariance_error(conv, MIRROR, torch.randn(2, 2, 2, 8, 9)) < 1e-5
        LiftConv2d(TRIVIAL, 3, 2, 3, stride=2)(torch.randn(1, 3, 8, 8))
    with pytest.warns(InexactStride, match="at size 8"):
        conv(torch.randn(2, 2, 2, 9, 8))


# --- the house's rules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (6, 3)])
def test_any_shape_in_any_memory_format(batch: int, size: tuple[int, int]) -> None:
    network = nn.Sequential(
        LiftConv2d(P4, 3, 4, 3, padding=1), PoseBatchNorm(4), nn.ReLU(), PoseDropout(),
        GroupMaxPool2d(P4, 3, 1, 1), GroupConv2d(P4, 4, 5, 3, padding=1), PosePool(),
    ).eval()  # fmt: skip
    x = torch.randn(batch, 3, *size)
    y = network(x)
    assert y.shape == (batch, 5, *size)
    assert y.isfinite().all()
    assert torch.allclose(network(x.contiguous(memory_format=torch.channels_last)), y, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    network = nn.Sequential(LiftConv2d(P4, 3, 4, 3), PoseBatchNorm(4), GroupConv2d(P4, 4, 5, 3))
    x = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype):
        y = network(x)
    assert y.dtype == dtype
    assert torch.allclose(y.float(), network(x), atol=0.1)


def test_what_is_random_follows_the_seed_and_buffers_stay_out_of_files() -> None:
    def make() -> GroupConv2d:
        torch.manual_seed(3)
        return GroupConv2d(P4, 2, 2, 3)

    assert torch.equal(make().weight, make().weight)
    assert list(make().state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LiftConv2d(P4, 0, 2, 3), "in_channels must be a whole number above 0, not 0"),
        (lambda: GroupConv2d(P4, 2, 2, (3, 3)), r"kernel_size must be a whole number above 0, not \(3, 3\)"),
        (lambda: GroupConv2d(P4, 3, 2, 3, groups=2), r"channels \(3 to 2\) must split into 2 equal groups"),
        (lambda: GroupConv2d(P4, 2, 2, 3, padding=-1), "padding must not be negative"),
        (lambda: GroupConv2d(P4, 2, 2, 3)(torch.zeros(1, 2, 5, 5)), "images are lifted first"),
        (lambda: GroupConv2d(P4, 2, 2, 3)(torch.zeros(1, 2, 8, 5, 5)), r"\(B, 2, 4, H, W\), not \(1, 2, 8, 5, 5\)"),
        (lambda: PosePool("min"), "mode must be 'max' or 'mean', not 'min'"),
        (lambda: PoseDropout(1.5), r"p must be in \[0, 1\]"),
    ],
)
def test_bad_use_says_what_was_expected(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
