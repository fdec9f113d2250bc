"""convert: published networks keep their shape and their number of parameters, and gain a symmetry."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from foveate.groups import GROUPS, P4, P4M, TRIVIAL, Group, PoseGaze, convert
from foveate.groups.convert import ConvertError, Subsample
from foveate.models import TinyCNN, parameter_count

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")


def vgg() -> nn.Module:
    host = timm.create_model("vgg11_bn", num_classes=10)
    host.pre_logits = type(host.pre_logits)(512, 64, 7)  # the published one alone has 100 million parameters
    host.head.fc = nn.Linear(64, 10)
    return host


HOSTS: dict[str, tuple[Callable[[], nn.Module], str]] = {  # and the layer that returns the last feature map
    "tiny": (lambda: TinyCNN(10), "stages.4"),
    "timm resnet18": (lambda: timm.create_model("resnet18", num_classes=10), "layer4"),
    "torchvision resnet18": (lambda: torchvision.models.resnet18(num_classes=10), "layer4"),
    "timm vgg11_bn": (vgg, "features"),
}
QUICK = [("tiny", group) for group in GROUPS.values()] + [(name, P4) for name in list(HOSTS)[1:]]


def trained(net: nn.Module, size: int = 64) -> nn.Module:
    """In evaluation mode, with batch norms that have seen something, so that signals are of order one."""
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(4, 3, size, size))
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
    with torch.no_grad():
        net(torch.randn(4, 3, size, size))
    return net.eval()


def check_symmetry(net: nn.Module, group: Group, layer: str, size: int) -> None:
    """Logits stay, features move: in one pass, for the moved images are a batch."""
    features: list[torch.Tensor] = []
    handle = net.get_submodule(layer).register_forward_hook(lambda _, __, output: features.append(output))
    image = torch.randn(1, 3, size, size)
    with torch.no_grad():
        logits = net(torch.cat([group.transform(image, h) for h in range(len(group))]))
    handle.remove()
    signal = features[0].abs().max()
    assert features[0].ndim == 5
    assert features[0].std() > 1e-3 * signal > 0
    for h in range(len(group)):
        moved = group.transform(features[0][:1], h)
        assert (features[0][h : h + 1] - moved).abs().max() <= 1e-4 * signal
    assert (logits - logits[:1]).abs().max() <= 1e-4 * max(1.0, float(logits.abs().max()))


@pytest.mark.parametrize(("name", "group"), QUICK, ids=lambda value: getattr(value, "name", value))
def test_logits_stay_and_features_move(name: str, group: Group) -> None:
    make, layer = HOSTS[name]
    net = trained(convert(make(), group))
    check_symmetry(net, group, layer, 64)
    if name == "tiny":
        check_symmetry(net, group, layer, 37)  # where other windows are left over
    x = torch.randn(2, 3, 64, 64)
    assert not torch.allclose(net(x)[0], net(x)[1], rtol=1e-3)  # of another image they are others


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HOSTS)[1:])
@pytest.mark.parametrize("size", [64, 75])
def test_logits_stay_and_features_move_on_p4m(name: str, size: int) -> None:
    make, layer = HOSTS[name]
    check_symmetry(trained(convert(make(), P4M)), P4M, layer, size)


@pytest.mark.parametrize("name", ["tiny", "torchvision resnet18", "timm vgg11_bn"])
def test_it_has_about_the_parameters_of_the_host_or_as_many_channels(name: str) -> None:
    host = HOSTS[name][0]()
    names = [n for n, p in host.named_parameters()]
    net = convert(host, P4)
    assert parameter_count(net) == pytest.approx(parameter_count(host), rel=0.02)
    assert [n for n, p in host.named_parameters()] == names  # the host stays as it was
    if name == "tiny":
        wide = convert(host, P4, width="channels")
        theirs = [m.out_channels for m in host.modules() if isinstance(m, nn.Conv2d)]
        assert [m.out_channels for m in wide.modules() if hasattr(m, "bank_index")] == theirs
        assert parameter_count(wide) > 3.5 * parameter_count(host)


@pytest.mark.slow
def test_the_published_vgg_whole() -> None:
    """With its head of 100 million parameters, which takes 7 GB of memory on the way."""
    host = timm.create_model("vgg11_bn", num_classes=10)
    parameters = parameter_count(host)
    net = convert(host, P4).eval()
    assert parameter_count(net) == pytest.approx(parameters, rel=1e-3)
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        logits = net(torch.cat([P4.transform(image, h) for h in range(4)]))
    assert (logits - logits[:1]).abs().max() <= 1e-4 * logits.abs().max()


def test_on_the_trivial_group_it_is_the_host() -> None:
    host = TinyCNN(10).eval()
    net = convert(host, TRIVIAL)
    for mine, theirs in zip(net.parameters(), host.parameters(), strict=True):
        assert mine.numel() == theirs.numel()
        mine.data.copy_(theirs.reshape(mine.shape))
    x = torch.rand(2, 3, 64, 64)
    assert torch.allclose(net(x), host(x), atol=1e-6)


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize(("kernel", "padding"), [(1, 0), (3, 1), (7, 3)])
def test_a_subsampled_convolution_is_the_strided_one_where_that_is_exact(size: int, kernel: int, padding: int) -> None:
    strided = nn.Conv2d(2, 3, kernel, 2, padding)
    x = torch.randn(1, 2, size, size)
    whole = nn.functional.conv2d(x, strided.weight, strided.bias, 1, padding)
    shrunk = Subsample(2)(whole[:, :, None])[:, :, 0]
    assert shrunk.shape == strided(x).shape
    if (size + 2 * padding - kernel) % 2 == 0:
        assert torch.allclose(shrunk, strided(x), atol=1e-6)
    else:
        assert torch.equal(shrunk, nn.functional.max_pool2d(whole, 2))
    flipped = Subsample(2)(whole.flip(-1)[:, :, None])[:, :, 0]
    assert torch.equal(flipped.flip(-1), shrunk)


def test_a_head_that_sees_positions_becomes_a_group_convolution_over_them() -> None:
    host = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.1), nn.AvgPool2d(3, 2, 1),
        nn.AdaptiveMaxPool2d(5), nn.Flatten(), nn.Linear(200, 12), nn.ReLU(), nn.Linear(12, 4),
    )  # fmt: skip
    check_symmetry(convert(host, P4M).eval(), P4M, "5", 21)


def test_groups_of_channels_and_depthwise_convolutions() -> None:
    host = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 24, 1, groups=4), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(24, 4),
    )  # fmt: skip
    check_symmetry(convert(host, P4).eval(), P4, "2", 9)


def test_attentive_convolutions_where_they_are_asked_for() -> None:
    import foveate as fv

    net = convert(TinyCNN(10), P4, attention="input").eval()
    image = torch.randn(1, 3, 32, 32)
    with fv.watch(net) as gazes:
        logits = net(torch.cat([P4.transform(image, h) for h in range(4)]))
    assert (logits - logits[:1]).abs().max() <= 1e-5
    assert len(gazes) == 5
    gaze = list(gazes.values())[-1]
    assert isinstance(gaze, PoseGaze)
    first = gaze.apply(lambda t: t[:1])
    for h in range(4):
        assert torch.allclose(gaze.poses[h : h + 1], first.turn(h).poses, atol=1e-5)


def test_it_copies_saves_and_learns() -> None:
    net = convert(TinyCNN(10), P4)
    again = convert(TinyCNN(10), P4)
    again.load_state_dict(copy.deepcopy(net).state_dict())
    nn.functional.cross_entropy(net(torch.randn(4, 3, 32, 32)), torch.tensor([0, 1, 2, 3])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert net.training
    assert not convert(TinyCNN(10).eval(), P4).training


class Means(nn.Module):
    """Its forward pass averages by itself, over the axes where a plane has its positions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).mean((2, 3)))


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (sequential(nn.GroupNorm(2, 8)), r"1 \(GroupNorm\): this kind of layer is not known"),
        (sequential(nn.Conv2d(8, 8, (3, 1))), r"1 \(Conv2d\): \(3, 1\) differs between the axes"),
        (sequential(nn.Conv2d(8, 8, 3, padding_mode="circular")), r"1 \(Conv2d\): padding .* 'circular'"),
        (sequential(nn.MaxPool2d(2, ceil_mode=True)), r"1 \(MaxPool2d\): ceil_mode"),
        (nn.Sequential(nn.AvgPool2d(2), *sequential()), r"0 \(AvgPool2d\): it takes the image itself"),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1)), "no linear layer"),
        (Means(), "the counterpart does not run; .* in or after (stem|head)"),
    ],
)
def test_what_cannot_be_converted_is_named(host: nn.Module, message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        convert(host, P4)


def test_a_network_that_does_not_run_says_what_it_needs() -> None:
    with pytest.raises(ConvertError, match="pass `example=`"):
        convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(7, 4)), P4)
