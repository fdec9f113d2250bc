"""Gaze, Gazes and watch."""

import copy

import pytest
import torch
from small import SmallCNN, small_cnn
from torch import Tensor, nn

import foveate as fv
from foveate.gaze import Gaze, Look, looks
from foveate.geometry import similarity, warp

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(7))
LAYER = "stages.1"


@pytest.fixture
def model() -> SmallCNN:
    return fv.attach(small_cnn(), LAYER, fv.RectangularAttention, widths=(4, 6, 8))


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# --- watch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_watch_sees_the_gaze_and_leaves_no_hook(model: SmallCNN, context) -> None:
    before = hooks_of(model)
    with context(), fv.watch(model) as gazes:
        watched = model(IMAGES)
        plain = model(IMAGES)
    assert torch.equal(watched, plain)
    assert hooks_of(model) == before
    gaze = gazes[LAYER]
    assert (gaze.map.shape, gaze.center.shape) == ((3, 1, 8, 8), (3, 2))
    assert (gaze.extent.shape, gaze.angle.shape) == ((3, 2), (3,))
    assert gaze.penalty == 0
    assert len(gaze) == 3


def test_the_map_that_watch_shows_is_the_one_that_was_applied(model: SmallCNN) -> None:
    seen: dict[str, Tensor] = {}
    model.nothing.register_forward_hook(lambda _, inputs, output: seen.update(after=output))
    with fv.watch(model) as gazes:
        model(IMAGES)
    features = fv.detach(copy.deepcopy(model)).stages(model.stem(IMAGES))
    map = gazes[LAYER].map
    rescaled = map * 64 / map.sum(dim=(2, 3), keepdim=True)
    assert torch.allclose(seen["after"], features + rescaled * features, atol=1e-6)


def test_gradients_flow_through_what_watch_hands_out(model: SmallCNN) -> None:
    model.train()
    for value in ("map", "center", "extent", "angle"):
        model.zero_grad()
        with fv.watch(model) as gazes:
            model(IMAGES)
        getattr(gazes[LAYER], value).square().sum().backward()
        assert model.stem[0].weight.grad.abs().sum() > 0, value
        assert model.head.weight.grad is None


def test_watch_leaves_no_hook_after_an_exception(model: SmallCNN) -> None:
    before = hooks_of(model)
    with pytest.raises(RuntimeError), fv.watch(model):
        model(torch.zeros(1, 4, 8, 8))
    assert hooks_of(model) == before


def test_watch_nests(model: SmallCNN) -> None:
    with fv.watch(model) as outer:
        model(IMAGES)
        with fv.watch(model) as inner:
            model(IMAGES[:1])
        assert len(inner[LAYER]) == len(outer[LAYER]) == 1
        model(IMAGES[:2])
    assert (len(inner[LAYER]), len(outer[LAYER])) == (1, 2)


def test_no_module_keeps_state_between_calls(model: SmallCNN) -> None:
    def state() -> list[list[str]]:
        return [sorted(m.__dict__) + sorted(m._buffers) for m in model.modules()]

    before = state()
    with fv.watch(model):
        model(IMAGES)
    assert state() == before


def test_several_attentions_and_kinds_at_once() -> None:
    model = small_cnn()
    fv.attach(model, "stem", fv.PositionwiseAttention)
    fv.attach(model, "stages.0", fv.CBAMAttention)
    fv.attach(model, LAYER, fv.RectangularAttention, count=2)
    with fv.watch(model) as gazes:
        model(IMAGES)
    assert {name: gaze.map.shape[2] for name, gaze in gazes.items()} == {"stem": 16, "stages.0": 8, LAYER: 8}
    assert gazes[LAYER].center.shape == (3, 2, 2)


def test_an_attention_as_a_plain_layer() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), fv.RectangularAttention(8), nn.Sequential(fv.PositionwiseAttention(8)))
    with fv.watch(model) as gazes:
        model(IMAGES)
    assert sorted(gazes) == ["1", "2.0"]
    with fv.watch(model[1]) as gazes:
        model(IMAGES)
    assert list(gazes) == [""]


