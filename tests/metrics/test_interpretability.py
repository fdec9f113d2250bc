"""The interpretability score against loops, over batches and processes, and on networks that are made to have one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import small_cnn
from torch import nn

import foveate as fv
from foveate.gaze import Gaze, Look
from foveate.metrics import InterpretabilityScore, interpretability_scores
from foveate.metrics import functional as M
from foveate.metrics.interpretability import CURVE
from foveate.metrics.modifications import color_block, paper_modifications


def naive_cosine(map, seen):
    dot = sum(a * b for a, b in zip(map, seen, strict=True))
    return dot / math.sqrt(sum(a * a for a in map)) / math.sqrt(sum(b * b for b in seen))


def naive_score(maps, seen, before, after, threshold):
    consistent = survivors = 0
    for map, other, logits, changed in zip(maps, seen, before, after, strict=True):
        if logits.index(max(logits)) == changed.index(max(changed)):
            survivors += 1
            consistent += naive_cosine(map, other) >= threshold
    return consistent / survivors if survivors else 0.0


def batch(size, seed=0, height=5, width=7):
    g = torch.Generator().manual_seed(seed)
    maps = torch.rand(size, 1, height, width, generator=g)
    seen = (maps + torch.rand(size, 1, 1, 1, generator=g) * torch.randn(maps.shape, generator=g)).clamp_min(0)
    return maps, seen, torch.rand(size, 3, generator=g), torch.rand(size, 3, generator=g)


def lists(maps, seen, before, after):
    return maps.double().flatten(1).tolist(), seen.double().flatten(1).tolist(), before.tolist(), after.tolist()


@pytest.mark.parametrize("size", [0, 1, 7, 40])
@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9, 0.99])
def test_the_score_is_the_loop_over_images(size, threshold):
    for seed in range(4):
        given = batch(size, seed)
        assert M.interpretability_score(*given, threshold).item() == pytest.approx(
            naive_score(*lists(*given), threshold)
        )
        metric = InterpretabilityScore(threshold)
        metric.update(*given)
        assert metric.compute().item() == pytest.approx(naive_score(*lists(*given), threshold))


def test_batches_and_processes_add_up():
    whole = batch(40)
    expected = naive_score(*lists(*whole), 0.8)
    metric, gazes = InterpretabilityScore(0.8), InterpretabilityScore(0.8)
    for part in (slice(0, 3), slice(3, 3), slice(3, 40)):
        maps, seen, before, after = (value[part] for value in whole)
        metric.update(maps, seen, before, after)
        gazes.update(Gaze(maps), Gaze(seen), before.argmax(1), after.argmax(1))
    assert metric.compute().item() == pytest.approx(expected)
    assert gazes.compute().item() == pytest.approx(expected)
    halves = [InterpretabilityScore(0.8) for _ in range(2)]
    for half, part in zip(halves, (slice(0, 11), slice(11, 40)), strict=True):
        half.update(*(value[part] for value in whole))
    # as torchmetrics does it: each state is gathered from every process, and reduced by the function it was added with
    for name, reduce in halves[0]._reductions.items():
        setattr(halves[0], name, reduce(torch.stack([getattr(half, name) for half in halves])))
    assert halves[0].compute().item() == pytest.approx(expected)


def test_several_thresholds_are_a_curve_of_scores():
    given = batch(60)
    metric = InterpretabilityScore(CURVE)
    metric.update(*given)
    curve = metric.compute()
    assert curve.shape == (101,)
    assert curve.tolist() == pytest.approx([naive_score(*lists(*given), t) for t in CURVE])
    assert (curve.diff() <= 0).all()
    assert curve[0] == 1 > curve[-1]
    assert M.interpretability_score(*given, CURVE).tolist() == pytest.approx(curve.tolist())


def test_only_survivors_count():
    maps = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).view(3, 1, 1, 2)
    seen = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]).view(3, 1, 1, 2)
    labels = torch.tensor([0, 1, 2])
    assert M.interpretability_score(maps, seen, labels, labels) == pytest.approx(1 / 3)
    assert M.interpretability_score(maps, seen, labels, torch.tensor([0, 1, 0])) == pytest.approx(1 / 2)
    assert M.interpretability_score(maps, seen, labels, torch.tensor([1, 1, 2])) == 0
    assert M.interpretability_score(maps, seen, labels, torch.tensor([1, 2, 0])) == 0  # nobody survives


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.data())
def test_cosines_are_finite_and_in_range_for_any_map(length, data):
    numbers = st.floats(-(2.0**127), 2.0**127, width=32) | st.sampled_from([0.0, 1e-45, 1.0, 3e38])
    maps = [torch.tensor(data.draw(st.lists(numbers, min_size=length, max_size=length))) for _ in range(2)]
    cosine = M.map_cosine(*(map.view(1, 1, 1, length) for map in maps)).item()
    assert -1 <= cosine <= 1
    assert M.map_cosine(*[maps[0].view(1, 1, 1, length)] * 2).item() == pytest.approx(1, abs=1e-5)


def test_cosine_does_not_depend_on_scale_and_zeros_are_uniform():
    maps, seen, *_ = batch(6)
    assert torch.allclose(M.map_cosine(1e30 * maps, 1e-30 * seen), M.map_cosine(maps, seen), atol=1e-6)
    assert M.map_cosine(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)) == pytest.approx(1)
    assert M.map_cosine(torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None]) == pytest.approx(0.5**0.5)
    half = M.map_cosine(maps.half(), seen.half())
    assert half.dtype == torch.float32
    assert torch.allclose(half, M.map_cosine(maps, seen), atol=1e-3)


def test_centred_cosines_are_correlations_and_uniform_maps_have_one_with_each_other_alone():
    maps, seen, before, after = batch(9)
    rows = torch.stack([maps.flatten(1), seen.flatten(1)], 1).double()
    expected = torch.stack([torch.corrcoef(row)[0, 1] for row in rows])
    assert torch.allclose(M.map_cosine(maps, seen, centred=True).double(), expected, atol=1e-5)
    assert torch.allclose(M.map_cosine(maps + 100, seen, centred=True).double(), expected, atol=1e-2)
    flat = torch.full((1, 1, 5, 7), 0.3)
    assert M.map_cosine(flat, 2 * flat, centred=True) == pytest.approx(1)
    assert M.map_cosine(flat, maps[:1], centred=True) == pytest.approx(0, abs=1e-6)
    metric = InterpretabilityScore([0.5, 0.9], centred=True)
    metric.update(maps, seen, before, after)
    kept = expected[before.argmax(1) == after.argmax(1)]
    assert metric.compute().tolist() == pytest.approx([float((kept >= t).double().mean()) for t in (0.5, 0.9)])


class Constant(Look):
    """Looks at the same place, whatever it is shown."""

    def forward(self, x):
        map = torch.zeros_like(x[:, :1])
        map[:, :, 0, 0] = 1
        return Gaze(map)


class Brightest(Look):
    """Looks at the brightest pixel alone, in the second channel (the image's own: the host below passes it on)."""

    def forward(self, x):
        flat = x[:, :1].flatten(1)
        return Gaze((flat == flat.amax(1, keepdim=True)).float().view_as(x[:, :1]))


class Decides(nn.Module):
    """Two gazes, and a class that depends on the mean of the red channel."""

    def __init__(self):
        super().__init__()
        self.fixed, self.moving = Constant(), Brightest()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x):
        self.fixed(x)
        self.moving(x)
        red = x[:, 0].mean((1, 2)) * self.one
        return torch.stack([red, 0.5 - red], 1)


