"""Attentions that take a network's classifier into account, or its place."""

import pytest
import torch
from torch import nn

import foveate as fv
from foveate.attention.bottleneck import BottleneckGaze
from foveate.attention.latent import Encode
from foveate.models import Recipe, build
from foveate.models.ends import linear_classifier, put_bottleneck


def test_the_bottleneck_brings_its_head_and_its_options() -> None:
    options = {"latent": 16, "beta": 0.5, "commitment": 0.3, "anchors": 7}
    model = build(Recipe("tiny", ["a", "b", "c"], "bottleneck-quantised", options=options)).train()
    with fv.watch(model) as seen:
        assert model(torch.rand(2, 3, 64, 64)).shape == (2, 3)
    gaze, (code,) = seen["stages.3"], seen.others.values()
    assert isinstance(gaze, BottleneckGaze)
    assert (gaze.usage.shape[1], gaze.commitment) == (7, 0.3)
    assert (code.mean.shape, code.beta) == ((2, 16), 0.5)
    assert len(build(Recipe("tiny", ["a", "b"], "bottleneck-quantised")).stages[3][-1].foveate.look.anchors) == 20
    assert build(Recipe("tiny", ["a", "b"], "bottleneck")).stages[3][-1].foveate.look.anchors is None


def test_dvib_is_the_head_alone() -> None:
    model = build(Recipe("tiny", ["a", "b", "c"], "dvib", options={"latent": 8}))
    assert isinstance(model.classifier, fv.BottleneckHead)
    assert [m.numbers.out_features for m in model.modules() if isinstance(m, Encode)] == [16]
    with fv.watch(model) as seen:
        model(torch.rand(2, 3, 64, 64))
    assert not seen
    assert seen.penalty > 0


def test_a_branch_votes_for_the_classes_of_the_network() -> None:
    model = build(Recipe("tiny", ["a", "b", "c"], "attention-branch"))
    with fv.watch(model) as seen:
        model(torch.rand(2, 3, 64, 64))
    assert seen["stages.3"].branch_logits.shape == (2, 3)


def test_a_hidden_layer_before_the_logits_stays() -> None:
    model = build(Recipe("tiny", ["a", "b", "c"], "bottleneck", hidden=12))
    assert isinstance(model.classifier[0], nn.Linear)
    assert isinstance(model.classifier[2], fv.BottleneckHead)
    assert model.classifier[2].encode.numbers.in_features == 12


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "convnext_atto"])
def test_published_networks_take_them(name: str) -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model(name, num_classes=4)
    expected = model.get_submodule(model.pretrained_cfg["classifier"])
    assert linear_classifier(model)[1] is expected
    where = model.feature_info[-1]["module"]
    attended = put_bottleneck(model, [where], {"latent": 8}, anchors=4).eval()
    with torch.no_grad():
        assert fv.predict(attended, torch.rand(2, 3, 64, 64)).logits.shape == (2, 4)


def test_a_network_without_a_linear_classifier_is_told_what_to_do() -> None:
    with pytest.raises(ValueError, match="has no linear classifier"):
        put_bottleneck(nn.Sequential(nn.Conv2d(3, 4, 3)), ["0"], {})
