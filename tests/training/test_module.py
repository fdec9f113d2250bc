"""What one run is made with: its optimizer, its schedule, and the means that it logs."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, Trainer

from foveate.training.data import Images
from foveate.training.fitting import DEFAULTS, fit
from foveate.training.keep import HISTORY
from foveate.training.module import Classifier


class Rates(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])


class Losses(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.seen.append(float(outputs["loss"]))


def train(folder: Path, callback: Callback, epochs: int = 4, **options: Any) -> Classifier:
    data = Images(size=16, count=16, batch_size=4)
    model = Classifier(data.class_names, backbone_options={"widths": (4, 4, 4, 4, 4)}, **options)
    trainer = Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[callback], enable_progress_bar=False, **DEFAULTS)
    fit(trainer, model, data, folder)
    return model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "steps", "milestones": [1, 3]}, [1.0, 0.1, 0.1, 0.01]),
        ({"schedule": "plateau", "factor": 0.5, "patience": 0}, [1.0, 1.0, 0.5, 0.25]),
    ],
)
def test_the_learning_rate_follows_the_schedule(
    tmp_path: Path, options: dict[str, Any], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(  # a loss that never goes down
        Classifier, "on_validation_epoch_end", lambda self: self.log_dict({"val_accuracy": 0.5, "val_loss": 1.0})
    )
    rates = Rates()
    train(tmp_path, rates, optimizer="sgd", lr=1.0, **options)
    assert rates.seen == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, torch.optim.AdamW),
        ({"optimizer": "adam"}, torch.optim.Adam),
        ({"optimizer": "sgd", "momentum": 0.7}, torch.optim.SGD),
    ],
)
def test_the_optimizer_is_the_one_asked_for(options: dict[str, Any], kind: type) -> None:
    model = Classifier(["a", "b"], lr=0.3, attention_lr=0.1, attention="positionwise", weight_decay=1e-3, **options)
    optimizer = model.configure_optimizers()
    assert type(optimizer) is kind
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.1]
    assert {group["weight_decay"] for group in optimizer.param_groups} == {1e-3}
    assert {group.get("momentum") for group in optimizer.param_groups} == {options.get("momentum")}


def test_the_history_holds_the_mean_of_the_steps(tmp_path: Path) -> None:
    losses = Losses()
    train(tmp_path, losses, epochs=2)
    history = pd.read_csv(tmp_path / HISTORY)
    expected = torch.tensor(losses.seen).reshape(2, 4).mean(1).tolist()
    assert history["loss"].tolist() == pytest.approx(expected, rel=1e-5)
    assert history["train_accuracy"].between(0, 1).all()


class Shown(Callback):
    """How often a look was watched, in each step."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.seen.append(pl_module.watches)


@pytest.mark.parametrize(
    ("attention", "options", "watches"),
    [
        ("none", {}, False),
        ("cbam", {}, False),
        ("cbam", {"equivariance": 0.1}, True),
    ],
)
def test_training_watches_where_something_is_learned_from_gazes(
    tmp_path: Path, attention: str, options: dict[str, Any], watches: bool
) -> None:
    shown = Shown()
    train(tmp_path, shown, epochs=1, attention=attention, **options)
    assert shown.seen == [watches] * 4


def test_a_network_whose_filters_have_poses_is_trained(tmp_path: Path) -> None:
    losses = Losses()
    data = Images(size=28, count=8, batch_size=4, backbone="p4cnn")
    model = Classifier(data.class_names, "p4cnn", backbone_options={"width": 2, "attention": "full"}, lr=1e-2)
    before = [parameter.clone() for parameter in model.parameters()]
    trainer = Trainer(accelerator="cpu", max_epochs=1, callbacks=[losses], enable_progress_bar=False, **DEFAULTS)
    fit(trainer, model, data, tmp_path)
    assert len(losses.seen) == 2
    assert all(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_validation_leaves_out_what_only_fills_a_batch_up() -> None:
    model = Classifier(["a", "b"], backbone_options={"widths": (4, 4, 4, 4, 4)}).eval()
    images = torch.randn(4, 3, 16, 16)
    logits = model(images)
    labels = logits.argmax(1)
    labels[0] = 1 - labels[0]
    counts = torch.tensor([True, True, True, False])
    model.validation_step({"image": images, "label": labels, "counts": counts}, 0)
    model.validation_step({"image": images, "label": labels, "counts": ~counts}, 1)
    model.validation_step({"image": images, "label": labels, "counts": counts}, 2)
    losses = F.cross_entropy(logits, labels, reduction="none")
    assert (model.val_correct.compute(), model.val_count.compute()) == (5, 7)
    assert model.val_loss.compute().item() == pytest.approx((2 * losses[:3].sum() + losses[3]).item(), rel=1e-5)


class Penalties(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.seen.append(float(pl_module.steps[-1][2]))


@pytest.mark.parametrize("warmup", [0, 1.5])
def test_penalties_grow_to_their_full_weight(tmp_path: Path, warmup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveate.training.module.penalties", lambda gazes: torch.tensor(2.0))
    penalties = Penalties()
    train(tmp_path, penalties, epochs=2, attention="dvib", warmup=warmup)
    growing = [2.0 * min(1.0, step / 6) for step in range(8)]  # an epoch has 4 steps
    assert penalties.seen == pytest.approx(growing if warmup else [2.0] * 8)
