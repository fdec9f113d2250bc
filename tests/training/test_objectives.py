import torch
from torch import nn

from foveate import RectangularAttention, watch
from foveate.attention.rectangular import RectangleGaze
from foveate.gaze import Gaze, Gazes, Look
from foveate.geometry import random_similarity, similarity
from foveate.training.objectives import equivariance_distance, penalties


class Costly(Gaze):
    @property
    def penalty(self):
        return self.map.sum()


def test_penalties_add_up() -> None:
    one = torch.ones(1, 1, 2, 2)
    assert penalties({"a": Costly(one), "b": Gaze(one), "c": Costly(2 * one)}) == 12
    assert penalties({}) == 0


class SeesTheBlob(Look):
    """A look that is equivariant by construction: a rectangle around the bright pixels' centre of mass."""

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x):
        weights = x[:, 0] / x[:, 0].sum(dim=(1, 2), keepdim=True)
        rows = (torch.arange(x.shape[2]) + 0.5) / x.shape[2]
        columns = (torch.arange(x.shape[3]) + 0.5) / x.shape[3]
        row, column = (weights.sum(2) * rows).sum(1), (weights.sum(1) * columns).sum(1)
        spread = ((weights.sum(2) * rows.square()).sum(1) - row.square()).sqrt()
        extent = torch.stack([spread, spread], 1)
        return RectangleGaze.draw(torch.stack([row, column + self.shift], 1), extent, torch.zeros(len(x)), (8, 8))


def _blobs() -> torch.Tensor:
    axis = (torch.arange(64) + 0.5) / 64
    far = (axis[:, None] - 0.45).square() + (axis - 0.55).square()
    return (-far / (2 * 0.06**2)).exp()[None, None].repeat(3, 1, 1, 1)


def _scaled_and_shifted(batch: int) -> torch.Tensor:
    return similarity(torch.zeros(batch), torch.tensor([0.9, 1.0, 1.2]), torch.full((batch, 2), 0.05))


def test_an_equivariant_look_has_no_distance_and_another_one_has() -> None:
    for shift, expected in ((0.0, 0.0), (0.1, (0.1**2 * ((0.1**2 + 0 + 0.2**2) / 3)))):
        model = nn.Sequential(SeesTheBlob(shift))
        with watch(model) as gazes:
            model(_blobs())
        distance = equivariance_distance(model, _blobs(), gazes, _scaled_and_shifted)
        assert abs(float(distance) - expected) < 2e-5


def test_gradients_reach_the_look_and_the_seed_decides() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), RectangularAttention(8, widths=(4, 4, 4)))
    images = torch.rand(4, 3, 32, 32)
    distances = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with watch(model) as gazes:
            model(images)
        distances.append(equivariance_distance(model, images, gazes))
    distances[0].backward()
    assert model[1].look.numbers.weight.grad.abs().sum() > 0
    assert distances[0] == distances[1] != distances[2]


def test_without_gazes_there_is_nothing_to_compare() -> None:
    assert equivariance_distance(nn.Identity(), torch.rand(2, 3, 8, 8), {}, random_similarity) == 0


def test_moved_images_leave_no_trace_in_running_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), RectangularAttention(8, widths=(4, 4, 4)))
    images = torch.rand(4, 3, 32, 32)
    with watch(model) as gazes:
        model(images)
    before = model[1].running_mean.clone(), model[1].running_var.clone()
    equivariance_distance(model, images, gazes)
    assert torch.equal(model[1].running_mean, before[0])
    assert torch.equal(model[1].running_var, before[1])
    model(images)
    assert not torch.equal(model[1].running_mean, before[0])


def test_a_penalty_of_its_own_is_a_price_and_the_usual_zero_is_none() -> None:
    gazes = Gazes()
    gazes["a"] = Gaze(torch.ones(1, 1, 2, 2))
    assert not gazes.priced
    gazes["b"] = Costly(torch.ones(1, 1, 2, 2))
    assert gazes.priced
