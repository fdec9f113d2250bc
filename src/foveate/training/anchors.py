"""Anchors that die: a quantised attention may stop rounding to some of its values, and the log says so."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from foveate.attention.bottleneck import BottleneckGaze
from foveate.gaze import looks

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

log = logging.getLogger(__name__)
DEAD = 1e-4  # the share of positions below which an anchor counts as dead


class CountAnchors(Callback):
    """Count anchors that get next to nothing in an epoch: `dead_anchors` in the history, a warning when more die.

    What they get is added up in place, so that it is in a recorded step too (`foveate.training.recorded`).
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}  # of each look, how many steps there were and what each anchor got
        self.handles: list[RemovableHandle] = []
        self.dead: dict[str, int] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to look at what the anchors get."""
        for name, look in looks(pl_module).items():
            self.handles.append(look.register_forward_hook(partial(self._see, name)))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count anew."""
        for total in self.sums.values():
            total.zero_()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say which anchors got nothing, where it is more than an epoch before."""
        count = 0
        for name, total in self.sums.items():
            mean = total[1:] / total[0]
            dead = (mean < DEAD).nonzero().flatten().tolist()
            count += len(dead)
            if len(dead) > self.dead.get(name, 0):
                which = ", ".join(map(str, dead))
                where = name.removeprefix("network.")
                log.warning(f"epoch {trainer.current_epoch}: anchors {which} of {len(mean)} at {where!r} get nothing")
            self.dead[name] = len(dead)
        if self.sums:
            pl_module.log("dead_anchors", float(count), sync_dist=True)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no hook behind."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave no hook behind."""
        self.on_fit_end(trainer, pl_module)

    def _see(self, name: str, look: nn.Module, inputs: Any, gaze: Any) -> None:
        if look.training and isinstance(gaze, BottleneckGaze) and gaze.usage.numel():
            got = gaze.usage.detach().float().mean(0)
            step = torch.cat([torch.ones_like(got[:1]), got])
            self.sums.setdefault(name, torch.zeros_like(step)).add_(step)
