"""Tables and figures about the trust in a saved network: the numbers of the metrics, printed, in files, drawn."""

import io
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console

import foveate as fv
from foveate import models
from foveate.cli import run
from foveate.data import Part, Prepared, Preprocess, Scenes, open_split
from foveate.metrics import interpretability_scores
from foveate.metrics.attribution import sensitivity
from foveate.metrics.faithfulness import area_under, deletion_curve, insertion_curve
from foveate.metrics.modifications import paper_modifications
from foveate.metrics.randomisation import cascading_randomisation
from foveate.training import faithfulness, trust
from foveate.training.evaluate import evaluate_checkpoint

SCENES = Scenes(40, 64, seed=1)


@pytest.fixture(scope="module")
def network():
    return fv.load("scenes-rectangular")


def test_the_scores_are_those_of_the_metric_on_images_spread_evenly(network):
    found = trust.interpretability(network, SCENES, trust.Trial(count=20, batch_size=8, seed=3, threshold=0.95))
    images = Prepared(Part(SCENES, range(1, 40, 2)), network.preprocess)
    batches = torch.stack([item.image for item in images]).split(8)
    modifications = paper_modifications(64, levels=network.preprocess.levels)
    expected = interpretability_scores(network, batches, modifications, 0.95, seed=3)["stages.3"]
    assert list(found) == ["rectangular"]
    for name, outcome in expected.items():
        assert found["rectangular"][name].score == outcome.score
        assert torch.equal(found["rectangular"][name].curve, outcome.curve)
        assert outcome.images == 20