def test_each_gaze_of_a_network_is_judged_by_itself_against_a_loop():
    images = torch.rand(50, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    modifications = {"block": lambda x, g: color_block(x, g, size=10)}
    model = Decides()
    found = interpretability_scores(model, [images[:20], {"image": images[20:]}], modifications, seed=4)
    assert list(found) == ["fixed", "moving"]

    generator = torch.Generator().manual_seed(4)
    consistent = survivors = 0
    for part in (images[:20], images[20:]):
        for image, changed in zip(part, color_block(part, generator, size=10), strict=True):
            if (image[0].mean() > 0.25) == (changed[0].mean() > 0.25):
                survivors += 1
                consistent += int(image[0].argmax()) == int(changed[0].argmax())
    assert 0 < consistent < survivors
    fixed, moving = (found[name]["block"] for name in ("fixed", "moving"))
    assert moving.score == pytest.approx(consistent / survivors)
    assert moving.survived == pytest.approx(survivors / 50)
    assert moving.images == 50
    assert fixed.score == 1 == fixed.curve.min()
    assert moving.curve[[1, 50, 100]].tolist() == pytest.approx([consistent / survivors] * 3)
    assert moving.centred_curve[[1, 50, 100]].tolist() == pytest.approx([consistent / survivors] * 3)


def test_a_modification_that_changes_nothing_scores_one_and_the_network_stays_as_it_was():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.rand(8, 3, 32, 32)
    state = torch.get_rng_state()
    found = interpretability_scores(model, [images], {"nothing": lambda x, _: x})
    assert found["stages.1"]["nothing"].score == 1 == found["stages.1"]["nothing"].survived
    assert torch.equal(found["stages.1"]["nothing"].curve, torch.ones(101))
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_same_seed_gives_the_same_scores_and_another_another():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention)
    images = torch.rand(64, 3, 32, 32)
    runs = [interpretability_scores(model, [images], paper_modifications(), 0.999, seed) for seed in (0, 0, 1)]
    curves = [torch.stack([outcome.curve for outcome in run["stages.1"].values()]) for run in runs]
    assert torch.equal(curves[0], curves[1])
    assert not torch.equal(curves[0], curves[2])


def test_errors_say_what_was_wrong():
    with pytest.raises(ValueError, match=r"a threshold is a cosine"):
        InterpretabilityScore(1.5)
    with pytest.raises(ValueError, match=r"a threshold is a cosine"):
        InterpretabilityScore([])
    with pytest.raises(ValueError, match="no attention"):
        interpretability_scores(small_cnn(), [torch.rand(1, 3, 32, 32)], paper_modifications())
    with pytest.raises(ValueError, match="4 and 6 pixels"):
        M.map_cosine(torch.rand(1, 1, 2, 2), torch.rand(1, 1, 2, 3))
