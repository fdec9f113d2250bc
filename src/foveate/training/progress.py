"""Progress that a person can read: a bar for the run, a line for each run that is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True)
if not console.is_terminal:
    console.width = 160  # a file is as wide as a table needs


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars on the terminal, gone when the block ends; nothing is drawn where there is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


class Bar(Callback):
    """A bar that counts the steps of one run."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.task = progress.add_task(name, total=None, note="")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how many steps there are, and how many a resumed run has behind it."""
        total = int(trainer.estimated_stepping_batches)
        self.progress.update(self.task, total=total, completed=trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """One step on."""
        self.progress.update(self.task, completed=trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the accuracy."""
        if "val_accuracy" in trainer.callback_metrics:
            self.progress.update(self.task, note=f"accuracy {float(trainer.callback_metrics['val_accuracy']):.1%}")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Make room for the next run."""
        self.progress.update(self.task, visible=False)
