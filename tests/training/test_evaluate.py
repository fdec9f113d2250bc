"""What `evaluate` puts into the columns of a comparison."""

import math

import pytest
import torch
from small import small_cnn
from torch import nn

import foveate as fv
from foveate.data import Scenes, open_dataset, pack
from foveate.data.transforms import Preprocess
from foveate.geometry import similarity, warp
from foveate.groups import P4, convert
from foveate.metrics import functional
from foveate.metrics.modifications import paper_modifications
from foveate.models import TinyCNN
from foveate.training.evaluate import ACCURACIES, EVERY, error, evaluate, evaluate_checkpoint, quarter_turned

PREPARE = Preprocess(32, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))


def batches():
    generator = torch.Generator().manual_seed(5)
    images = PREPARE.normalise(torch.rand(22, 3, 32, 32, generator=generator))
    return [{"image": part, "label": torch.zeros(len(part), dtype=torch.long)} for part in images.split(13)]


def test_the_interpretability_column_is_the_score_of_every_fourth_image_under_four_modifications():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention)
    with torch.no_grad():  # an attention that moves with what it is shown
        for parameter in model.stages[1].parameters():
            parameter.mul_(8)
    values = evaluate(model, batches(), 5, seed=3, preprocess=PREPARE)

    generator = torch.Generator().manual_seed(3)
    four = paper_modifications(32, windows=[8], levels=((-2.0, -5 / 3, -6.0), (3.0, 5 / 3, 4.0)))
    assert list(four) == ["color p=8", "patch p=8", "r > 4", "r < 12"]
    consistent, survivors = 0.0, 0
    with torch.no_grad():
        for batch in batches():
            images = batch["image"][::EVERY]
            for modify in four.values():
                with fv.watch(model) as gazes:
                    before = model(images).argmax(1)
                    first = gazes["stages.1"]
                    after = model(modify(images, generator)).argmax(1)
                kept = before == after
                survivors += int(kept.sum())
                consistent += float((functional.map_cosine(first, gazes["stages.1"])[kept] >= 0.9).sum())
    assert 0 < consistent < survivors
    assert values["interpretability_score"] == pytest.approx(consistent / survivors)


def test_without_preprocessing_or_attention_there_is_no_such_column():
    assert "interpretability_score" not in evaluate(fv.attach(small_cnn(), "stages.1", fv.CBAMAttention), batches(), 5)
    assert list(evaluate(small_cnn(), batches(), 5, preprocess=PREPARE)) == list(ACCURACIES)


def test_accuracies_on_turned_images_are_those_of_images_turned_one_by_one():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5, bias=False)
    )  # it knows above from below
    whole = torch.cat([batch["image"] for batch in batches()])
    whole = whole - whole.mean((2, 3), keepdim=True)
    with torch.no_grad():
        labels = model(whole).argmax(1)  # so that it is right about the images as they are
    labelled = [{"image": whole[:13], "label": labels[:13]}, {"image": whole[13:], "label": labels[13:]}]
    values = evaluate(model, labelled, 5, seed=3)
    generator, right = torch.Generator().manual_seed(3), torch.zeros(2)
    for batch in labelled:
        quarters = torch.randint(3, (len(batch["image"]),), generator=generator) + 1
        angles = (2 * torch.rand(4, len(batch["image"]), generator=generator)[0] - 1) * math.pi
        for image, label, quarter, angle in zip(batch["image"], batch["label"], quarters, angles, strict=True):
            matrix = similarity(angle[None], torch.ones(1), torch.zeros(1, 2))
            turned = image.rot90(int(quarter), (1, 2)), warp(image[None], matrix, padding="border")[0]
            with torch.no_grad():
                right += model(torch.stack(turned)).argmax(1) == label
    assert values["accuracy"] == 1
    assert values["accuracy_quarter_turns"] == pytest.approx(float(right[0]) / 22)
    assert values["accuracy_any_angle"] == pytest.approx(float(right[1]) / 22)
    assert right.min() < 22


def test_quarter_turns_cost_an_equivariant_network_nothing():
    model = convert(TinyCNN(5), P4).eval()
    images = torch.cat([batch["image"] for batch in batches()])
    with torch.no_grad():
        labels = (model(images).argmax(1) + (torch.arange(22) < 6)) % 5  # wrong about six of them
    values = evaluate(model, [{"image": images, "label": labels}], 5)
    assert values["accuracy"] == values["accuracy_quarter_turns"] == pytest.approx(16 / 22)


def test_images_that_are_not_square_are_turned_by_half():
    images = torch.rand(3, 2, 4, 6)
    assert torch.equal(quarter_turned(images, torch.Generator()), images.flip(2, 3))


def test_an_evaluation_depends_on_its_seed_alone_and_leaves_the_network_as_it_was():
    model = fv.attach(small_cnn(), "stages.1", fv.CBAMAttention).train()
    model.stages[1].register_forward_hook(lambda _, __, output: output + 0.1 * torch.randn_like(output))
    first = evaluate(model, batches(), 5, preprocess=PREPARE)
    torch.rand(7)
    assert evaluate(model, batches(), 5, preprocess=PREPARE) == first
    assert evaluate(model, batches(), 5, seed=1, preprocess=PREPARE) != first
    assert model.training


def test_a_saved_network_that_draws_is_measured_by_its_draws_too(tmp_path):
    from foveate import models

    data, accuracies = tmp_path / "scenes.safetensors", {}
    pack(Scenes(8, 16), Scenes(40, 16, seed=1), data)
    for attention in ("bottleneck-quantised", "positionwise"):
        recipe = models.Recipe("tiny", Scenes.classes, attention, backbone_options={"widths": (4, 4, 4, 4, 4)})
        torch.manual_seed(2)
        model = models.build(recipe)
        models.save(model, recipe, Preprocess(16), tmp_path / "net.safetensors")
        accuracies[attention] = evaluate_checkpoint(tmp_path / "net.safetensors", str(data))
    expected = 1 - error(model, open_dataset(data, "test"), Preprocess(16)) / 100
    assert accuracies["positionwise"]["accuracy"] == pytest.approx(expected)
    assert "accuracy_of_draws" not in accuracies["positionwise"]
    drawn = accuracies["bottleneck-quantised"]
    assert drawn["accuracy_of_draws"] != drawn["accuracy"]
