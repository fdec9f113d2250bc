"""The metric classes against the functions, over batches, objects and the order of columns."""

import subprocess
import sys

import pytest
import torch

import foveate.metrics
from foveate.gaze import Gaze
from foveate.metrics import AttentionInside, CatchingRate, FittingRate, PointingAccuracy, functional, where_metrics

CLASSES = {
    FittingRate: functional.fitting_rate,
    CatchingRate: functional.catching_rate,
    PointingAccuracy: functional.pointing_accuracy,
    AttentionInside: functional.attention_inside,
}


def batch(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    masks = torch.rand(count, 1, 12, 10, generator=generator) > 0.6
    return torch.rand(count, 1, 5, 4, generator=generator), masks


@pytest.mark.parametrize("kind", CLASSES)
def test_mean_over_images_however_they_are_batched(kind):
    maps, masks = batch(11)
    expected = CLASSES[kind](maps, masks).double().mean().item()
    whole, parts = kind(), kind()
    whole.update(maps, masks)
    for start, stop in [(0, 1), (1, 1), (1, 8), (8, 11)]:  # one batch is empty
        parts.update(Gaze(maps[start:stop]), masks[start:stop])
    assert whole.compute().item() == pytest.approx(expected, abs=1e-6)
    assert parts.compute().item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", CLASSES)
def test_two_processes_make_one(kind):
    """What DDP does: each process sees its part, of whatever size, and the states are summed."""
    maps, masks = batch(11)
    one, first, second = kind(), kind(), kind()
    one.update(maps, masks)
    first.update(maps[:3], masks[:3])
    second.update(maps[3:], masks[3:])
    assert set(first._reductions) == set(first._defaults) == {"total", "count"}
    for state, reduce in first._reductions.items():
        setattr(first, state, reduce(torch.stack([getattr(first, state), getattr(second, state)])))
    assert first.compute().item() == pytest.approx(one.compute().item(), abs=1e-6)


@pytest.mark.parametrize("kind", CLASSES)
def test_forward_reset_and_nothing_seen(kind):
    maps, masks = batch(4)
    metric = kind()
    assert metric(maps, masks).item() == pytest.approx(CLASSES[kind](maps, masks).mean().item(), abs=1e-6)
    metric.reset()
    metric.update(maps[:0], masks[:0])
    assert metric.compute() == 0


def test_images_without_object_have_no_place_to_look():
    maps, masks = batch(6)
    masks[::2] = False
    for kind in (PointingAccuracy, AttentionInside):
        metric = kind()
        metric.update(maps, masks)
        assert metric.count == 3
        assert metric.compute().item() == pytest.approx(CLASSES[kind](maps, masks)[1::2].mean().item(), abs=1e-6)
    fit = FittingRate()
    fit.update(maps, masks)
    assert fit.count == 6


def test_threshold_reaches_the_function():
    maps, masks = batch(5)
    for kind in (FittingRate, CatchingRate):
        found = set()
        for threshold in (0.5, "mean", "area"):
            metric = kind(threshold)
            metric.update(maps / 20, masks)
            assert metric.compute().item() == pytest.approx(CLASSES[kind](maps / 20, masks, threshold).mean().item())
            found.add(metric.compute().item())
        assert len(found) == 3


def test_columns_in_order_and_never_one_for_another():
    """On a perfect first batch all four are 1; a collection that groups equal states would then compute one of them."""
    collection = where_metrics("area")
    names = ["fitting_rate", "catching_rate", "pointing_accuracy", "attention_inside"]
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 1:3, 1:3] = 1
    collection.update(mask, mask)
    assert list(collection.compute()) == names
    assert [v.item() for v in collection.compute().values()] == [1, 1, 1, 1]
    maps, masks = batch(7)
    collection.update(maps, masks)
    for name, value in collection.compute().items():
        extra = ("area",) if name in names[:2] else ()
        expected = (1 + getattr(functional, name)(maps, masks, *extra).sum()) / 8
        assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    assert [m.higher_is_better for m in collection.values()] == [True] * 4


def test_update_takes_no_gradient_and_any_float_type():
    maps, masks = batch(3)
    metric = FittingRate()
    metric.update(maps.bfloat16().requires_grad_(), masks)
    assert not metric.compute().requires_grad


def test_functions_need_torch_alone():
    code = "import sys, foveate.metrics.functional; sys.exit('torchmetrics' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_missing_torchmetrics_names_the_extra():
    code = """
import sys
sys.modules["torchmetrics"] = None
import foveate.metrics
try:
    foveate.metrics.FittingRate
except ImportError as error:
    sys.exit(0 if "foveate[train]" in str(error) else str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_exist():
    for name in foveate.metrics.__all__:
        assert getattr(foveate.metrics, name).__name__ == name
    with pytest.raises(AttributeError, match="Sharpness"):
        foveate.metrics.Sharpness  # noqa: B018
