"""Does a saved network need what its attention looks at, and did the attention learn it? Tables and a figure."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader

from foveate.attach import undisturbed
from foveate.data import ImageSet, Part, Prepared
from foveate.figures import save
from foveate.figures.consistency import named
from foveate.figures.faithfulness import faithfulness_curves
from foveate.files import writing
from foveate.gaze import Gaze, watch
from foveate.metrics import DeletionCurve, InsertionCurve
from foveate.metrics.attribution import grad_cam, sensitivity
from foveate.metrics.faithfulness import area_under
from foveate.metrics.randomisation import cascading_randomisation
from foveate.progress import counted
from foveate.training.trust import Trial, places

RANDOM, GRAD_CAM = "at random", "Grad-CAM"
FEW = 32  # images whose maps are watched while weights go
COUNT = 256  # images whose pixels go, unless another number is asked for


@dataclass(frozen=True)
class Faithfulness:
    """What came out, by the name of the attention or of a reference.

    Attributes:
        deletion, insertion: mean curves (steps + 1,).
        scrambled: rank correlation of the maps with the first ones while weights are redrawn, (steps + 1,).
        sensitivity: the largest relative change of a map under small nudges, in the mean; none without captum.
        ignoring: the attentions whose maps stay when no weight does.
    """

    deletion: Mapping[str, Tensor]
    insertion: Mapping[str, Tensor]
    scrambled: Mapping[str, Tensor]
    sensitivity: Mapping[str, float]
    ignoring: list[str]

    def frame(self) -> pd.DataFrame:
        """A row for each attention and reference, with the areas under the curves."""
        rows = [
            {
                "attention": name,
                "deletion": float(area_under(curve)),
                "insertion": float(area_under(self.insertion[name])),
                "sensitivity": self.sensitivity.get(name),
                "scrambled": float(self.scrambled[name][-1]) if name in self.scrambled else None,
            }
            for name, curve in self.deletion.items()
        ]
        return pd.DataFrame(rows)


def faithfulness(model: Any, items: ImageSet, trial: Trial, out: Path | None = None) -> Faithfulness:
    """Measure a loaded network on images, and write `faithfulness.csv` and `faithfulness.png` into a folder.

    Args:
        model: what `foveate.load` gives.
        items: the images.
        trial: how; of it `seed`, `batch_size` and `count` matter, at most 256 images unless a count is given.
        out: the folder; None writes nothing.
    """
    tried = Part(items, places(len(items), trial.count or COUNT))
    batches = DataLoader(Prepared(tried, model.preprocess), trial.batch_size)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(trial.seed)
    deletion: dict[str, DeletionCurve] = {}
    insertion: dict[str, DeletionCurve] = {}
    nudged: dict[str, list[Tensor]] = {}
    with undisturbed(model):
        for batch in counted(batches, "Taking pixels away"):
            images = batch["image"].to(device)
            for name, gaze in _maps(model, images):
                for metrics, kind in ((deletion, DeletionCurve), (insertion, InsertionCurve)):
                    metrics.setdefault(name, kind().to(device)).update(model, images, gaze, generator=generator)
            if captum_there():
                for name, at in _places_of_gazes(model, images).items():
                    nudged.setdefault(name, []).append(sensitivity(model, images, at, seed=trial.seed))
    few = torch.stack([Prepared(tried, model.preprocess)[k].image for k in places(len(tried), FEW)]).to(device)
    cascade = cascading_randomisation(model, few, trial.seed)
    labels = named(model, {at: at for at in cascade.similarity})
    found = Faithfulness(
        {name: metric.compute().cpu() for name, metric in deletion.items()},
        {name: metric.compute().cpu() for name, metric in insertion.items()},
        {name: cascade.similarity[at] for name, at in labels.items()},
        {name: float(torch.cat(values).mean()) for name, values in nudged.items()},
        [name for name, at in labels.items() if at in cascade.ignoring],
    )
    if out is not None:
        with writing(out / "faithfulness.csv") as beside:
            found.frame().to_csv(beside, index=False)
        figure = faithfulness_curves(found.deletion, found.insertion, found.scrambled, (RANDOM, GRAD_CAM))
        save(figure, out / "faithfulness.png")
    return found


def table_of(found: Faithfulness) -> Table:
    """What came out, for a reader."""
    table = Table(title="Faithfulness", title_justify="left", box=None)
    table.add_column("attention", no_wrap=True)
    for heading in ("deletion ↓", "insertion ↑", "sensitivity ↓", "scrambled ↓"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.frame().to_dict("records"):
        numbers = [row[name] for name in ("deletion", "insertion", "sensitivity", "scrambled")]
        table.add_row(str(row["attention"]), *("" if pd.isna(value) else f"{value:.3f}" for value in numbers))
    words = [f"{name} looks the same when nothing is left of what was learned" for name in found.ignoring]
    if not captum_there():
        words.append('Grad-CAM and sensitivity need captum: pip install "foveate[explain]"')
    table.caption = "; ".join(words) or None
    table.caption_justify = "left"
    return table


def captum_there() -> bool:
    """Whether the extra that brings captum is installed."""
    return importlib.util.find_spec("captum") is not None


def _maps(model: Any, images: Tensor) -> Iterator[tuple[str, Gaze]]:
    """The gazes of a network, and what they are held against."""
    with torch.no_grad(), watch(model) as gazes:
        model(images)
    if not gazes:
        raise ValueError("this network has no attention, so there is nothing whose faithfulness could be measured")
    yield from named(model, gazes).items()
    yield RANDOM, Gaze(images.new_ones(len(images), 1, 1, 1))
    if captum_there():
        last = list(gazes)[-1]
        with torch.enable_grad():
            yield GRAD_CAM, grad_cam(model, last, images)


def _places_of_gazes(model: Any, images: Tensor) -> dict[str, str]:
    with torch.no_grad(), watch(model) as gazes:
        model(images[:1])
    return named(model, {at: at for at in gazes})