def test_a_look_alone_and_inside_another_module() -> None:
    class Mine(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.inner = fv.RectangularAttention(channels)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    model = fv.attach(small_cnn(), LAYER, Mine)
    assert list(looks(model)) == ["stages.1.1.foveate.inner"]
    look = fv.RectangularAttention(4).look
    with fv.watch(look) as gazes:
        look(torch.rand(1, 4, 5, 5))
    assert list(gazes) == [""]


def test_a_missing_gaze_says_which_there_are(model: SmallCNN) -> None:
    with fv.watch(model) as gazes:
        with pytest.raises(KeyError, match=r"no gaze at 'stages\.1'; there are: none: has the model run"):
            gazes[LAYER]
        model(IMAGES)
    with pytest.raises(KeyError, match=r"no gaze at 'stem'; there are: 'stages\.1'"):
        gazes["stem"]


@pytest.mark.parametrize("wrap", ["torch.compile", "model.compile", "a compiled part"])
def test_watch_on_a_compiled_model(model: SmallCNN, wrap: str) -> None:
    plain = copy.deepcopy(model)
    compiled: nn.Module = model
    if wrap == "model.compile":
        model.compile(backend="eager")
    else:
        compiled = torch.compile(model, backend="eager")
    compiled(IMAGES)  # the graph is there before anybody watches
    if wrap == "a compiled part":
        compiled = nn.Sequential(compiled)
    with fv.watch(compiled) as gazes:
        logits = compiled(IMAGES)
    name = f"0.{LAYER}" if wrap == "a compiled part" else LAYER
    assert list(gazes) == [name]
    assert torch.allclose(logits, plain(IMAGES), atol=1e-5)
    gazes[name].map.sum().backward()
    assert model.stem[0].weight.grad.abs().sum() > 0
    assert torch.allclose(compiled(IMAGES), logits, atol=1e-5)


def test_a_look_of_ones_own() -> None:
    class Border(Look):
        """Looks at the border, whatever is there."""

        def forward(self, x: Tensor) -> Gaze:
            map = torch.ones(x.shape[0], 1, *x.shape[2:])
            map[:, :, 1:-1, 1:-1] = 0
            return Gaze(map)

    model = fv.attach(small_cnn(), LAYER, fv.SpatialAttention(Border(), combine="multiply"))
    with fv.watch(model) as gazes:
        model(IMAGES)
    assert gazes[LAYER].map.sum() == 3 * 28


def test_a_look_must_say_how_it_looks() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Look()


# --- Gaze ---------------------------------------------------------------------------------------------------------


def test_a_gaze_moves_with_the_image() -> None:
    gaze = Gaze(torch.rand(2, 1, 9, 9))
    matrix = similarity(torch.tensor([0.3, -1.0]), torch.tensor([1.1, 0.7]), torch.tensor([[0.1, 0.0], [0.0, -0.2]]))
    assert torch.equal(gaze.move(matrix).map, warp(gaze.map, matrix))
    moved = gaze.move(similarity(torch.zeros(2), torch.ones(2), torch.tensor([[1 / 9, 0.0], [0.0, 0.0]])))
    assert torch.allclose(moved.map[0, :, 1:], gaze.map[0, :, :-1], atol=1e-6)
    assert torch.allclose(moved.map[1], gaze.map[1], atol=1e-6)


def test_distance_of_maps() -> None:
    ours, other = Gaze(torch.rand(2, 1, 4, 5)), Gaze(torch.rand(2, 1, 4, 5))
    naive = [sum((a - b) ** 2 for a, b in zip(p.flatten(), q.flatten(), strict=True)) / 20
             for p, q in zip(ours.map, other.map, strict=True)]  # fmt: skip
    assert torch.allclose(ours.distance(other), torch.stack(naive))
    assert torch.equal(ours.distance(ours), torch.zeros(2))


def test_render_to_another_size_keeps_a_constant_map() -> None:
    assert torch.allclose(Gaze(torch.full((1, 1, 3, 4), 0.3)).render((7, 9)), torch.full((1, 1, 7, 9), 0.3))


def test_detach_and_apply_reach_every_tensor(model: SmallCNN) -> None:
    with fv.watch(model) as gazes:
        model(IMAGES)
    gaze = gazes[LAYER]
    free, first = gaze.detach(), gaze.apply(lambda t: t[:1])
    assert type(free) is type(first) is type(gaze)
    for name in ("map", "center", "extent", "angle"):
        assert getattr(gaze, name).requires_grad
        assert not getattr(free, name).requires_grad
        assert torch.equal(getattr(first, name), getattr(gaze, name)[:1])
    assert (free.sharpness, free.shape) == (gaze.sharpness, gaze.shape)
