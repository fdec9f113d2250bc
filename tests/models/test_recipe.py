import json

import pytest
import timm
import torch
from safetensors.torch import save_file

from foveate import watch
from foveate.models import Recipe, TinyCNN, backbone, build, freeze, parameter_count

CLASSES = ["cat", "dog", "owl"]


@pytest.mark.parametrize("name", ["tiny", "resnet10t", "test_efficientnet", "test_convnext", "test_resnet"])
def test_any_backbone_attends_after_its_last_feature_map(name: str) -> None:
    model = build(Recipe(name, CLASSES, "rectangular"))
    with watch(model) as gazes:
        logits = model(torch.rand(2, 3, 96, 96))
    assert logits.shape == (2, 3)
    assert list(gazes) == list(backbone(name).last_feature_map(model))


def test_a_hidden_layer_and_options_reach_the_network() -> None:
    plain = build(Recipe("test_efficientnet", CLASSES))
    hidden = build(Recipe("test_efficientnet", CLASSES, hidden=512))
    inside = plain.get_classifier().in_features
    assert parameter_count(hidden) - parameter_count(plain) == (inside + 1) * 512 + 513 * 3 - (inside + 1) * 3
    model = build(Recipe("tiny", CLASSES, "rectangular", options={"count": 2}))
    with watch(model) as gazes:
        model(torch.rand(1, 3, 64, 64))
    assert gazes["stages.3"].center.shape == (1, 2, 2)


def test_a_recipe_survives_json() -> None:
    recipe = Recipe("tiny", CLASSES, "rectangular", ["stages.1", "stages.2"], {"sharpness": 9.0})
    assert Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_backbone_weights_come_from_a_file_and_a_classifier_for_other_classes_is_left_out(tmp_path) -> None:
    source = timm.create_model("test_efficientnet", num_classes=7)
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    model = build(Recipe("test_efficientnet", CLASSES, "positionwise"), tmp_path / "weights.safetensors")
    assert torch.equal(model.conv_stem.weight, source.conv_stem.weight)
    with pytest.raises(ValueError, match="does not fit the backbone"):
        build(Recipe("test_convnext", CLASSES), tmp_path / "weights.safetensors")
    with pytest.raises(FileNotFoundError, match="no weights at"):
        build(Recipe("test_convnext", CLASSES), tmp_path / "nothing.safetensors")


def test_unknown_names_say_the_near_ones() -> None:
    with pytest.raises(ValueError, match="resnet18"):
        build(Recipe("resnet18x", CLASSES))
    with pytest.raises(ValueError, match="rectangular"):
        build(Recipe("tiny", CLASSES, "rectangle"))


def test_frozen_layers_do_not_learn() -> None:
    model = TinyCNN(3)
    frozen = freeze(model, ["stages.0", "stages.1"])
    assert frozen == [model.stages[0], model.stages[1]]
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning
    assert not any(name.startswith(("stages.0.", "stages.1.")) for name in learning)
    with pytest.raises(ValueError, match=r"stages\.0"):
        freeze(model, ["stages.00"])


def test_normalisation_is_that_of_the_backbone() -> None:
    assert backbone("tf_efficientnet_lite0").mean == backbone("tf_efficientnet_lite0").std == (0.5, 0.5, 0.5)
    assert backbone("tiny").std == backbone("resnet18").std
