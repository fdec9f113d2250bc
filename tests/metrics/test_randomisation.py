"""A map that ignores the network is caught; one that follows its weights is not; the network stays as it was."""

import pytest
import torch
from scipy.stats import spearmanr
from small import small_cnn
from torch import nn

import foveate as fv
from foveate.attention import SpatialAttention
from foveate.gaze import Gaze, Look
from foveate.metrics.randomisation import cascading_randomisation, map_correlation


class Middle(Look):
    """A bright spot in the middle, whatever the network has learned: a prior that pretends to be an attention."""

    def forward(self, x):
        rows, columns = (torch.linspace(-1, 1, n) for n in x.shape[2:])
        spot = torch.exp(-2 * (rows[:, None] ** 2 + columns[None, :] ** 2))
        return Gaze(spot.expand(len(x), 1, -1, -1))


class Edges(Look):
    """Where the image itself has edges: it changes from image to image, but no weight has a part in it."""

    def __init__(self, images):
        super().__init__()
        edges = images.mean(1, keepdim=True).diff(dim=2).abs()
        self.edges = nn.functional.interpolate(edges, (8, 8), mode="bilinear")

    def forward(self, x):
        return Gaze(self.edges)


IMAGES = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def with_attention(look):
    model = small_cnn()
    return fv.attach(model, "stages.1", SpatialAttention(look), example=IMAGES)


@pytest.mark.parametrize("look", [Middle(), Edges(IMAGES)])
def test_a_map_that_ignores_the_network_is_caught(look):
    cascade = cascading_randomisation(with_attention(look), IMAGES)
    assert cascade.ignoring == ["stages.1"]
    assert cascade.similarity["stages.1"].tolist() == pytest.approx([1.0] * (len(cascade.layers) + 1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("attention", [fv.PositionwiseAttention, fv.CBAMAttention])
def test_a_map_that_follows_the_weights_is_not(attention, seed):
    torch.manual_seed(seed)
    model = fv.attach(small_cnn(seed), "stages.1", attention)
    cascade = cascading_randomisation(model, IMAGES, seed)
    similarity = cascade.similarity["stages.1"]
    assert cascade.ignoring == []
    assert similarity[0] == 1
    assert similarity[-1] < 0.8


def test_layers_go_from_the_output_down_and_only_what_a_map_looks_through_changes_it():
    model = fv.attach(small_cnn(), "stages.0", fv.CBAMAttention)
    cascade = cascading_randomisation(model, IMAGES, steps=100)
    assert [len(group) for group in cascade.layers] == [1] * len(cascade.layers)
    layers = [group[0] for group in cascade.layers]
    assert layers[0] == "head"
    assert layers[-1] == "stem.0"
    assert {name for name, module in model.named_modules() if module._parameters} == set(layers)
    above = next(k for k, name in enumerate(layers) if name.startswith(("stages.0", "stem")))
    similarity = cascade.similarity["stages.0"].tolist()
    assert similarity[: above + 1] == pytest.approx([1.0] * (above + 1))
    assert similarity[-1] < 0.8


def test_the_network_and_the_random_numbers_stay_as_they_were():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first = cascading_randomisation(model, IMAGES, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    again = cascading_randomisation(model, IMAGES, seed=1)
    assert torch.equal(first.similarity["stages.1"], again.similarity["stages.1"])


def test_steps_gather_the_layers_of_a_deep_network():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention)
    whole, gathered = (cascading_randomisation(model, IMAGES, steps=steps) for steps in (100, 3))
    assert len(gathered.layers) <= 3
    assert [name for group in gathered.layers for name in group] == [group[0] for group in whole.layers]
    assert gathered.similarity["stages.1"][-1] == whole.similarity["stages.1"][-1]


def test_correlation_against_scipy():
    for levels in (3, 1000):
        maps, others = (torch.randint(levels, (5, 1, 6, 7)).float() for _ in range(2))
        expected = [spearmanr(a.flatten(), b.flatten()).statistic for a, b in zip(maps, others, strict=True)]
        assert map_correlation(maps, others).tolist() == pytest.approx(expected, abs=1e-6)
    assert map_correlation(maps, maps**3).tolist() == pytest.approx([1.0] * 5)
    assert map_correlation(maps, -maps).tolist() == pytest.approx([-1.0] * 5)


def test_flat_maps_are_the_same_and_unlike_any_other():
    flat, other = torch.full((1, 1, 3, 3), 0.7), torch.rand(1, 1, 3, 3)
    assert map_correlation(flat, flat / 7) == 1
    assert map_correlation(flat, other) == 0
    assert map_correlation(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)) == 1
    assert map_correlation(flat, torch.full((1, 1, 3, 3), torch.nan)) == 1
    assert map_correlation(flat[:0], other[:0]).shape == (0,)


def test_a_network_without_attention_is_an_error():
    with pytest.raises(ValueError, match="no attention"):
        cascading_randomisation(small_cnn(), IMAGES)
