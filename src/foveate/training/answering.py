"""Answering questions: the data in batches, the Lightning module, and what a trained network is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from foveate.data.questions import ANSWER_TYPES, KINDS, WORDS, SceneQuestions
from foveate.data.vqa import VQA
from foveate.gaze import watch
from foveate.metrics import AnswerAccuracy
from foveate.metrics.functional import attention_inside

Batch = dict[str, Any]
CLIMB, FALLS = 4 / 13, (10 / 13, 12 / 13)  # until when the rate climbs, when it falls to a fifth (continuous Table 6.1)


class Questions(LightningDataModule):
    """Questions to train on and to validate on, in batches of `image`, `question`, `scores`, `label`, `kind`, `mask`.

    Args:
        train, val: `Asked`, see `scene_questions` and `vqa_questions`.
        batch_size: questions in a batch.
        seed: of the shuffling.
        workers: processes that load features.
    """

    def __init__(self, train: Asked, val: Asked, batch_size: int = 64, seed: int = 0, workers: int = 0) -> None:
        super().__init__()
        self.train_items, self.val_items = train, val
        self.batch_size, self.seed, self.workers = batch_size, seed, workers

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled, by a random order that follows the seed and the epoch."""
        epoch = self.trainer.current_epoch if self.trainer else 0
        order = torch.Generator().manual_seed(hash((self.seed, epoch)) % 2**63)
        return self._loader(self.train_items, shuffle=True, generator=order, drop_last=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        """In their order."""
        return self._loader(self.val_items)

    def _loader(self, items: Asked, **options: Any) -> DataLoader[Batch]:
        return DataLoader(items, self.batch_size, num_workers=self.workers, collate_fn=_as_it_is, **options)


class Asked(Dataset[Any]):
    """Questions that are given out a batch at a time."""

    words: Sequence[str]
    answers: Sequence[str]
    types: Sequence[str]
    channels: int

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitems__(self, indices: list[int]) -> Batch:
        """The batch of these questions."""
        raise NotImplementedError


class SceneAsked(Asked):
    """Questions about scenes as `foveate.training.scene_features` keeps them: in memory, with features for images."""

    words, answers, types = WORDS, SceneQuestions.classes, KINDS

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.channels = tensors["image"].shape[1]

    def __len__(self) -> int:
        return len(self.tensors["label"])

    def __getitems__(self, indices: list[int]) -> Batch:
        """The batch of these questions."""
        batch: Batch = {name: tensor[indices] for name, tensor in self.tensors.items()}
        labels = batch["label"]
        batch["image"] = batch["image"].float()
        batch["scores"] = F.one_hot(labels, len(self.answers)).float()
        batch["people"] = [[self.answers[label]] * 10 for label in labels.tolist()]
        batch["kind"] = [KINDS[kind] for kind in batch["kind"].tolist()]
        return batch


class VQAAsked(Asked):
    """Questions of VQA-v2, whose features are read when they are needed."""

    types = tuple(dict.fromkeys(ANSWER_TYPES.values()))

    def __init__(self, items: VQA) -> None:
        self.items, self.words, self.answers = items, items.words, items.classes
        self.channels = items[0].image.shape[0]

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: list[int]) -> Batch:
        """The batch of these questions."""
        items = [self.items[index] for index in indices]
        stacked: Batch = {name: torch.stack([item[name] for item in items]) for name in ("image", "question", "scores")}
        lists = {name: [item[name] for item in items] for name in ("kind", "people")}
        return {**stacked, **lists, "label": torch.tensor([item.label for item in items])}


class Answerer(LightningModule):
    """Binary cross-entropy of the answers' soft scores, by Adam at the rates of continuous Table 6.1.

    Args:
        network: an `AnswerNetwork`.
        answers: the answer of each logit.
        types: of the questions, by which accuracies are given.
        lr: the largest rate; of 13 epochs it is reached in the fourth.
        seed: what is random in training follows it and the epoch.
    """

    def __init__(
        self, network: nn.Module, answers: Sequence[str], types: Sequence[str], lr: float = 1e-4, seed: int = 0
    ) -> None:
        super().__init__()
        self.network, self.answers, self.lr, self.seed = network, answers, lr, seed
        self.accuracy = AnswerAccuracy(types)

    def on_train_epoch_start(self) -> None:
        """Start each epoch from its own random state, so that a resumed run draws what the whole one drew."""
        torch.manual_seed(hash((self.seed, self.current_epoch)) % 2**63)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """The loss of a batch."""
        logits = self.network(batch["image"], batch["question"])
        loss = F.binary_cross_entropy_with_logits(logits.float(), batch["scores"], reduction="sum") / len(logits)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(logits))
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        """Gather the accuracy of a batch."""
        best = self.network(batch["image"], batch["question"]).argmax(1).tolist()
        self.accuracy.update([self.answers[n] for n in best], batch["people"], batch["kind"])

    def on_validation_epoch_end(self) -> None:
        """Log the accuracy over all questions."""
        self.log("val_accuracy", self.accuracy.compute()["overall"].float())
        self.accuracy.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Adam as in MCAN; the rate climbs for a while and falls to a fifth twice."""
        optimizer = torch.optim.Adam(self.network.parameters(), lr=self.lr, betas=(0.9, 0.98), eps=1e-9)
        epochs = self.trainer.max_epochs or 1
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: rate(epoch, epochs))
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def rate(epoch: int, epochs: int) -> float:
    """The share of the largest rate in an epoch, counted from 0, of so many: that of 13 epochs, stretched.

    >>> [round(rate(epoch, 13), 2) for epoch in range(13)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.2, 0.2, 0.04, 0.04]
    """
    falls = sum(epoch + 1 >= math.ceil(share * epochs - 1e-9) for share in FALLS)
    return min(1.0, (epoch + 1) / (CLIMB * epochs)) * float(0.2**falls)


@torch.no_grad()
def evaluate_answers(
    network: nn.Module, batches: Iterator[Batch] | DataLoader[Batch], asked: Asked
) -> dict[str, float]:
    """Accuracy in all and by type, and where there are masks the share of attention on the asked-about objects.

    Questions about nothing, whose mask is empty, have no such share.
    """
    device = next(network.parameters()).device
    accuracy = AnswerAccuracy(asked.types)
    shares: list[Tensor] = []
    kinds: list[str] = []
    network.eval()
    for batch in batches:
        with watch(network) as gazes:
            logits = network(batch["image"].to(device), batch["question"].to(device))
        accuracy.update([asked.answers[n] for n in logits.argmax(1).tolist()], batch["people"], batch["kind"])
        if "mask" in batch:
            about = batch["mask"].flatten(1).any(1)
            shares.append(attention_inside(gazes["pool"], batch["mask"].to(device)).cpu()[about])
            kinds += [kind for kind, is_about in zip(batch["kind"], about.tolist(), strict=True) if is_about]
    found = accuracy.compute()
    values = {"accuracy": float(found.pop("overall")), **{f"accuracy_{name}": float(v) for name, v in found.items()}}
    if kinds:
        inside = torch.cat(shares)
        values["inside"] = float(inside.mean())
        for name in asked.types:
            values[f"inside_{name}"] = float(inside[torch.tensor([kind == name for kind in kinds])].mean())
    return values


def _as_it_is(batch: Any) -> Any:
    return batch


def outputs(network: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Any]:
    """The logits and the gaze of a batch."""
    device = next(network.parameters()).device
    with torch.no_grad(), watch(network) as gazes:
        logits = network.eval()(batch["image"].to(device), batch["question"].to(device))
    return logits.cpu(), gazes["pool"].detach()
