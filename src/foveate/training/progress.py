"""Progress of a training: a bar for the run, a line for each run that is over."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from foveate import progress

console = progress.console()


class Bar(Callback):
    """A bar that counts the steps of one run."""

    def __init__(self, shown: progress.Bars, name: str) -> None:
        self.shown = shown
        self.task = shown.add_task(name, total=None, note="")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how many steps there are, and how many a resumed run has behind it."""
        total = int(trainer.estimated_stepping_batches)
        self.shown.update(self.task, total=total, completed=trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """One step on."""
        self.shown.update(self.task, completed=trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the accuracy."""
        if "val_accuracy" in trainer.callback_metrics:
            self.shown.update(self.task, note=f"accuracy {float(trainer.callback_metrics['val_accuracy']):.1%}")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Make room for the next run."""
        self.shown.remove_task(self.task)
