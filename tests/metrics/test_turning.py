import warnings

import pytest
import torch
from small import small_cnn
from torch import Tensor, nn

from foveate import Gaze, PositionwiseAttention, attach, models
from foveate.groups import (
    MIRROR,
    P4,
    P4M,
    AttentiveGroupConv2d,
    AttentiveLiftConv2d,
    Group,
    InexactStride,
    PoseGaze,
    PosePool,
    p4cnn,
)
from foveate.metrics.turning import Sight, Turned, exact_size, group_of, inexact_strides, turn


def strided(group: Group) -> nn.Module:
    layers = (
        AttentiveLiftConv2d(group, 3, 4, 3, "input", reduction=1, stride=2, padding=1),
        nn.ReLU(),
        AttentiveGroupConv2d(group, 4, 5, 3, "full", padding=1),
        PosePool("max"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize("group", [P4, P4M, MIRROR])
def test_an_exact_network_is_exact_and_the_same_at_a_size_that_breaks_it_is_not(group: Group) -> None:
    model = strided(group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactStride)
        assert inexact_strides(model, 3, 16) == ["0 at size 16"]
        assert exact_size(model, 3, 16) == 17
        rough, exact = (turn(model, torch.rand(1, 3, size, size)) for size in (16, 17))
    assert rough.group is group
    for name in ("0", "2"):
        assert exact.errors(name).max() < 1e-4
    assert rough.errors("0").max() < 1e-4  # it looks before it strides
    assert rough.errors("2").max() > 0.01
    assert exact.logit_errors().max() < 1e-4 < 0.001 < rough.logit_errors().max()


def test_errors_by_hand() -> None:
    poses = torch.rand(1, 4, 5, 5)
    turned = [PoseGaze.of(poses, P4).turn(h) for h in range(4)]
    seen = PoseGaze.of(torch.cat([gaze.poses for gaze in turned]), P4)
    seen.poses[2, 3, 1, 4] += 0.25
    right = Turned(P4, Sight({"a": seen}, {}, {"a": 1.0}, torch.tensor([[1.0, 3.0]] * 3 + [[1.0, 2.5]])))
    span = float(poses.max() - poses.min())
    assert right.errors("a").tolist() == pytest.approx([0, 0, 0.25 / span, 0], abs=1e-6)
    assert right.logit_errors().tolist() == pytest.approx([0, 0, 0, 0.25])
    assert torch.equal(right.expected("a").map, torch.cat([gaze.map for gaze in turned]))


def test_poses_that_stay_where_they_are_are_an_error_though_the_map_is_right() -> None:
    poses = torch.rand(1, 4, 5, 5)
    seen = PoseGaze.of(torch.cat([P4.move(poses, h) for h in range(4)]), P4)  # moved, but not permuted
    turned = Turned(P4, Sight({"a": seen}, {}, {"a": 1.0}, torch.zeros(4, 2)))
    assert turned.errors("a")[1:].min() > 0.1
    assert turned.differences("a").max() < 1e-6


def test_a_map_without_poses_is_expected_to_turn() -> None:
    model = attach(small_cnn(), "stages.1", PositionwiseAttention).eval()
    turned = turn(model, torch.rand(1, 3, 32, 32))
    gaze = turned.sight.gazes["stages.1"]
    assert turned.group is P4
    assert not turned.sight.strengths
    expected = torch.cat([gaze.map[:1].rot90(k, (2, 3)) for k in range(4)])
    assert torch.equal(turned.expected("stages.1").map, expected)
    assert turned.errors("stages.1")[1:].min() > 0.01


def test_a_network_that_turns_is_not_one_that_mirrors() -> None:
    model = p4cnn("input", width=4).eval()
    image = torch.rand(1, 1, 28, 28)
    assert turn(model, image).errors("c3").max() < 1e-4
    mirrored = turn(model, image, P4M)
    assert mirrored.errors("c3")[:4].max() < 1e-4
    assert mirrored.errors("c3")[4:].min() > 0.01
    assert mirrored.logit_errors()[4:].min() > 0.01


def test_reach_is_where_the_receptive_fields_lie() -> None:
    model = p4cnn(width=3).eval()
    reach = Sight.of(model, torch.rand(1, 1, 28, 28)).reach
    for name in ("c1", "c3", "c6"):
        corner = (0.5 - reach[name] / 2) * 28  # the upper left corner of the first position's pixel
        image = torch.rand(1, 1, 28, 28, requires_grad=True)
        kept: dict[str, Tensor] = {}
        handle = model.get_submodule(name).register_forward_hook(lambda m, i, o, kept=kept: kept.update(y=o))
        model(image)
        handle.remove()
        kept["y"][0, :, :, 0, 0].square().sum().backward()
        rows = image.grad[0, 0].abs().sum(1).nonzero()
        step = 1 if name == "c1" else 2
        assert float(rows.min() + rows.max() + 1) / 2 == pytest.approx(corner + step / 2, abs=1.01)


def test_of_a_network_without_attention_the_responses_are_shown() -> None:
    with_poses = Sight.of(p4cnn(width=3).eval(), torch.rand(2, 1, 28, 28))
    assert list(with_poses.gazes) == list(with_poses.strengths) == [f"c{k}" for k in range(1, 8)]
    for gaze in with_poses.gazes.values():
        assert isinstance(gaze, PoseGaze)
        assert 0 <= gaze.map.min() <= gaze.map.max() <= 1
    plain = Sight.of(small_cnn(), torch.rand(2, 3, 16, 16))
    assert "stages.1.0" in plain.gazes
    assert type(plain.gazes["stages.1.0"]) is Gaze
    assert not plain.strengths


def test_watching_leaves_no_hook_behind_and_the_group_is_found() -> None:
    model = p4cnn("input", width=3).eval()
    turn(model, torch.rand(1, 1, 28, 28))
    assert not any(layer._forward_hooks for layer in model.modules())
    assert group_of(model) is P4
    assert group_of(models.load("scenes-rectangular")) is None


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 3, 8, 9), (3, 8, 8)])
def test_what_cannot_be_turned(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="one square image"):
        turn(small_cnn(), torch.rand(shape))
