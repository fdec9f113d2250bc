"""What a run leaves in its folder: its history, its best network, and the checkpoint from which it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from foveate import models
from foveate.files import writing
from foveate.training.anchors import CountAnchors

CHECKPOINT = "last.ckpt"
BEST = "best.safetensors"
NETWORK = "network.safetensors"
HISTORY = "history.csv"


def keepers(folder: Path) -> list[Callback]:
    """The callbacks that a run needs to leave its history, its best network and its checkpoint in a folder."""
    return [*resumers(folder), KeepBest(folder / BEST)]


def resumers(folder: Path) -> list[Callback]:
    """The callbacks that a run needs to leave its history and the checkpoint from which it goes on."""
    checkpoint = ModelCheckpoint(folder, filename="last", save_top_k=1, enable_version_counter=False)
    return [CountAnchors(), KeepHistory(folder / HISTORY), checkpoint]


class KeepHistory(Callback):
    """A row for each epoch, in a CSV file; the rows travel in the checkpoint, so that a resumed run has them all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the epoch that has ended."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"epoch": trainer.current_epoch, **values})
        if trainer.is_global_zero:
            with writing(self.path) as beside:
                pd.DataFrame(self.rows).to_csv(beside, index=False)

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what the checkpoint kept."""
        self.rows = list(state_dict["rows"])


class KeepBest(Callback):
    """The network with the highest validation accuracy so far, as a file for `foveate.load`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best = -1.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the network if it is the best so far."""
        accuracy = float(trainer.callback_metrics.get("val_accuracy", -1.0))
        if trainer.sanity_checking or accuracy <= self.best:
            return
        self.best = accuracy
        if trainer.is_global_zero:
            notes = {"epoch": trainer.current_epoch, "val_accuracy": accuracy}
            preprocess = trainer.datamodule.preprocess  # type: ignore[attr-defined]
            models.save(pl_module.network, pl_module.recipe, preprocess, self.path, notes)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what the checkpoint kept."""
        self.best = float(state_dict["best"])
