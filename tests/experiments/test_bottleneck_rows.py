"""The bottleneck paper's rows: a file for each that prints a number, which the trainer reads, with its settings."""

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from foveate import models, watch
from foveate.training.data import Images
from foveate.training.module import Classifier
from foveate.training.train import OPTIONS, Command

FOLDER = Path(__file__).parents[2] / "experiments" / "bottleneck"
ROWS = sorted(FOLDER.glob("*/*.yaml"))
CLASSES = {"cifar10": 10, "cifar100": 100, "svhn": 10, "cub-200-2011": 200}
SMALL = [path for path in ROWS if path.parent.name != "cub"]


class ParseOnly(Command):
    def instantiate_classes(self) -> None:
        """Leave everything as it was read."""


@cache
def read(path: Path) -> Any:
    return ParseOnly(Classifier, Images, args=["--config", str(path), "--out", "runs/one"], **OPTIONS).config


@cache
def build(path: Path) -> torch.nn.Module:
    config = read(path)
    names = [str(number) for number in range(CLASSES[config.data.data])]
    recipe = models.Recipe(config.model.backbone, names, backbone_options=config.model.backbone_options or {})
    with torch.device("meta"):
        return models.build(recipe)


def test_there_is_a_file_for_each_number_that_is_printed() -> None:
    printed = {"cifar10": 12, "cifar100": 12, "svhn": 11, "cub": 11}  # Table 1; STL-10 tests the networks of CIFAR-10
    for name, count in printed.items():
        rows = pd.read_csv(FOLDER / name / "paper.csv")
        assert set(rows["row"]) == {path.stem for path in (FOLDER / name).glob("*.yaml")}
        assert len(rows) == count
        assert rows["error"].notna().all()


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_row_is_what_the_code_takes(path: Path) -> None:
    config = read(path)
    model = build(path)
    printed = pd.read_csv(path.parent / "paper.csv").set_index("row") if (path.parent / "paper.csv").is_file() else None
    if path.stem in ("wrn-abn", "wrn-aib", "vgg-att3") and path.parent.name in ("cifar10", "cifar100"):
        assert f"{models.parameter_count(model) / 1e6:.2f}M" == printed.loc[path.stem, "parameters"]
    with watch(model.eval()) as gazes, torch.device("meta"):
        logits = model(torch.zeros(1, 3, config.data.size, config.data.size))
    assert logits.shape == (1, CLASSES[config.data.data])
    assert bool(gazes) == (path.stem not in ("vgg", "wrn", "vgg-dvib"))


@pytest.mark.parametrize("path", SMALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_small_images_are_trained_on_as_in_supplementary_c(path: Path) -> None:
    config = read(path)
    model, data = config.model, config.data
    assert (model.optimizer, model.lr, model.momentum, model.weight_decay) == ("sgd", 0.1, 0.9, 5e-4)
    steps = (0.3, [60, 120, 180]) if path.stem.startswith("wrn") else (0.5, list(range(25, 200, 25)))
    assert (model.schedule, model.factor, list(model.milestones)) == ("steps", *steps)
    assert (data.batch_size, data.size, data.augment, config.trainer.max_epochs) == (128, 32, "shift", 200)
    assert data.data == ("cifar10" if path.parent.name == "figure4" else path.parent.name)
    network = build(path)
    assert model.warmup == (5 if hasattr(network, "head") else 0)  # where a code has a price


def test_the_sweeps_of_figure_4() -> None:
    heads = {path.stem: build(path) for path in (FOLDER / "figure4").glob("*.yaml")}
    assert {heads[f"beta-{p}"].head.encode.beta for p in range(5)} == {1.0, 0.1, 0.01, 0.001, 0.0001}
    for latent in (64, 128, 256, 512, 1024):
        assert heads[f"latent-{latent}"].head.encode.numbers.out_features == 2 * latent
    for anchors in (2, 5, 10, 20, 50, 100):
        assert len(heads[f"anchors-{anchors}"].attention.look.anchors) == anchors
    assert len(heads) == 16
