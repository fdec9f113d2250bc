"""compare: the same backbone with each attention, on the same data and seeds; a table and a report of what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from lightning.pytorch import Callback, Trainer

from foveate import models
from foveate.files import writing
from foveate.metrics.cost import ratio
from foveate.progress import counted, doing
from foveate.training import comparison_report
from foveate.training.data import Images
from foveate.training.evaluate import evaluate
from foveate.training.fitting import DEFAULTS, fit, quiet
from foveate.training.keep import NETWORK
from foveate.training.module import Classifier
from foveate.training.runs import TABLE, Run, RunsError, claim, finish_all, over_seeds

DEFAULT = ("none", "positionwise", "cbam", "rectangular", "rectangular-equivariant")
REPORT, PAGE = "report.html", "table.md"


@dataclass(frozen=True)
class Settings:
    """All that the numbers of a comparison depend on.

    Attributes:
        data: the name of a data set, or an image folder.
        root: where data sets are kept.
        backbone: the name of one of the project's own networks, or of any timm model.
        attentions: registered names, compared in this order.
        where: layers to attend after; empty means the backbone's last feature map.
        weights: of the backbone: None, "pretrained", or the path of a safetensors file.
        freeze: layers of the backbone that do not learn.
        hidden: width of a hidden layer before the logits; 0 for none.
        epochs, seeds, size, batch_size: of the training; each seed draws its own split, weights and order.
        lr: of the backbone and its classifier; None is the one that suits the backbone.
        attention_lr: of the attention, which always starts from nothing.
        equivariance: weight λ for attentions that are trained to move with the image; None is their own.
        ratio: share of the images to train on, where the data bring no split of their own.
        augment: ColorJitter and RandomPerspective.
        count: of scenes, where they are the data.
        rotate: of scenes, the range of the shapes' angles in radians; 0 keeps them upright.
        workers: processes that load images.
        precision: of the training, in Lightning's words.
    """

    data: str = "scenes"
    root: str | None = None
    backbone: str = "tiny"
    attentions: Sequence[str] = DEFAULT
    where: Sequence[str] = ()
    weights: str | None = None
    freeze: Sequence[str] = ()
    hidden: int = 0
    epochs: int = 8
    seeds: Sequence[int] = (0,)
    size: int = 64
    batch_size: int = 32
    lr: float | None = None
    attention_lr: float = 5e-4
    equivariance: float | None = None
    ratio: float | None = None
    augment: bool = False
    count: int | None = None
    rotate: float | None = None
    workers: int = 0
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"

    def images(self, seed: int, cache: bool | None = None) -> Images:
        """The data of the runs with that seed; `cache` as that of `Images`."""
        return Images(
            self.data,
            root=self.root,
            ratio=self.ratio,
            split_seed=seed,
            size=self.size,
            batch_size=self.batch_size,
            workers=self.workers,
            augment=self.augment,
            seed=seed,
            count=self.count,
            rotate=self.rotate,
            backbone=self.backbone,
            cache=cache,
        )

    def __post_init__(self) -> None:
        models.backbone(self.backbone)
        entries = [models.entry(name) for name in self.attentions]
        if self.weights is not None and (anew := [entry.name for entry in entries if entry.anew]):
            raise RunsError(f"{' and '.join(anew)} cannot start from weights; leave these or --weights out")
        if not self.attentions or not self.seeds:
            raise RunsError("a comparison needs at least one attention and one seed")
        for name in ("epochs", "size", "batch_size", "rate", "attention_lr"):
            if not getattr(self, name) > 0:
                raise RunsError(f"{name.replace('rate', 'lr')} must be positive, not {getattr(self, name)}")

    @property
    def rate(self) -> float:
        """The learning rate of the backbone."""
        if self.lr is not None:
            return self.lr
        return models.backbone(self.backbone).rate


@dataclass(frozen=True)
class AttentionRun(Run):
    """One attention with one seed."""

    attention: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """As progress bars call it."""
        return f"{self.attention}, seed {self.seed}"


def compare(
    settings: Settings,
    out: Path,
    resume: bool = False,
    jobs: int = 1,
    command: str = "compare(…)",
    record: bool = False,
) -> pd.DataFrame:
    """Train and evaluate every attention with every seed; write `table.csv`, `table.md` and `report.html` into `out`.

    A comparison that was interrupted goes on with `resume`, and ends in the numbers that it would have had. With
    several `jobs`, as many runs go side by side, each in a process of its own. `command` is what `table.md` says it was
    made by. With `record`, training steps are replayed as CUDA graphs where there is a GPU.
    """
    claim(out, asdict(settings), resume)
    runs = [AttentionRun(a, s, out / "runs" / f"{a}-seed{s}") for s in settings.seeds for a in settings.attentions]
    finish_all(runs, partial(_run, settings, record, {}), jobs, lambda result: f"accuracy {result['accuracy']:.1%}")
    table = tabulate(settings, runs)
    with writing(out / TABLE) as beside:
        table.to_csv(beside, index=False)
    with writing(out / PAGE) as beside:
        beside.write_text(comparison_report.page(table, command))
    with doing("Writing the report"):
        comparison_report.write(settings, runs, table, out / REPORT)
    return table


def _run(
    settings: Settings, record: bool, kept: dict[int, Images], run: AttentionRun, callbacks: Sequence[Callback] = ()
) -> None:
    """Train and evaluate one attention with one seed."""
    if run.seed not in kept:  # read once for all attentions, and no more than one seed's at a time
        kept.clear()
        kept[run.seed] = settings.images(run.seed)
    data = kept[run.seed]
    model = Classifier(
        data.class_names,
        settings.backbone,
        run.attention,
        settings.where,
        hidden=settings.hidden,
        weights=settings.weights,
        freeze=settings.freeze,
        lr=settings.rate,
        attention_lr=settings.attention_lr,
        equivariance=settings.equivariance if models.entry(run.attention).equivariance else None,
        schedule="cosine",
        record=record,
        seed=run.seed,
    )
    with quiet():
        trainer = Trainer(
            max_epochs=settings.epochs,
            devices=1,  # runs are many and small; `foveate train` is for one on many devices
            precision=settings.precision,
            callbacks=list(callbacks),
            enable_progress_bar=False,
            **DEFAULTS,
        )
    fit(trainer, model, data, run.folder)
    network = model.network.to(trainer.strategy.root_device)
    batches = counted(data.val_dataloader(), f"{run.name}, measuring")
    run.finish(evaluate(network, batches, len(data.class_names), run.seed, data.preprocess))


def tabulate(settings: Settings, runs: Sequence[AttentionRun]) -> pd.DataFrame:
    """A row for each attention: mean and deviation over seeds, added parameters, latency as a ratio."""
    table = over_seeds([{"attention": run.attention, **(run.result or {})} for run in runs], "attention")
    plain = models.build(_recipe(settings, runs[0], "none")).eval()
    images = torch.zeros(8, 3, settings.size, settings.size)
    for index, name in counted(list(table["attention"].items()), "Measuring latency"):
        model = models.build(_recipe(settings, runs[0], name)).eval()
        table.loc[index, "added_parameters"] = models.parameter_count(model) - models.parameter_count(plain)
        with torch.no_grad():
            table.loc[index, "latency_ratio"] = ratio(partial(model, images), partial(plain, images), 1.0).value
    return table


def _recipe(settings: Settings, run: AttentionRun, attention: str) -> models.Recipe:
    recipe: models.Recipe = models.load(run.folder / NETWORK).recipe  # type: ignore[assignment]
    return replace(recipe, attention=attention)