def test_the_files_and_the_table_say_the_same(network, tmp_path):
    trial = trust.Trial(count=16, examples=2)
    scores = trust.interpretability(network, SCENES, trial, tmp_path)
    table = pd.read_csv(tmp_path / "interpretability.csv").set_index("modification")
    curves = pd.read_csv(tmp_path / "interpretability-curves.csv")
    console = Console(width=80, file=io.StringIO())
    console.print(trust.table_2(scores, trial.threshold))
    printed = console.file.getvalue().split()
    for name, outcome in scores["rectangular"].items():
        assert table.loc[name, "score"] == pytest.approx(outcome.score)
        assert table.loc[name, "survived"] == pytest.approx(outcome.survived)
        curve = curves[curves["modification"] == name]
        assert curve["score"].tolist() == pytest.approx(outcome.curve.tolist())
        assert curve["centred_score"].tolist() == pytest.approx(outcome.centred_curve.tolist())
        assert curve["threshold"].iloc[90] == 0.9
        assert (f"{100 * outcome.score:.2f}" in printed) == (outcome.survived > 0)
    assert len(table) == 10
    for name in ("interpretability.png", "interpretability-curves.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 400


def test_the_figure_tells_what_counts_and_what_does_not(network):
    trial = trust.Trial(examples=3)
    figure = trust.example_figure(network, SCENES, trial.modifications(network), trial)
    assert len(figure.axes) == 3 * 5 * 2
    verdicts = [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()]
    assert len(verdicts) == 3 * 4
    for verdict in verdicts:
        cosine = float(verdict.split(",")[0])
        assert verdict.endswith(", consistent") <= (cosine >= 0.895)
        assert verdict.endswith(", inconsistent") <= (cosine <= 0.905)
        assert ", consistent" in verdict or ", inconsistent" in verdict or ", not counted: " in verdict
    titles = [ax.get_title(loc="center") for ax in figure.axes if ax.get_title(loc="center")]
    assert titles == ["as it is", "color, 16 pixels", "patch, 16 pixels", "r > 4", "r < 12"]


def test_patches_come_from_another_data_set(network, tmp_path):
    for name, color in (("red", (255, 0, 0)), ("crimson", (250, 0, 0))):
        for part in range(5):
            path = tmp_path / "data" / name / f"{part}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (70, 80), color).save(path)
    trial = trust.Trial(patches=str(tmp_path / "data"))
    images = torch.zeros(4, 3, 64, 64)
    patched = network.preprocess.unnormalise(trial.modifications(network)["patch p=16"](images, None))
    red = (patched[:, 0] > 0.97) & (patched[:, 1] < 0.01)
    assert red.sum((1, 2)).tolist() == [32 * 32] * 4


def test_the_command_prints_the_table_and_writes_the_files(tmp_path, capsys):
    words = ["evaluate", "--checkpoint", "scenes-rectangular", "--interpretability", "--count", "8", "--out"]
    assert run([*words, str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    for word in ("p=16", "r > 4", "rectangular", "patch", "interpretability.png", "interpretability-curves.csv"):
        assert word in printed
    assert len(list((tmp_path / "new").iterdir())) == 4
    assert run([*words[:3], "--interpretability", "--count", "8", "--threshold", "2"]) == 2
    assert "--threshold is a cosine" in capsys.readouterr().err


@pytest.fixture
def other_classes(tmp_path: Path):
    """A network for four shapes, one of them under another name, and one that the scenes do not have."""
    names = [*Scenes.classes[:3], "zebra"]
    recipe = models.Recipe("tiny", names, "positionwise")
    path = tmp_path / "network.safetensors"
    torch.manual_seed(0)
    models.save(models.build(recipe), recipe, Preprocess(32), path)
    return path


def test_data_with_other_classes_are_refused_or_crossed_over(other_classes):
    with pytest.raises(ValueError, match="--match name"):
        evaluate_checkpoint(other_classes, "scenes")
    values = evaluate_checkpoint(other_classes, "scenes", ratio=0.95, match="name")
    held_out = evaluate_checkpoint(other_classes, "scenes", ratio=0.95, match="number")
    network = fv.load(other_classes)
    right = known = 0
    scenes = open_split("scenes", 0.95)[1]
    for index in range(len(scenes)):
        item = scenes[index]
        if item.label < 3:
            known += 1
            right += int(network(network.preprocess(item.image)[None]).argmax()) == item.label
    assert values["accuracy"] == pytest.approx(right / known)
    assert values["matched"] == pytest.approx(known / len(scenes))
    assert values["accuracy_of_all"] == pytest.approx(right / len(scenes))
    assert held_out["matched"] > values["matched"]


def test_faithfulness_is_that_of_the_metrics_beside_chance_and_grad_cam(network, tmp_path):
    trial = trust.Trial(count=24, batch_size=10, seed=2)
    found = faithfulness.faithfulness(network, SCENES, trial, tmp_path)
    images = torch.stack([item.image for item in Prepared(Part(SCENES, trust.places(40, 24)), network.preprocess)])
    with fv.watch(network) as gazes, torch.no_grad():
        network(images)
    gaze = gazes["stages.3"]
    with torch.no_grad():
        for name, curve in (("deletion", deletion_curve), ("insertion", insertion_curve)):
            expected = curve(network, images, gaze).mean(0)
            assert torch.allclose(getattr(found, name)["rectangular"], expected, atol=0.02)  # but for ties
    assert found.sensitivity["rectangular"] == pytest.approx(
        float(torch.cat([sensitivity(network, part, seed=2) for part in images.split(10)]).mean()), rel=1e-3
    )
    few = cascading_randomisation(network, images, seed=2)
    assert torch.allclose(found.scrambled["rectangular"], few.similarity["stages.3"])
    frame = pd.read_csv(tmp_path / "faithfulness.csv").set_index("attention")
    assert list(frame.index) == ["rectangular", "at random", "Grad-CAM"]
    assert frame.loc["rectangular", "deletion"] < frame.loc["at random", "deletion"]
    assert frame.loc["rectangular", "insertion"] > frame.loc["at random", "insertion"]
    assert frame.loc["rectangular", "deletion"] == pytest.approx(float(area_under(found.deletion["rectangular"])))
    assert (tmp_path / "faithfulness.png").stat().st_size > 10_000


def test_without_captum_the_rest_is_there_and_the_extra_named(network, monkeypatch):
    monkeypatch.setattr(faithfulness, "captum_there", lambda: False)
    found = faithfulness.faithfulness(network, SCENES, trust.Trial(count=4))
    assert list(found.deletion) == ["rectangular", "at random"]
    assert found.sensitivity == {}
    assert "foveate[explain]" in str(faithfulness.table_of(found).caption)


def test_the_command_prints_what_the_network_needs(tmp_path, capsys):
    words = ["evaluate", "--checkpoint", "scenes-rectangular", "--faithfulness", "--count", "4", "--out"]
    assert run([*words, str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for word in ("deletion", "insertion", "rectangular", "at random", "faithfulness.png"):
        assert word in printed


def test_a_network_with_an_attention_of_its_own_is_called_by_its_name(tmp_path):
    recipe = models.Recipe("vgg_att3", ["a", "b"], backbone_options={"width": 1 / 32})
    models.save(models.build(recipe), recipe, Preprocess(32), tmp_path / "net.safetensors")
    model = models.load(tmp_path / "net.safetensors")
    scores = trust.interpretability(model, Scenes(4, 32), trust.Trial())
    assert list(scores) == [f"vgg_att3 at attention.{level}" for level in range(3)]
