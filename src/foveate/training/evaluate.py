"""How good a trained network is, and how good its attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from foveate import models
from foveate.attach import undisturbed
from foveate.attention import predict
from foveate.attention.bottleneck import BottleneckLook
from foveate.attention.latent import Encode
from foveate.data import Crossed, ImageSet
from foveate.data.catalogue import open_split
from foveate.data.crossing import Match
from foveate.data.transforms import Prepared, Preprocess
from foveate.gaze import watch
from foveate.geometry import random_similarity, warp
from foveate.metrics import EquivarianceError, InterpretabilityScore, shape_metrics, where_metrics
from foveate.metrics.modifications import paper_modifications
from foveate.progress import counted

M = TypeVar("M", bound=nn.Module)
Part = Literal["train", "test"]
PIXELS = 500 * 32**2  # at a time when errors are counted
EVERY = 4  # of the images, every fourth is modified: enough for a column, and too few to be waited for


def evaluate(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    classes: int,
    seed: int = 0,
    preprocess: Preprocess | None = None,
) -> dict[str, float]:
    """Accuracy, and the metrics of the last gaze: where it looks (given masks), its shape, how it bears changes.

    Each batch has `image` and `label`, and `mask` where there is one. Without attention there is the accuracy alone.
    The interpretability score, over the four modifications of bottleneck Fig. 3, needs to know how images were
    prepared; without `preprocess` it is left out.
    """
    with undisturbed(model):
        torch.manual_seed(seed)
        return _evaluate(model, batches, classes, seed, preprocess)


def _evaluate(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    classes: int,
    seed: int,
    preprocess: Preprocess | None,
) -> dict[str, float]:
    device = next(model.parameters()).device
    accuracy = MulticlassAccuracy(num_classes=classes, average="micro").to(device)
    where, shape, equivariance = where_metrics().to(device), shape_metrics().to(device), EquivarianceError().to(device)
    interpretability = InterpretabilityScore().to(device)
    modifications = paper_modifications(preprocess.size, windows=[8], levels=preprocess.levels) if preprocess else {}
    generator, blocks = (torch.Generator().manual_seed(seed) for _ in range(2))
    looked = masked = False
    for batch in batches:
        images, labels = batch["image"].to(device), batch["label"].to(device)
        with watch(model) as gazes:
            logits = model(images)
        accuracy.update(logits, labels)
        if not gazes:
            continue
        looked = True
        name, gaze = list(gazes.items())[-1]
        shape.update(gaze)
        if "mask" in batch:
            masked = True
            where.update(gaze, batch["mask"].to(device))
        matrix = random_similarity(len(images), generator=generator).to(device)
        with watch(model) as moved:
            model(warp(images, matrix))
        equivariance.update(gaze, moved[name], matrix)
        for modify in modifications.values():
            with watch(model) as seen:
                changed = model(modify(images[::EVERY], blocks))
            interpretability.update(gaze.map[::EVERY], seen[name].map, logits[::EVERY], changed)
    values = {"accuracy": accuracy.compute()}
    if masked:
        values.update(where.compute())
    if looked:
        values.update(shape.compute())
        values["equivariance_error"] = equivariance.compute()
        if modifications:
            values["interpretability_score"] = interpretability.compute()
    return {name: float(value) for name, value in values.items()}


def evaluate_checkpoint(
    checkpoint: Path,
    data: str,
    root: str | None = None,
    ratio: float | None = None,
    split_seed: int = 0,
    batch_size: int = 32,
    split: Part = "test",
    match: Match | None = None,
) -> dict[str, float]:
    """The numbers of `evaluate` for a saved network on a data set; arguments as those of `opened`.

    A network that draws has `accuracy_of_draws` too, by the average over 4 maps and 12 codes for each, as in the
    bottleneck paper; the other numbers are those of the mean map and the mean code.

    On data with classes that the network does not know, `accuracy` is over the images of those that it does know,
    `matched` is the share of these, and `accuracy_of_all` counts all others as wrong.
    """
    model: Any = best_device(models.load(checkpoint))
    items = opened(model, data, root, ratio, split_seed, split, match)
    batches = DataLoader(Prepared(items, model.preprocess), batch_size)
    values = evaluate(model, counted(batches, "Evaluating"), len(model.class_names), preprocess=model.preprocess)
    if any(isinstance(module, BottleneckLook | Encode) for module in model.modules()):
        values["accuracy_of_draws"] = 1 - error(model, items, model.preprocess) / 100
    if isinstance(items, Crossed):
        values |= {"matched": items.share, "accuracy_of_all": items.share * values["accuracy"]}
    return values


def opened(
    model: Any,
    data: str,
    root: str | None = None,
    ratio: float | None = None,
    split_seed: int = 0,
    split: Part = "test",
    match: Match | None = None,
) -> ImageSet:
    """The part of a data set that a loaded network is to be measured on, under the network's classes.

    Args:
        model: what `foveate.load` gives.
        data: the name of a data set, or an image folder.
        root: where data sets are kept.
        ratio, split_seed: of a split by class; nothing means the data set's own.
        split: which side of the split.
        match: how to cross over from data with other classes, see `foveate.data.Crossed`; nothing refuses them.
    """
    training, held_out = open_split(data, ratio, split_seed, root=root, masks=True)
    items = training if split == "train" else held_out
    if list(items.classes) == model.class_names:
        return items
    if match is None:
        theirs, ours = ", ".join(items.classes[:3]), ", ".join(model.class_names[:3])
        raise ValueError(
            f"the network was trained for other classes ({ours}, …) than those of the data ({theirs}, …); "
            "--match name finds those that both have"
        )
    return Crossed(items, model.class_names, match)


@torch.no_grad()
def error(model: nn.Module, items: ImageSet, preprocess: Preprocess) -> float:
    """The share of images that a network names wrongly, in percent; by 4 × 12 draws where it draws (bottleneck C).

    >>> from foveate.data import Scenes
    >>> error(models.TinyCNN(5), Scenes(8, 32), Preprocess(32)) <= 100
    True
    """
    device = next(model.parameters()).device
    ready = Prepared(items, preprocess)
    draws = torch.Generator(device).manual_seed(0)
    model.eval()
    wrong = 0
    step = max(1, PIXELS // preprocess.size**2)
    for start in range(0, len(ready), step):
        batch = ready.batch(range(start, min(start + step, len(ready))))
        logits = predict(model, batch.image.to(device), generator=draws).logits
        wrong += int((logits.argmax(1).cpu() != batch.label).sum())
    return 100 * wrong / max(1, len(ready))


def best_device(model: M) -> M:
    """The model, on a GPU where there is one."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu")
