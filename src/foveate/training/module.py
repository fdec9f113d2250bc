"""Classifier: the Lightning module that trains any backbone with any registered attention."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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
from foveate.geometry import random_similarity
from foveate.training.objectives import branches, equivariance_distance, penalties
from foveate.training.recorded import NothingToRecord, Recorded, RecordError


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
        record: on a GPU, record the work of one step as a CUDA graph and replay it from then on: several times faster
            for networks of many small operations, such as attentive group convolutions. For one device, in float32 or
            bfloat16; without a GPU steps run as ever.
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
        record: bool = False,
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
        self.record = record
        self.recorded: Recorded | None = None

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

    def on_fit_start(self) -> None:
        """Begin to record; refuse what could not be recorded as a whole."""
        self.recorded = None
        if not self.record:
            return
        trainer = self.trainer
        if trainer.world_size > 1 or trainer.accumulate_grad_batches > 1 or trainer.precision == "16-mixed":
            raise RecordError(
                "--model.record goes with one device (--trainer.devices 1), without accumulated gradients, and with "
                "bf16-mixed rather than 16-mixed"
            )
        if self.device.type != "cuda":
            warnings.warn("--model.record has no GPU to record: steps run as ever", NothingToRecord, stacklevel=1)
            return
        self.recorded = Recorded(self._drawn, list(self.network.parameters()))

    def on_fit_end(self) -> None:
        """Give back the memory of the recording."""
        self.recorded = None

    def training_step(self, batch: Mapping[str, Any], index: int) -> Tensor:
        """The loss of a batch of items."""
        images, labels = batch["image"], batch["label"]
        if self.recorded is None:
            loss, values = self._loss(images, labels, self._risen(), random_similarity)
        else:
            moves = random_similarity(len(images) if self.equivariance else 0).to(images, non_blocking=True)
            loss, values = self.recorded(images, labels, images.new_full((), self._risen()), moves)
        self.steps.append(values)
        if self.trainer.is_last_batch:  # once an epoch: for a small network, logging each step takes half of the time
            means = torch.stack(self.steps).mean(0)
            named = dict(zip(self._names(), means, strict=True))
            self.log_dict(named, on_step=False, on_epoch=True, batch_size=len(labels), sync_dist=True)
        return loss

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients of the step before; a recorded step has its own already."""
        if self.recorded is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Make the gradients; a recorded step has them already."""
        if self.recorded is None:
            super().backward(loss, *args, **kwargs)

    def _drawn(self, images: Tensor, labels: Tensor, risen: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """The step with all that Python draws and counts among its arguments, as a recording needs it."""
        return self._loss(images, labels, risen, lambda _: moves)

    def _loss(
        self, images: Tensor, labels: Tensor, risen: float | Tensor, draw: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The loss, and a number for each of `_names`.

        Args:
            images, labels: of a batch.
            risen: the weight of penalties.
            draw: draws the maps of the plane by which as many images are moved.
        """
        with watch(self.network) if self.watches else nullcontext(Gazes()) as gazes:
            logits = self(images)
        self.watches = bool(self.equivariance) or gazes.priced
        asked = images.new_zeros(()) + risen * penalties(gazes) + branches(gazes, labels)
        terms = [F.cross_entropy(logits, labels), asked]
        if self.equivariance:
            terms.append(self.equivariance * equivariance_distance(self.network, images, gazes, draw))
        loss = torch.stack(terms).sum()
        return loss, torch.stack([loss, *terms, (logits.argmax(1) == labels).float().mean()]).detach()

    def _names(self) -> list[str]:
        """What the numbers of a step are."""
        moving = ["equivariance"] if self.equivariance else []
        return ["loss", "cross_entropy", "penalty", *moving, "train_accuracy"]

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
        options: dict[str, Any] = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        if self.record:
            options["fused"] = True  # one kernel, where the step before it is one graph
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
