"""Answering questions: data in batches, what is minimised, the whole comparison, going on where it was stopped."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from foveate.data.questions import KINDS, SceneQuestions
from foveate.training import answer_report, scene_features
from foveate.training.answer_runs import Settings, compare_poolings, load_network, runs_of, with_selection
from foveate.training.answering import Answerer, Questions, SceneAsked, evaluate_answers, outputs, rate

SMALL = {
    "count": 24,
    "val_count": 16,
    "size": 32,
    "epochs": 1,
    "batch_size": 8,
    "width": 8,
    "fused": 8,
    "embedding": 4,
    "hidden": 4,
    "layers": 1,
    "heads": 2,
    "penalties": (1.0, 1e4),
    "poolings": ("softmax-pool", "continuous-softmax"),
}


@pytest.fixture
def quick(monkeypatch) -> None:
    for name in ("SCENES", "STEPS", "BATCH"):
        monkeypatch.setattr(scene_features, name, 8)


def test_scenes_are_kept_with_the_features_of_one_network(quick, tmp_path: Path) -> None:
    train = scene_features.scene_tensors("train", 12, 32, 8, tmp_path)
    val = scene_features.scene_tensors("val", 6, 32, 8, tmp_path)
    assert train["image"].shape == (12, 8, 8, 8)
    scenes = SceneQuestions(12, 32, seed=0)
    assert train["label"].tolist() == scenes.labels
    assert torch.equal(train["mask"][3], scenes[3].mask)
    assert (train["picture"][3] - 255 * scenes[3].image).abs().max() <= 1
    (file,) = tmp_path.glob("features-*")
    before = file.stat().st_mtime_ns
    again = scene_features.scene_tensors("val", 6, 32, 8, tmp_path)
    assert torch.equal(again["image"], val["image"])
    (tmp_path / "val-6-32-8.safetensors").unlink()
    assert torch.equal(scene_features.scene_tensors("val", 6, 32, 8, tmp_path)["image"], val["image"])
    assert file.stat().st_mtime_ns == before


def test_batches_and_their_order(quick, tmp_path: Path) -> None:
    asked = SceneAsked(scene_features.scene_tensors("train", 24, 32, 8, tmp_path))
    batch = asked.__getitems__([5, 2])
    assert batch["kind"] == [KINDS[k] for k in asked.tensors["kind"][[5, 2]].tolist()]
    assert batch["scores"].argmax(1).tolist() == batch["label"].tolist()
    assert batch["people"][0] == [asked.answers[int(batch["label"][0])]] * 10
    orders = [[b["label"].tolist() for b in Questions(asked, asked, 8, seed).train_dataloader()] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_the_loss_is_the_cross_entropy_of_every_answer(quick, tmp_path: Path) -> None:
    settings = Settings(**SMALL)
    train, _ = settings.asked(tmp_path)
    model = Answerer(settings.network("softmax-pool", train).eval(), train.answers, train.types)
    model.log = lambda *_, **__: None
    batch = train.__getitems__(list(range(4)))
    logits = model.network(batch["image"], batch["question"])
    naive = 0.0
    for row, scores in zip(logits.sigmoid(), batch["scores"], strict=True):
        naive -= sum(s * p.log() + (1 - s) * (1 - p).log() for p, s in zip(row, scores, strict=True))
    assert torch.allclose(model.training_step(batch, 0), naive / 4, rtol=1e-4)


def test_the_rates_of_table_6_1() -> None:
    base = 1e-4
    for t in range(1, 14):
        expected = min(2.5 * t * 1e-5, 1e-4) * (0.2 if t >= 10 else 1) * (0.2 if t >= 12 else 1)
        assert base * rate(t - 1, 13) == pytest.approx(expected)


def test_what_a_network_is_worth(quick, tmp_path: Path) -> None:
    settings = Settings(**SMALL)
    _, val = settings.asked(tmp_path)
    network = settings.network("sparsemax-pool", val)
    values = evaluate_answers(network, Questions(val, val, 8).val_dataloader(), val)
    batch = val.__getitems__(list(range(len(val))))
    logits, gaze = outputs(network, batch)
    right = logits.argmax(1) == batch["label"]
    assert values["accuracy"] == pytest.approx(right.float().mean().item())
    for kind in KINDS:
        of_kind = torch.tensor([k == kind for k in batch["kind"]])
        if of_kind.any():
            assert values[f"accuracy_{kind}"] == pytest.approx(right[of_kind].float().mean().item())
    weights = F.interpolate(gaze.weights, (32, 32), mode="nearest")  # discrete weights are attended to in cells
    shares = [float((w * m).sum() / w.sum()) for w, m in zip(weights, batch["mask"], strict=True) if m.any()]
    assert values["inside"] == pytest.approx(sum(shares) / len(shares), abs=1e-4)


def test_the_comparison_its_tables_and_its_figure(quick, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = Settings(**SMALL, seeds=(0, 1))
    table, modes = compare_poolings(settings, tmp_path)
    assert list(table["pooling"]) == ["softmax-pool", "continuous-softmax", "test-MCA, λ = 1", "test-MCA, λ = 10000"]
    assert {"accuracy", "accuracy_std", "inside", "accuracy_position", "parameters"} <= set(table.columns)
    results = [json.loads((run.folder / "result.json").read_text()) for run in runs_of(settings, tmp_path)]
    mean = (results[0]["accuracy"] + results[2]["accuracy"]) / 2
    assert table["accuracy"][0] == pytest.approx(mean)
    assert modes["λ"].tolist() == [1.0, 1e4]
    assert modes.loc[1, "1"] == pytest.approx(1.0)  # so dear a mode that there is one only
    assert modes.loc[0, "1"] < 1
    assert modes.drop(columns="λ").sum(axis=1).tolist() == pytest.approx([1.0, 1.0])
    assert table["accuracy"][3] == pytest.approx(table["accuracy"][1])  # with one mode it is the same network
    assert pd.read_csv(tmp_path / "table.csv")["accuracy"].tolist() == pytest.approx(table["accuracy"].tolist())
    answer_report.show(table, modes)
    paths = answer_report.write(settings, tmp_path, table, modes)
    assert [path.name for path in paths] == ["table.csv", "table.md", "attended.png"]
    page = (tmp_path / "table.md").read_text()
    assert f"| softmax-pool | {100 * mean:.1f} ± " in page
    assert "| 1e+04 | 100.00 | 0.00 |" in page.replace("10000", "1e+04")
    with pytest.raises(ValueError, match="pass --resume"):
        compare_poolings(settings, tmp_path)


def test_a_run_goes_on_and_ends_in_the_same_numbers(quick, tmp_path: Path) -> None:
    options = {**SMALL, "poolings": ("softmax-pool",), "penalties": ()}
    whole, _ = compare_poolings(Settings(**{**options, "epochs": 3}), tmp_path / "whole")
    compare_poolings(Settings(**{**options, "epochs": 3}), tmp_path / "parts")
    (run,) = runs_of(Settings(**options), tmp_path / "parts")
    history = (run.folder / "history.csv").read_text()
    (run.folder / "result.json").unlink()  # it was stopped after its last epoch
    again, _ = compare_poolings(Settings(**{**options, "epochs": 3}), tmp_path / "parts", resume=True)
    assert (run.folder / "history.csv").read_text() == history
    assert again["accuracy"].tolist() == whole["accuracy"].tolist()


def test_selection_takes_the_trained_network_and_leaves_it_alone(quick, tmp_path: Path) -> None:
    settings = Settings(**SMALL)
    _, val = settings.asked(tmp_path)
    network = settings.network("continuous-softmax", val).eval()
    twin = with_selection(settings, network, 1.0)
    batch = val.__getitems__(list(range(8)))
    _, one = outputs(network, batch)
    _, several = outputs(twin, batch)
    assert one.modes.tolist() == [1] * 8
    assert several.modes.max() > 1
    _, single = outputs(with_selection(settings, network, 1e6), batch)
    assert torch.allclose(single.render((20, 20)), one.render((20, 20)), atol=1e-3)


def test_settings_from_yaml_and_their_errors(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("width: 16\nepochs: 3\noptions: {mixture-2: {steps: 7}}\npoolings: [mixture-2]")
    settings = Settings.read(file, {"epochs": 5})
    assert (settings.width, settings.epochs, settings.options["mixture-2"]["steps"]) == (16, 5, 7)
    file.write_text("widht: 16")
    with pytest.raises(ValueError, match="sets widht, which a comparison of poolings does not have"):
        Settings.read(file, {})
    with pytest.raises(ValueError, match="no pooling is named 'softmaxpool'; did you mean"):
        Settings(poolings=("softmaxpool",))
    with pytest.raises(ValueError, match="needs root"):
        Settings(data="vqa")


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "experiments/continuous").glob("*.yaml")))
def test_the_experiments_are_settings(path: Path) -> None:
    settings = Settings.read(path, {})
    if settings.data == "vqa":
        assert (settings.layers, settings.heads, settings.width, settings.fused, settings.epochs) == (
            6,
            8,
            512,
            1024,
            13,
        )


def test_a_loaded_network_is_the_trained_one(quick, tmp_path: Path) -> None:
    settings = Settings(**{**SMALL, "poolings": ("mixture-2",), "penalties": ()})
    table, _ = compare_poolings(settings, tmp_path)
    (run,) = runs_of(settings, tmp_path)
    _, val = settings.asked(tmp_path / "data")
    values = evaluate_answers(load_network(settings, tmp_path, run), Questions(val, val, 8).val_dataloader(), val)
    assert values["accuracy"] == pytest.approx(table["accuracy"][0])
    assert values["inside"] == pytest.approx(table["inside"][0], abs=1e-5)
