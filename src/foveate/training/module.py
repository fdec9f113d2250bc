"""Classifier: the Lightning module that trains any backbone with any registered attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import SumMetric

from foveate import models
from foveate.gaze import Gazes, looks, watch
from foveate.training.objectives import branches, equivariance_distance, penalties


class Classifier(LightningModule):
    """Cross-entropy + the gazes' penalties + λ·equivariance, by Adam (rectangular App. G) unless said otherwise.

    Args:
        class_names: one for each logit; filled in from the data.
        backbone: the name of one of the project's own networks, or of any timm model.
        attention: a registered attention, see `foveate compare --help`.
        where: layers to attend after; empty means the backbone's last feature map.
        options: options of the attention.
        hidden: width of a hidden layer before the logits; 0 for none.
        backbone_options: options of the backbone.
        weights: of the backbone: nothing, "pretrained", or the path of a safetensors file.
        freeze: layers of the backbone that do not learn.
        lr: learning rate.
        attention_lr: learning rate of the attention, where it is to differ: it starts from nothing, and what suits it
            does not depend on how far the backbone has been trained.
        optimizer: "adamw"; "adam", whose weight decay is added to the gradient; or "sgd".
        weight_decay: of the optimizer; AdamW with none is Adam.
        momentum: of "sgd".
        schedule: of the learning rate: "constant"; "cosine" down to zero at the last epoch; "steps", times `factor` at
            each epoch of `milestones`; or "plateau", times `factor` when the validation loss has not gone down for
            `patience` epochs.
        milestones, factor, patience: of the schedule.
        equivariance: λ; nothing means the attention's own default.
        warmup: epochs over which the gazes' penalties grow to their full weight. At full weight from the start, a code
            of an information bottleneck says nothing before there is anything to say, and is slow to find out.
        seed: what is random in training follows it and the epoch.
    """

    def __init__(
        self,
        class_names: Sequence[str],
        backbone: str = "tiny",
        attention: str = "none",
        where: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        hidden: int = 0,
        backbone_options: Mapping[str, Any] | None = None,
        weights: str | None = None,
        freeze: Sequence[str] = (),
        lr: float = 1e-4,
        attention_lr: float | None = None,
        optimizer: Literal["adamw", "adam", "sgd"] = "adamw",
        weight_decay: float = 0.0,
        momentum: float = 0.9,
        schedule: Literal["constant", "cosine", "steps", "plateau"] = "constant",
        milestones: Sequence[int] = (),
        factor: float = 0.1,
        patience: int = 20,
        equivariance: float | None = None,
        warmup: float = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.recipe = models.Recipe(
            backbone, class_names, attention, where, dict(options or {}), hidden, dict(backbone_options or {})
        )
        torch.manual_seed(seed)  # the same seed draws the same first weights, whatever was drawn before
        self.network = _channels_last(models.build(self.recipe, weights))
        self.frozen = models.freeze(self.network, freeze)
        self.equivariance = models.entry(attention).equivariance if equivariance is None else equivariance
        self.lr, self.warmup, self.seed = lr, warmup, seed
        self.optimizer, self.weight_decay, self.momentum = optimizer, weight_decay, momentum
        self.schedule, self.milestones, self.factor, self.patience = schedule, milestones, factor, patience
        self.attention_lr = lr if attention_lr is None else attention_lr
        self.val_correct, self.val_loss, self.val_count = (SumMetric("disable") for _ in range(3))  # NaN: no waiting
        self.watches = True  # until the first step shows that nothing is learned from gazes: to show them costs time
        self.steps: list[Tensor] = []  # what each step of this epoch has to say

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), prepared, to logits (B, classes)."""
        logits: Tensor = self.network(images.contiguous(memory_format=torch.channels_last))
        return logits

    def on_train_epoch_start(self) -> None:
        """Start each epoch from its own random state, so that a resumed run draws what the whole one drew."""
        torch.manual_seed(hash((self.seed, self.current_epoch, self.global_rank)) % 2**63)
        self.steps.clear()
        for layer in self.frozen:
            layer.eval()

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        """The loss of a batch of items."""
        images, labels = batch["image"], batch["label"]
        with watch(self.network) if self.watches else nullcontext(Gazes()) as gazes:
            logits = self(images)
        self.watches = bool(self.equivariance) or gazes.priced
        asked = images.new_zeros(()) + self._risen() * penalties(gazes) + branches(gazes, labels)
        terms = {"cross_entropy": F.cross_entropy(logits, labels), "penalty": asked}
        if self.equivariance:
            terms["equivariance"] = self.equivariance * equivariance_distance(self.network, images, gazes)
        loss = torch.stack(list(terms.values())).sum()
        values = {"loss": loss, **terms, "train_accuracy": (logits.argmax(1) == labels).float().mean()}
        self.steps.append(torch.stack([value.detach() for value in values.values()]))
        if self.trainer.is_last_batch:  # once an epoch: for a small network, logging each step takes half of the time
            means = dict(zip(values, torch.stack(self.steps).mean(0), strict=True))
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=len(labels), sync_dist=True)
        return loss

    def _risen(self) -> float:
        """The weight of penalties at this step."""
        steps = self.warmup * self.trainer.num_training_batches
        return min(1.0, self.trainer.global_step / steps) if steps else 1.0

    def validation_step(self, batch: Mapping[str, Any], index: int) -> None:
        """Gather the metrics of a batch; what only fills a process's last batch up does not count."""
        logits, labels, counted = self(batch["image"]), batch["label"], batch["counts"].float()
        self.val_correct.update(counted * (logits.argmax(1) == labels))
        self.val_loss.update(counted * F.cross_entropy(logits, labels, reduction="none"))
        self.val_count.update(counted)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics over the whole validation split."""
        sums = {"val_accuracy": self.val_correct, "val_loss": self.val_loss}
        self.log_dict({name: total.compute() / self.val_count.compute() for name, total in sums.items()})
        for total in (*sums.values(), self.val_count):
            total.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer over what learns, and the schedule."""
        looking = {id(p) for look in looks(self.network).values() for p in look.parameters()}
        groups: dict[bool, list[nn.Parameter]] = {False: [], True: []}
        for parameter in self.network.parameters():
            if parameter.requires_grad:
                groups[id(parameter) in looking].append(parameter)
        rates = {False: self.lr, True: self.attention_lr}
        learning = [{"params": group, "lr": rates[looks_too]} for looks_too, group in groups.items() if group]
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}[self.optimizer]
        options = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        optimizer: torch.optim.Optimizer = kind(learning, weight_decay=self.weight_decay, **options)
        schedules = torch.optim.lr_scheduler
        if self.schedule == "constant":
            return optimizer
        if self.schedule == "plateau":
            falling = schedules.ReduceLROnPlateau(optimizer, factor=self.factor, patience=self.patience)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": falling, "monitor": "val_loss"}}
        scheduler = (
            schedules.CosineAnnealingLR(optimizer, self.trainer.max_epochs or 1)
            if self.schedule == "cosine"
            else schedules.MultiStepLR(optimizer, list(self.milestones), self.factor)
        )
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def _channels_last(network: nn.Module) -> nn.Module:
    """Filters of planes, channels last: twice as fast on a CPU. Those of groups, with a dimension of poses, stay."""
    for parameter in network.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network
