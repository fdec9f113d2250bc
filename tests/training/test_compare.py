import json
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
import torch
from lightning.pytorch import Callback
from safetensors.torch import load_file

from foveate import models
from foveate.training import compare as comparing
from foveate.training.compare import Settings, compare
from foveate.training.data import Images
from foveate.training.recorded import NothingToRecord
from foveate.training.runs import RunsError

SMALL = Settings(
    attentions=("none", "rectangular-equivariant"), epochs=3, seeds=(0, 1), size=32, count=48, batch_size=16
)


class Interrupt(Callback):
    """Ctrl-C in the middle of the second epoch."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, index) -> None:
        if trainer.current_epoch == 1 and index == 1:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out, read = tmp_path_factory.mktemp("whole"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            comparing, "Images", lambda *args, **kw: read.append((kw["seed"], kw["cache"])) or Images(*args, **kw)
        )
        return compare(SMALL, out, command="the command"), out, read


def test_steps_are_recorded_where_that_is_asked_for(tmp_path, monkeypatch) -> None:
    asked = []
    start = comparing.Classifier.on_fit_start
    monkeypatch.setattr(comparing.Classifier, "on_fit_start", lambda model: asked.append(model.record) or start(model))
    short = replace(SMALL, attentions=("none",), epochs=1, seeds=(0,))
    compare(short, tmp_path / "as-ever")
    if torch.cuda.is_available():
        compare(short, tmp_path / "recorded", record=True)
    else:
        with pytest.warns(NothingToRecord):
            compare(short, tmp_path / "recorded", record=True)
    assert asked == [False, True]
    assert (tmp_path / "recorded/settings.json").read_text() == (tmp_path / "as-ever/settings.json").read_text()


def test_images_are_read_once_for_all_attentions_of_a_seed(whole) -> None:
    assert whole[2] == [(0, None), (1, None), (0, False)]  # the last ones are those of the report


def test_the_table_has_a_row_for_each_attention_with_deviations(whole) -> None:
    table, out, _ = whole
    written = pd.read_csv(out / "table.csv")
    assert list(written["attention"]) == ["none", "rectangular-equivariant"]
    results = [json.loads((out / f"runs/rectangular-equivariant-seed{s}/result.json").read_text()) for s in (0, 1)]
    row = written.iloc[1]
    for name in ("accuracy", "fitting_rate", "equivariance_error"):
        values = torch.tensor([result[name] for result in results], dtype=torch.float64)
        assert row[name] == pytest.approx(values.mean().item())
        assert row[f"{name}_std"] == pytest.approx(values.std().item())
    assert written.iloc[0]["added_parameters"] == 0
    plain, attended = (models.load(out / f"runs/{n}-seed0/network.safetensors") for n in written["attention"])
    assert row["added_parameters"] == models.parameter_count(attended) - models.parameter_count(plain)
    assert row["latency_ratio"] > 1
    assert 0 <= row["interpretability_score"] <= 1
    assert pd.isna(written.iloc[0]["fitting_rate"])
    assert len(table) == 2
    page = (out / "table.md").read_text()
    assert page.count("\n| ") == 2
    assert f"{100 * row['accuracy']:.1f} ± {100 * row['accuracy_std']:.1f}" in page
    assert "`the command`" in page


def test_runs_side_by_side_end_in_the_numbers_of_runs_in_turn(whole, tmp_path) -> None:
    table = compare(SMALL, tmp_path, jobs=2)
    assert list(table["attention"]) == list(whole[0]["attention"])
    for name in ("accuracy", "fitting_rate", "equivariance_error"):
        assert table[name].tolist() == pytest.approx(whole[0][name].tolist(), abs=1e-4, nan_ok=True)


class Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.images = "", 0

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs) -> None:
        self.images += tag == "img"
        source = dict(attrs).get("src", "data:")
        assert source.startswith("data:")


def test_the_report_shows_table_and_gallery(whole) -> None:
    page = Words()
    page.feed((whole[1] / "report.html").read_text())
    for word in ("rectangular-equivariant", "none", "fitting rate", "latency", "Learning curves"):
        assert word in page.text
    assert page.images >= 1


def test_an_interrupted_comparison_ends_in_the_numbers_of_a_whole_one(whole, tmp_path, monkeypatch) -> None:
    trainer = comparing.Trainer
    with monkeypatch.context() as patch:
        patch.setattr(comparing, "Trainer", lambda callbacks, **kw: trainer(callbacks=[*callbacks, Interrupt()], **kw))
        with pytest.raises(KeyboardInterrupt):
            compare(SMALL, tmp_path)
    assert not (tmp_path / "table.csv").exists()
    compare(SMALL, tmp_path, resume=True)
    for run in ("none-seed0", "rectangular-equivariant-seed1"):
        mine, theirs = tmp_path / "runs" / run, whole[1] / "runs" / run
        assert json.loads((mine / "result.json").read_text()) == json.loads((theirs / "result.json").read_text())
        assert (mine / "history.csv").read_text() == (theirs / "history.csv").read_text()
        weights, others = load_file(mine / "network.safetensors"), load_file(theirs / "network.safetensors")
        assert all(torch.equal(weights[name], others[name]) for name in others)


def test_shapes_in_scenes_stay_upright_where_asked() -> None:
    upright, turned = (Settings(count=30, size=16, rotate=rotate).images(0).train_items for rotate in (0, None))
    assert {float(upright.items[index].angle) for index in range(30)} == {0.0}
    assert len({float(turned.items[index].angle) for index in range(30)}) == 30


def test_a_folder_belongs_to_one_comparison(whole) -> None:
    with pytest.raises(RunsError, match="--resume"):
        compare(SMALL, whole[1])
    with pytest.raises(RunsError, match=r"epochs \(3, now 4\)"):
        compare(Settings(**{**vars(SMALL), "epochs": 4}), whole[1], resume=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attentions": ["rectangulr"]}, "did you mean 'rectangular'"),
        ({"attentions": []}, "at least one attention"),
        ({"seeds": []}, "one seed"),
        ({"epochs": 0}, "epochs must be positive"),
        ({"lr": -1.0}, "lr must be positive"),
        (
            {"attentions": ["none", "equivariant-p4"], "weights": "pretrained"},
            "equivariant-p4 cannot start from weights",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, said) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(**changes)
