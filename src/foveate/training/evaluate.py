"""How good a trained network is, and how good its attention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
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
from foveate.groups import C2, P4
from foveate.metrics import EquivarianceError, InterpretabilityScore, shape_metrics, where_metrics
from foveate.metrics.modifications import paper_modifications
from foveate.progress import counted

M = TypeVar("M", bound=nn.Module)
Part = Literal["train", "test"]
PIXELS = 500 * 32**2  # at a time when errors are counted
ACCURACIES = ("accuracy", "accuracy_quarter_turns", "accuracy_any_angle")
EVERY = 4  # of the images, every fourth is modified: enough for a column, and too few to be waited for


def evaluate(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    classes: int,
    seed: int = 0,
    preprocess: Preprocess | None = None,
) -> dict[str, float]:
    """Accuracies, and the metrics of the last gaze: where it looks (given masks), its shape, how it bears changes.

    Each batch has `image` and `label`, and `mask` where there is one. Without attention there are accuracies alone: of
    the images as they are, turned by 90, 180 or 270°, and turned by any angle.
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
    accuracies = {name: MulticlassAccuracy(num_classes=classes, average="micro").to(device) for name in ACCURACIES}
    where, shape, equivariance = where_metrics().to(device), shape_metrics().to(device), EquivarianceError().to(device)
    interpretability = InterpretabilityScore().to(device)
    modifications = paper_modifications(preprocess.size, windows=[8], levels=preprocess.levels) if preprocess else {}
    generator, blocks, turns = (torch.Generator().manual_seed(seed) for _ in range(3))
    looked = masked = False
    for batch in batches:
        images, labels = batch["image"].to(device), batch["label"].to(device)
        with watch(model) as gazes:
            logits = model(images)
        turned = [model(images) for images in (quarter_turned(images, turns), turned_by_any_angle(images, turns))]
        for name, found in zip(ACCURACIES, [logits, *turned], strict=True):
            accuracies[name].update(found, labels)
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
    values = {name: accuracy.compute() for name, accuracy in accuracies.items()}
    if masked:
        values.update(where.compute())
    if looked:
        values.update(shape.compute())
        values["equivariance_error"] = equivariance.compute()
        if modifications:
            values["interpretability_score"] = interpretability.compute()
    return {name: float(value) for name, value in values.items()}


def quarter_turned(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images (B, C, H, W), each turned by 90, 180 or 270°, which keeps every pixel; by 180° where not square."""
    group = P4 if images.shape[-2] == images.shape[-1] else C2
    all_turns = torch.stack([group.transform(images, h) for h in range(1, len(group))])
    which = torch.randint(len(all_turns), (len(images),), generator=generator)
    return all_turns[which.to(images.device), torch.arange(len(images), device=images.device)]


def turned_by_any_angle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images (B, C, H, W), each turned about its centre by an angle of its own; the border goes on outside."""
    matrix = random_similarity(len(images), math.pi, (1, 1), 0, generator)
    return warp(images, matrix.to(images.device), padding="border")


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
    for start in counted(range(0, len(ready), step), "Counting errors"):
        batch = ready.batch(range(start, min(start + step, len(ready))))
        logits = predict(model, batch.image.to(device), generator=draws).logits
        wrong += int((logits.argmax(1).cpu() != batch.label).sum())
    return 100 * wrong / max(1, len(ready))


def best_device(model: M) -> M:
    """The model, on a GPU where there is one."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu")
