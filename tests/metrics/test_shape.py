"""Smoothness, entropy and equivariance error as means over images."""

import pytest
import torch

from foveate.attention.rectangular import RectangleGaze
from foveate.gaze import Gaze
from foveate.geometry import random_similarity, similarity
from foveate.metrics import EquivarianceError, MapEntropy, MapSmoothness, functional, shape_metrics


def rectangles(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    center, extent = torch.rand(2, count, 2, generator=generator)
    return RectangleGaze.draw(center, 0.1 + 0.3 * extent, torch.rand(count, generator=generator), (8, 6))


@pytest.mark.parametrize(
    ("kind", "function"), [(MapSmoothness, functional.map_smoothness), (MapEntropy, functional.map_entropy)]
)
def test_mean_over_images(kind, function):
    gaze = rectangles(7)
    metric = kind()
    metric.update(gaze.apply(lambda t: t[:2]))
    metric.update(gaze.map[2:2])
    metric.update(gaze.map[2:])
    assert metric.compute().item() == pytest.approx(function(gaze).mean().item(), abs=1e-6)


def test_columns():
    collection = shape_metrics()
    collection.update(torch.zeros(2, 1, 4, 4))
    assert {name: value.item() for name, value in collection.compute().items()} == {"smoothness": 0.0, "entropy": 1.0}
    assert list(collection) == ["smoothness", "entropy"]


def test_equivariant_gazes_have_no_error_and_others_have():
    gaze, matrix = rectangles(6), random_similarity(6, generator=torch.Generator().manual_seed(0))
    for of in ("map", "gaze"):
        exact, lazy = EquivarianceError(of), EquivarianceError(of)
        exact.update(gaze, gaze.move(matrix), matrix)
        lazy.update(gaze, gaze, matrix)
        assert exact.compute().item() == pytest.approx(0, abs=1e-6)
        assert lazy.compute() > 0.01


def test_gaze_error_is_the_distance_and_map_error_the_function():
    gaze, seen = rectangles(5), rectangles(5, seed=1)
    matrix = random_similarity(5, generator=torch.Generator().manual_seed(0))
    by_gaze, by_map = EquivarianceError("gaze"), EquivarianceError()
    for part in (slice(0, 2), slice(2, 2), slice(2, 5)):
        one, other = gaze.apply(lambda t, part=part: t[part]), seen.apply(lambda t, part=part: t[part])
        by_gaze.update(one, other, matrix[part])
        by_map.update(one, other, matrix[part])
    assert by_gaze.compute().item() == pytest.approx(gaze.move(matrix).distance(seen).mean().item(), abs=1e-6)
    assert by_map.compute().item() == pytest.approx(
        functional.equivariance_error(gaze, seen, matrix).mean().item(), abs=1e-6
    )


def test_images_moved_out_of_sight_are_left_out():
    maps = torch.rand(2, 1, 8, 8)
    shift = torch.tensor([[0.0, 0.0], [5.0, 5.0]])
    metric = EquivarianceError()
    metric.update(maps, 1 - maps, similarity(torch.zeros(2), torch.ones(2), shift))
    assert metric.count == 1
    assert metric.compute().item() == pytest.approx((2 * maps[0] - 1).abs().mean().item(), abs=1e-5)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'angle'"):
        EquivarianceError("angle")
    with pytest.raises(TypeError, match="compares gazes"):
        EquivarianceError("gaze").update(torch.rand(1, 1, 4, 4), Gaze(torch.rand(1, 1, 4, 4)), torch.eye(3)[None, :2])
