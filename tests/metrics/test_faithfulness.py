"""Deletion and insertion against loops over pixels, on networks that are known to need one part of the image."""

import math

import pytest
import torch
from small import small_cnn
from torch import nn

from foveate.attention.rectangular import RectangleGaze
from foveate.gaze import Gaze
from foveate.metrics import DeletionCurve, InsertionCurve
from foveate.metrics.faithfulness import area_under, attention_rank, deletion_curve, filled, insertion_curve


def naive_curve(model, image, map, label, steps, fill, deletes):
    """One image, one pixel at a time: no ranks, no masks."""
    _, height, width = image.shape
    pixels = sorted(((i, j) for i in range(height) for j in range(width)), key=lambda p: -float(map[p]))
    shown = (image if deletes else fill).clone()
    other = fill if deletes else image
    points, done = [], 0
    for step in range(steps + 1):
        while done < round(step * height * width / steps):
            i, j = pixels[done]
            shown[:, i, j] = other[:, i, j]
            done += 1
        logits = model(shown[None])[0].tolist()
        shares = [math.exp(v - max(logits)) for v in logits]
        points.append(shares[label] / sum(shares))
    return points


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize(
    ("curve", "fill"), [(deletion_curve, "mean"), (deletion_curve, 0.3), (insertion_curve, "blur")]
)
def test_curves_against_loops(curve, fill, steps):
    model = small_cnn()
    images, maps = torch.rand(3, 3, 8, 9), torch.rand(3, 1, 8, 9)
    found = curve(model, images, maps, steps=steps, fill=fill)
    with torch.no_grad():
        labels = model(images).argmax(1).tolist()
        for k in range(3):
            left = filled(images, fill)[k]
            deletes = curve is deletion_curve
            expected = naive_curve(model, images[k], maps[k, 0], labels[k], steps, left, deletes)
            assert found[k].tolist() == pytest.approx(expected, abs=1e-4)
    if curve is insertion_curve:
        assert torch.allclose(found[:, -1], model(images).softmax(1).amax(1), atol=1e-5)


class Corner(nn.Module):
    """Says 1 by the brightness of the upper left quarter of the image, and cares for nothing else."""

    def forward(self, x):
        seen = x[:, :, : x.shape[2] // 2, : x.shape[3] // 2].mean((1, 2, 3))
        return torch.stack([torch.zeros_like(seen), 12 * seen - 3], 1)


def test_a_map_of_what_is_needed_beats_chance_and_one_of_what_is_not_loses():
    model, images = Corner(), torch.rand(30, 3, 16, 16)
    needed = torch.zeros(30, 1, 16, 16)
    needed[:, :, :8, :8] = 1
    maps = {"needed": needed, "chance": torch.ones(30, 1, 16, 16), "not": 1 - needed}
    g = torch.Generator().manual_seed(0)
    gone = {k: area_under(deletion_curve(model, images, m, fill=0.0, generator=g)).mean() for k, m in maps.items()}
    come = {k: area_under(insertion_curve(model, images, m, fill=0.0, generator=g)).mean() for k, m in maps.items()}
    assert gone["needed"] < gone["chance"] - 0.1 < gone["not"] - 0.2
    assert come["needed"] > come["chance"] + 0.1 > come["not"] + 0.2


def test_flat_maps_take_pixels_at_random_by_the_generator():
    flat = torch.full((2, 1, 6, 5), 0.3)
    ranks = [attention_rank(flat, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(ranks[0], ranks[1])
    assert not torch.equal(ranks[0], ranks[2])
    assert not torch.equal(ranks[0][0], ranks[0][1])
    assert all(sorted(rank.flatten().tolist()) == list(range(30)) for rank in ranks[0])
    blown_up = attention_rank(Gaze(torch.full((1, 1, 7, 7), 0.7)).render((50, 50)), torch.Generator().manual_seed(0))
    row_means = blown_up.float().mean(2)[0]  # interpolation ripples a flat map; that must give no row a better place
    assert row_means.std() < 3 * 2500 / 12**0.5 / 50**0.5


def test_a_gaze_is_rendered_at_the_images_size():
    gaze = RectangleGaze.draw(torch.tensor([[0.3, 0.6]]), torch.tensor([[0.2, 0.1]]), torch.zeros(1), (3, 3))
    model, image = small_cnn(), torch.rand(1, 3, 24, 20)
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    by_gaze = deletion_curve(model, image, gaze, generator=one)
    assert torch.equal(by_gaze, deletion_curve(model, image, gaze.render((24, 20)), generator=other))


def test_area_is_that_of_trapezia():
    assert area_under(torch.tensor([1.0, 0.0])).item() == 0.5
    curve = torch.rand(4, 9)
    expected = sum((curve[:, k] + curve[:, k + 1]) / 2 / 8 for k in range(8))
    assert torch.allclose(area_under(curve), expected)


@pytest.mark.parametrize(("metric", "curve"), [(DeletionCurve, deletion_curve), (InsertionCurve, insertion_curve)])
def test_the_metric_is_the_mean_over_all_batches(metric, curve):
    model, images, maps = small_cnn(), torch.rand(7, 3, 8, 8), torch.rand(7, 1, 4, 4)
    labels = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    measured = metric(steps=6)
    for part in (slice(0, 2), slice(2, 2), slice(2, 7)):
        measured.update(model, images[part], maps[part], labels[part])
    each = curve(model, images, maps, labels, steps=6)
    assert torch.allclose(measured.compute(), each.mean(0), atol=1e-5)
    assert area_under(measured.compute()).item() == pytest.approx(area_under(each).mean().item(), abs=1e-5)


def test_shapes_and_errors():
    model, pixel = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)), torch.rand(1, 3, 1, 1)
    assert deletion_curve(model, pixel, torch.rand(1, 1, 1, 1), steps=3).shape == (1, 4)
    assert insertion_curve(model, torch.rand(0, 3, 4, 4), torch.rand(0, 1, 2, 2), steps=3).shape == (0, 4)
    with pytest.raises(ValueError, match="at least one step"):
        deletion_curve(model, pixel, torch.rand(1, 1, 1, 1), steps=0)
    with pytest.raises(ValueError, match="'mean', 'blur' or a number"):
        deletion_curve(model, pixel, torch.rand(1, 1, 1, 1), fill="grey")
