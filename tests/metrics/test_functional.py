"""The numbers of one image against numpy loops, and at the edges where a formula would divide by zero."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.attention.rectangular import RectangleGaze
from foveate.gaze import Gaze
from foveate.geometry import inverse, random_similarity, similarity
from foveate.metrics import functional as M

SHAPES = [(0, 4, 4), (1, 1, 1), (2, 1, 7), (3, 5, 1), (2, 6, 9), (4, 8, 8)]
WITH_MASK = [M.fitting_rate, M.catching_rate, M.pointing_accuracy, M.attention_inside]


def maps_and_masks(shape, seed=0, levels=5):
    """Maps with few levels, so that many values tie; masks of every kind, none and all included."""
    generator = torch.Generator().manual_seed(seed)
    batch, height, width = shape
    maps = torch.randint(levels, (batch, 1, height, width), generator=generator) / (levels - 1)
    share = torch.rand(batch, 1, 1, generator=generator)
    return maps, torch.rand(batch, height, width, generator=generator) < share


def naive_attended(map, mask, threshold):
    if threshold == "mean":
        cut = sum(map) / len(map)
        return [v > cut + 1e-9 for v in map]
    if threshold == "area":
        size = sum(mask)
        cut = sorted(map, reverse=True)[size - 1] if size else math.inf
        return [v >= cut for v in map]
    return [v > threshold for v in map]


def naive(name, map, mask, threshold):
    """One image as flat lists of numbers, without any array operation."""
    seen = naive_attended(map, mask, threshold)
    if name == "fitting_rate":
        union = sum(s or m for s, m in zip(seen, mask, strict=True))
        return sum(s and m for s, m in zip(seen, mask, strict=True)) / union if union else 1.0
    if name == "catching_rate":
        return sum((1 if s else -1) * (1 if m else -1) for s, m in zip(seen, mask, strict=True)) / len(map)
    if name == "pointing_accuracy":
        top = [m for v, m in zip(map, mask, strict=True) if v == max(map)]
        return sum(top) / len(top)
    total = sum(map)
    return sum(v for v, m in zip(map, mask, strict=True) if m) / total if total else sum(mask) / len(mask)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threshold", [0.5, 0.25, "mean", "area"])
@pytest.mark.parametrize("metric", WITH_MASK)
def test_against_loops(metric, shape, threshold):
    takes_threshold = metric in (M.fitting_rate, M.catching_rate)
    for seed in range(5):
        maps, masks = maps_and_masks(shape, seed)
        found = metric(maps, masks, threshold) if takes_threshold else metric(maps, masks)
        pairs = zip(maps.double().flatten(1).tolist(), masks.flatten(1).tolist(), strict=True)
        expected = [naive(metric.__name__, map, mask, threshold) for map, mask in pairs]
        assert found.shape == (shape[0],)
        assert found.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("metric", WITH_MASK)
def test_mask_kinds_agree(metric):
    maps, masks = maps_and_masks((3, 6, 5))
    for other in (masks[:, None], masks.int(), masks.float(), 255 * masks.to(torch.uint8)):
        assert torch.equal(metric(maps, other), metric(maps, masks))
    assert torch.equal(metric(Gaze(maps), masks), metric(maps, masks))


@pytest.mark.parametrize("metric", WITH_MASK)
def test_gaze_is_rendered_and_map_is_resized(metric):
    """A rectangle is drawn afresh at the mask's size: better than its small map blown up, which is what a map gets."""
    center, extent, angle = torch.tensor([[0.4, 0.6]]), torch.tensor([[0.15, 0.3]]), torch.tensor([0.5])
    gaze = RectangleGaze.draw(center, extent, angle, (5, 5))
    mask = gaze.render((48, 64)) > 0.5
    assert torch.equal(metric(gaze, mask), metric(gaze.render((48, 64)), mask))
    assert torch.equal(metric(gaze.map, mask), metric(Gaze(gaze.map).render((48, 64)), mask))
    assert metric(gaze, mask) >= metric(gaze.map, mask)
    assert M.fitting_rate(gaze, mask) == 1 > M.fitting_rate(gaze.map, mask)


