"""fit: train, keep, stop on Ctrl-C and go on from there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer

from foveate import models
from foveate.training.data import Images
from foveate.training.keep import CHECKPOINT, NETWORK, keepers
from foveate.training.module import Classifier

DEFAULTS: dict[str, Any] = {
    "enable_checkpointing": False,  # `keepers` do it
    "logger": False,
    "use_distributed_sampler": False,  # the data module deals the images itself
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,
}


def fit(trainer: Trainer, model: Classifier, data: Images, folder: Path) -> None:
    """Train to the end, from the checkpoint in the folder where there is one; then save the network beside it."""
    run(trainer, model, data, folder, keepers(folder))
    if trainer.is_global_zero:
        models.save(model.network, model.recipe, data.preprocess, folder / NETWORK)


def run(
    trainer: Trainer, model: LightningModule, data: LightningDataModule, folder: Path, callbacks: Sequence[Callback]
) -> None:
    """Train to the end, from the checkpoint in the folder where there is one.

    Ctrl-C is a KeyboardInterrupt, here as elsewhere.
    """
    trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
    checkpoint = folder / CHECKPOINT
    try:
        with quiet():
            trainer.fit(model, data, ckpt_path=str(checkpoint) if checkpoint.is_file() else None, weights_only=True)
    except SystemExit:  # what Lightning makes of Ctrl-C
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's advice, which is for its developers, from the terminal."""
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
