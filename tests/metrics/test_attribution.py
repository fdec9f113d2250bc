"""Captum's pieces against the formulas, written out."""

import pytest
import torch
from small import small_cnn
from torch import nn

import foveate as fv
from foveate.gaze import Gaze, Look
from foveate.metrics.attribution import grad_cam, sensitivity

pytest.importorskip("captum")


def test_grad_cam_is_the_weighted_sum_of_the_features():
    model, images = small_cnn(), torch.rand(3, 3, 32, 32)
    features = {}
    handle = model.stages[1].register_forward_hook(lambda _, __, output: features.setdefault("f", output))
    logits = model(images)
    handle.remove()
    labels = torch.tensor([4, 0, 2])
    (slope,) = torch.autograd.grad(logits.gather(1, labels[:, None]).sum(), features["f"])
    map = (slope.mean((2, 3), keepdim=True) * features["f"]).sum(1, keepdim=True).relu()
    gaze = grad_cam(model, "stages.1", images, labels)
    assert gaze.map.shape == (3, 1, 8, 8)
    for found, expected in zip(gaze.map, map, strict=True):
        assert torch.allclose(found, expected / expected.max() if expected.max() > 0 else expected, atol=1e-5)
    said = grad_cam(model, "stages.1", images)
    assert torch.allclose(said.map, grad_cam(model, "stages.1", images, logits.argmax(1)).map)


class Itself(Look):
    """Looks at the red channel as it is."""

    def forward(self, x):
        return Gaze(x[:, :1])


def test_sensitivity_is_the_largest_relative_change_and_follows_its_seed():
    model = nn.Sequential(Itself())
    model.forward = lambda x: model[0](x).map.mean((1, 2, 3))
    images = torch.rand(4, 3, 8, 8) + 0.5
    values = sensitivity(model, images, radius=0.1, samples=30)
    bound = 0.1 * 8 / images[:, 0].flatten(1).norm(dim=1)  # every one of 64 pixels off by the radius
    expected = bound / 3**0.5  # of uniform nudges
    assert (values <= bound).all()
    assert ((values > expected) & (values < 1.3 * expected)).all()
    assert torch.equal(values, sensitivity(model, images, radius=0.1, samples=30))
    assert not torch.equal(values, sensitivity(model, images, radius=0.1, samples=30, seed=1))


def test_sensitivity_takes_the_gaze_that_is_named():
    model = fv.attach(small_cnn(), "stages.0", fv.CBAMAttention)
    fv.attach(model, "stem.0", SpatialConstant)
    images = torch.rand(2, 3, 32, 32)
    assert sensitivity(model, images, at="stem.0").max() == 0
    assert sensitivity(model, images, at="stages.0").min() > 0
    assert torch.equal(sensitivity(model, images), sensitivity(model, images, at="stages.0"))
    assert sensitivity(model, images[:0]).shape == (0,)


class SpatialConstant(fv.SpatialAttention):
    """An attention that looks everywhere alike."""

    def __init__(self, channels):
        super().__init__(Everywhere())


class Everywhere(Look):
    def forward(self, x):
        return Gaze(torch.ones_like(x[:, :1]))