def test_flat_map_stays_tied_when_resized():
    """Interpolation ripples a flat map in its last digit; that must not make one pixel the maximum."""
    for value in (0.3, 0.7, 1e-3, 1 / 49):
        map, mask = torch.full((1, 1, 7, 7), value), torch.zeros(1, 50, 50)
        mask[:, :25] = 1
        assert M.pointing_accuracy(map, mask) == 0.5
        assert M.fitting_rate(map, mask, "mean") == 0
        assert M.fitting_rate(map, mask, "area") == 0.5


def test_relative_thresholds_do_not_depend_on_scale():
    maps, masks = maps_and_masks((4, 9, 9), levels=1000)
    for threshold in ("mean", "area"):
        assert torch.equal(M.fitting_rate(maps / 81, masks, threshold), M.fitting_rate(maps, masks, threshold))
    assert not torch.equal(M.fitting_rate(maps / 81, masks), M.fitting_rate(maps, masks))


def test_empty_sets():
    nothing, mask = torch.zeros(1, 1, 4, 4), torch.zeros(1, 4, 4)
    assert M.fitting_rate(nothing, mask) == 1
    assert M.catching_rate(nothing, mask) == 1
    assert M.fitting_rate(nothing, mask, "area") == 1
    assert M.fitting_rate(nothing + 1, mask) == 0
    assert M.catching_rate(nothing + 1, mask) == -1
    assert M.pointing_accuracy(nothing + 1, mask) == 0
    assert M.attention_inside(nothing + 1, mask) == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_finite_and_in_range_for_any_map(height, width, data):
    numbers = st.floats(-(2.0**127), 2.0**127, width=32) | st.sampled_from([0.0, 1e-45, 1.0, 3e38])
    cells = data.draw(st.lists(numbers, min_size=height * width, max_size=height * width))
    map = torch.tensor(cells).view(1, 1, height, width)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width)))
    mask = mask.view(1, height, width)
    for metric in WITH_MASK:
        low = -1 if metric is M.catching_rate else 0
        assert low <= metric(map, mask).item() <= 1 + 1e-6
    assert -1e-6 <= M.map_entropy(map).item() <= 1 + 1e-6


def test_smoothness_against_loops():
    for shape in SHAPES:
        maps, _ = maps_and_masks(shape, levels=100)
        _, height, width = shape
        for found, map in zip(M.map_smoothness(maps), maps[:, 0].double().numpy(), strict=True):
            total = 0.0
            for i in range(height):
                for j in range(width):
                    down = (map[i + 1, j] - map[i, j]) * height if i + 1 < height else 0.0
                    right = (map[i, j + 1] - map[i, j]) * width if j + 1 < width else 0.0
                    total += math.sqrt(down**2 + right**2)
            assert found.item() == pytest.approx(total / (height * width), abs=1e-5)


def test_smoothness_keeps_its_number_at_any_resolution():
    center, extent, angle = torch.tensor([[0.45, 0.5]]), torch.tensor([[0.2, 0.3]]), torch.tensor([0.4])
    gaze = RectangleGaze.draw(center, extent, angle, (7, 7))
    fine = M.map_smoothness(gaze.render((512, 512))).item()
    assert M.map_smoothness(gaze.render((64, 64))).item() == pytest.approx(fine, rel=0.02)
    assert M.map_smoothness(gaze.render((96, 48))).item() == pytest.approx(fine, rel=0.04)
    ones = torch.zeros(1, 1, 40, 40)
    ones[:, :, 8:24, 10:30] = 1  # 16/40 by 20/40: a perimeter of 1.8, less a corner where two sides meet in one pixel
    assert M.map_smoothness(ones).item() == pytest.approx(1.8, abs=2 / 40)
    noise = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0)).round()
    assert M.map_smoothness(noise) > 10 * fine


