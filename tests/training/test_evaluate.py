"""What `evaluate` puts into the columns of a comparison."""

import pytest
import torch
from small import small_cnn

import foveate as fv
from foveate.data import Scenes, open_dataset, pack
from foveate.data.transforms import Preprocess
from foveate.metrics import functional
from foveate.metrics.modifications import paper_modifications
from foveate.training.evaluate import EVERY, error, evaluate, evaluate_checkpoint

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
    assert list(evaluate(small_cnn(), batches(), 5, preprocess=PREPARE)) == ["accuracy"]


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
