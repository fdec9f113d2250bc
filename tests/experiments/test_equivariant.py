"""The rows of Tables 1 to 3: a file for each, with the settings of B.2 to B.4, of a network as large as printed."""

import inspect
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from foveate.models import parameter_count
from foveate.training.data import Images
from foveate.training.module import Classifier

FOLDER = Path(__file__).parents[2] / "experiments" / "equivariant"
FILES = sorted(FOLDER.glob("*/*.yaml"))
ADAM = {"optimizer": "adam", "lr": 1e-3, "weight_decay": 1e-4}
PLATEAU = {**ADAM, "schedule": "plateau", "factor": 0.5, "patience": 20}
ALLCNN = {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-3, "schedule": "steps", "milestones": [200, 250, 300]}
RESNET = {"optimizer": "sgd", "lr": 0.05, "schedule": "steps", "milestones": [50, 100, 150]}
SETTINGS: dict[str, tuple[dict[str, Any], int, int]] = {  # of a backbone: optimizer and schedule, batch, epochs
    "p4cnn": (ADAM, 128, 100),
    "z2cnn": (ADAM, 128, 100),
    "allcnn": (ALLCNN, 128, 350),
    "resnet44": (RESNET, 128, 300),
    "densenet": (PLATEAU, 64, 100),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_row_has_the_papers_settings_and_parameters(file: Path) -> None:
    settings = yaml.safe_load(file.read_text())
    model, data = settings["model"], settings["data"]
    assert set(model) <= set(inspect.signature(Classifier).parameters)
    assert set(data) <= set(inspect.signature(Images).parameters)
    learning, batch, epochs = SETTINGS[model["backbone"]]
    assert {name: model[name] for name in model if not name.startswith("backbone")} == learning
    assert (data["batch_size"], settings["trainer"]["max_epochs"]) == (batch, epochs)
    assert (data.get("augment") == "shift") == (file.parent.name == "cifar10-plus")
    printed = pd.read_csv(file.parent / "paper.csv").set_index("row")["parameters"].get(file.stem)
    if printed is None:
        assert file.stem == "z2cnn"  # of which the paper prints the error alone, elsewhere
        return
    classes = ["no", "yes"] if model["backbone"] == "densenet" else list("0123456789")
    count = parameter_count(
        Classifier(classes, model["backbone"], backbone_options=model.get("backbone_options")).network
    )
    unit = {"K": 1e3, "M": 1e6}[printed[-1]]
    assert abs(count / unit - float(printed[:-1])) <= 0.005 + 1e-9


def test_every_row_has_a_file() -> None:
    for folder in FOLDER.glob("*/paper.csv"):
        rows = set(pd.read_csv(folder)["row"])
        assert rows <= {file.stem for file in folder.parent.glob("*.yaml")}