def test_entropy_against_numpy():
    for shape in SHAPES[1:]:
        maps, _ = maps_and_masks(shape, levels=100)
        for found, map in zip(M.map_entropy(maps), maps.flatten(1).double().numpy(), strict=True):
            share = map / map.sum() if map.sum() else np.full(map.size, 1 / map.size)
            entropy = -sum(p * math.log(p) for p in share if p > 0)
            assert found.item() == pytest.approx(entropy / math.log(map.size) if map.size > 1 else 1.0, abs=1e-5)
    assert M.map_entropy(torch.zeros(2, 1, 3, 3)).tolist() == pytest.approx([1.0, 1.0])
    assert M.map_entropy(torch.rand(0, 1, 3, 3)).shape == (0,)


def test_known_pixels_against_a_loop():
    matrix = random_similarity(5, generator=torch.Generator().manual_seed(0))
    height, width = 6, 9
    known = M.known_pixels(matrix, (height, width))
    for b in range(5):
        back = inverse(matrix)[b].double().numpy()
        for i in range(height):
            for j in range(width):
                row, column = back[:, :2] @ [(i + 0.5) / height, (j + 0.5) / width] + back[:, 2]
                inside = 0.5 <= row * height <= height - 0.5 and 0.5 <= column * width <= width - 0.5
                assert known[b, 0, i, j].item() == inside


def test_equivariance_error_of_an_exact_shift_and_of_a_wrong_one():
    maps = torch.rand(2, 1, 6, 6)
    shift = similarity(torch.zeros(2), torch.ones(2), torch.tensor([[2 / 6, -1 / 6]]).expand(2, 2))
    seen = torch.rand(2, 1, 6, 6)  # what comes from outside the image is anything
    seen[:, :, 2:, :5] = maps[:, :, :4, 1:]
    assert M.equivariance_error(maps, seen, shift).tolist() == pytest.approx([0, 0], abs=1e-5)
    seen[:, :, 3, 2] += 0.5
    assert M.equivariance_error(maps, seen, shift).tolist() == pytest.approx([0.5 / 20] * 2, abs=1e-5)
    away = similarity(torch.zeros(2), torch.ones(2), torch.full((2, 2), 3.0))
    assert M.equivariance_error(maps, seen, away).tolist() == [0, 0]


def test_equivariance_error_of_a_gaze_moves_the_gaze():
    """A rectangle is moved by its numbers, so the rectangle that an equivariant look sees has no error at all."""
    matrix = random_similarity(3, generator=torch.Generator().manual_seed(1))
    gaze = RectangleGaze.draw(torch.rand(3, 2), torch.full((3, 2), 0.2), torch.rand(3), (9, 9))
    seen = gaze.move(matrix)
    assert M.equivariance_error(gaze, seen, matrix).tolist() == [0, 0, 0]
    assert (M.equivariance_error(gaze.map, seen.map, matrix) > 0).all()  # the warped small map is only near
    assert (M.equivariance_error(gaze, gaze, matrix) > 0.01).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: M.fitting_rate(torch.rand(2, 1, 4, 4), torch.ones(3, 4, 4)), "2 maps and 3 masks"),
        (lambda: M.fitting_rate(torch.rand(2, 4, 4), torch.ones(2, 4, 4)), r"map must be of shape \(B, 1, H, W\)"),
        (lambda: M.fitting_rate(torch.rand(2, 1, 4, 4), torch.ones(2, 3, 4, 4)), "mask must be of shape"),
        (lambda: M.fitting_rate(torch.rand(2, 1, 4, 4), torch.ones(2, 4, 4), "median"), "'median'"),
        (
            lambda: M.equivariance_error(torch.rand(1, 1, 4, 4), torch.rand(1, 1, 5, 5), torch.eye(3)[None, :2]),
            "of one shape",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
