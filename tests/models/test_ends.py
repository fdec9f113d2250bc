"""Attentions that take a network's classifier into account, or its place."""

import copy

import pytest
import torch
from torch import nn

import foveate as fv
from foveate.attention.bottleneck import BottleneckGaze
from foveate.attention.latent import Encode
from foveate.data import Preprocess
from foveate.models import Recipe, build, load, save
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


@pytest.mark.parametrize("name", ["tiny", "resnet18"])
def test_class_activation_is_the_network_as_it_was_and_its_map_is_that_of_its_class(name: str, tmp_path) -> None:
    if name != "tiny":
        pytest.importorskip("timm")
    torch.manual_seed(3)
    plain = build(Recipe(name, ["a", "b", "c"])).eval()
    recipe = Recipe(name, ["a", "b", "c"], "class-activation")
    model = build(recipe).eval()
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    images, features = torch.rand(2, 3, 64, 64), []
    handle = plain.get_submodule("global_pool").register_forward_pre_hook(lambda _, given: features.append(given[0]))
    with torch.no_grad(), fv.watch(copy.deepcopy(model)) as nothing, fv.watch(model) as seen:
        logits = model(images)
        assert torch.allclose(logits, plain(images), atol=1e-5)
    handle.remove()
    assert not nothing
    classifier = linear_classifier(plain)[1]
    scores = torch.einsum("bc,bchw->bhw", classifier.weight[logits.argmax(1)], features[0])
    low, high = scores.amin((1, 2), keepdim=True), scores.amax((1, 2), keepdim=True)
    assert torch.allclose(seen["global_pool"].map[:, 0], (scores - low) / (high - low), atol=1e-4)
    twin = copy.deepcopy(model)  # which looks through its own classifier
    with torch.no_grad():
        linear_classifier(model)[1].weight.zero_()
        with fv.watch(twin) as again:
            twin(images)
    assert torch.allclose(again["global_pool"].map, seen["global_pool"].map)
    save(twin, recipe, Preprocess(64), tmp_path / "net.safetensors")
    with torch.no_grad():
        assert torch.allclose(load(tmp_path / "net.safetensors")(images), logits, atol=1e-6)


def test_class_activation_needs_a_classifier_of_the_averaged_features() -> None:
    with pytest.raises(ValueError, match="averaged features alone"):
        build(Recipe("tiny", ["a", "b", "c"], "class-activation", hidden=12))


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
