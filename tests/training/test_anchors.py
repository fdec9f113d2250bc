"""Anchors that die are noticed."""

import logging

import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from foveate.attention.bottleneck import BottleneckLook
from foveate.gaze import looks
from foveate.training.anchors import CountAnchors
from foveate.training.data import Images
from foveate.training.fitting import DEFAULTS, fit
from foveate.training.module import Classifier


@pytest.fixture
def data() -> Images:
    return Images("scenes", size=32, count=24, batch_size=8)


def trainer(epochs: int) -> Trainer:
    return Trainer(max_epochs=epochs, accelerator="cpu", enable_progress_bar=False, **DEFAULTS)


def test_dead_anchors_are_named_once_and_counted_every_epoch(data, tmp_path, caplog) -> None:
    model = Classifier(data.class_names, "tiny", "bottleneck-quantised", options={"anchors": 4, "latent": 8})
    (look,) = looks(model.network).values()
    assert isinstance(look, BottleneckLook)
    with torch.no_grad():
        look.anchors.copy_(torch.tensor([0.499, 0.501, 40.0, 50.0]))  # the last two are nearest to nothing
    with caplog.at_level(logging.WARNING, "foveate"):
        fit(trainer(2), model, data, tmp_path)
    said = [record.message for record in caplog.records if "anchors" in record.message]
    assert len(said) == 1
    assert "2, 3 of 4" in said[0]
    assert "'stages.3'" in said[0]
    assert pd.read_csv(tmp_path / "history.csv")["dead_anchors"].tolist() == [2, 2]
    assert not look._forward_hooks


def test_attentions_without_anchors_have_nothing_to_count(data, tmp_path, caplog) -> None:
    model = Classifier(data.class_names, "tiny", "attention-branch")
    with caplog.at_level(logging.WARNING, "foveate"):
        fit(trainer(1), model, data, tmp_path)
    history = pd.read_csv(tmp_path / "history.csv")
    assert "dead_anchors" not in history
    assert history["penalty"][0] > 0.5  # the side classifier's cross-entropy
    assert not [record for record in caplog.records if "anchors" in record.message]


def test_what_anchors_get_is_added_up_in_place_as_a_replayed_step_needs_it(data) -> None:
    counter, images = CountAnchors(), torch.rand(2, 3, 32, 32)
    model = Classifier(data.class_names, "tiny", "bottleneck-quantised", options={"anchors": 4, "latent": 8}).train()
    counter.on_fit_start(trainer(1), model)
    model(images)
    ((name, total),) = counter.sums.items()
    for _ in range(2):
        counter.on_train_epoch_start(trainer(1), model)
        for _ in range(3):
            model(images)
        assert counter.sums[name] is total
        assert total[0] == 3  # steps
        assert total[1:].sum().item() == pytest.approx(3, abs=1e-4)  # all positions are at some anchor
    counter.on_fit_end(trainer(1), model)
    model(images)
    assert total[0] == 3
