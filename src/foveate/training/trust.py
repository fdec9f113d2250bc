"""Can the attention of a trained network be trusted? Bottleneck Table 2 and Fig. 3 for a saved network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch.utils.data import DataLoader

from foveate.data import ImageSet, Part, Prepared, open_dataset
from foveate.figures import save
from foveate.figures.consistency import modified_examples, named, score_curves
from foveate.files import writing
from foveate.metrics import interpretability_scores
from foveate.metrics.functional import COSINE
from foveate.metrics.interpretability import CURVE, Outcome
from foveate.metrics.modifications import WINDOWS, Modification, paper_modifications
from foveate.progress import counted

DONORS = 512  # images of another data set whose patches are taken
SHOWN = {"color p=8", "patch p=8", "r > 4", "r < 12"}  # the rows of bottleneck Fig. 3
Scores = Mapping[str, Mapping[str, Outcome]]


@dataclass(frozen=True)
class Trial:
    """How a network is tried.

    Attributes:
        patches: the name of a data set, or an image folder, whose patches are put on images; None takes the patches
            from other images of the same data.
        root: where data sets are kept.
        threshold: the cosine from which on two maps count as one.
        stretch: stretch what is left of an image's frequencies from black to white, as the authors' files do.
        seed: of all that is random.
        batch_size: images in a batch.
        count: try so many of the images, spread evenly; None tries all.
        examples: images in the figure.
    """

    patches: str | None = None
    root: str | None = None
    threshold: float = COSINE
    stretch: bool = False
    seed: int = 0
    batch_size: int = 64
    count: int | None = None
    examples: int = 2

    def modifications(self, model: Any) -> dict[str, Modification]:
        """Those of bottleneck Table 2, for the images that a loaded network takes."""
        prepare = model.preprocess
        donors = None
        if self.patches is not None:
            others = Prepared(open_dataset(self.patches, "test", root=self.root), prepare)
            donors = torch.stack([item.image for item in _spread(others, DONORS)])
        return paper_modifications(prepare.size, donors=donors, levels=prepare.levels, stretch=self.stretch)


def interpretability(model: Any, items: ImageSet, trial: Trial, out: Path | None = None) -> Scores:
    """Try a loaded network on images, and write what came out into a folder.

    The folder gets `interpretability.csv` (a row for each attention and modification), `interpretability-curves.csv`
    (for each threshold), `interpretability-curves.png` and `interpretability.png`, which is bottleneck Fig. 3.

    Args:
        model: what `foveate.load` gives.
        items: the images.
        trial: how.
        out: the folder; None writes nothing.

    Returns:
        attention -> modification -> outcome.
    """
    modifications = trial.modifications(model)
    tried = Part(items, places(len(items), trial.count or len(items)))
    batches = DataLoader(Prepared(tried, model.preprocess), trial.batch_size)
    measured = interpretability_scores(model, counted(batches, "Modifying"), modifications, trial.threshold, trial.seed)
    scores = named(model, measured)
    if out is not None:
        table, curves = frames(scores)
        for frame, name in ((table, "interpretability.csv"), (curves, "interpretability-curves.csv")):
            with writing(out / name) as beside:
                frame.to_csv(beside, index=False)
        lines = {at: {name: outcome.curve for name, outcome in of.items()} for at, of in scores.items()}
        save(score_curves(lines, CURVE, trial.threshold), out / "interpretability-curves.png")
        save(example_figure(model, tried, modifications, trial), out / "interpretability.png")
    return scores


def frames(scores: Scores) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The scores and, for each threshold, the curves, as tables."""
    pairs = [(at, name, outcome) for at, of in scores.items() for name, outcome in of.items()]
    table = [
        {"attention": at, "modification": name, "score": o.score, "survived": o.survived, "images": o.images}
        for at, name, o in pairs
    ]
    curves = [
        {"attention": at, "modification": name, "threshold": threshold, "score": score, "centred_score": centred}
        for at, name, o in pairs
        for threshold, score, centred in zip(CURVE, o.curve.tolist(), o.centred_curve.tolist(), strict=True)
    ]
    return pd.DataFrame(table), pd.DataFrame(curves)


def table_2(scores: Scores, threshold: float) -> Table:
    """The scores as in bottleneck Table 2: percentages, and below each how many images kept their class."""
    table = Table(title=f"Interpretability scores at a cosine of {threshold:g}", title_justify="left", box=None)
    headings = ["attention", "spatial", *(f"p={p}" for p in WINDOWS), "frequency", "score"]
    for heading in headings:
        words = heading in ("attention", "spatial", "frequency")
        table.add_column(heading, justify="left" if words else "right", no_wrap=True)
    for at, of in scores.items():
        for name, spatial, frequency in ((at, "color", "r > 4"), ("", "patch", "r < 12")):
            windows = [_cell(of[f"{spatial} p={p}"]) for p in WINDOWS]
            table.add_row(name, spatial, *windows, frequency, _cell(of[frequency]))
    table.caption = "in %; below each, how many images kept their class, of which it is the score"
    table.caption_justify = "left"
    return table


def _cell(outcome: Outcome) -> str:
    score = f"{100 * outcome.score:.2f}" if outcome.survived else "–"
    return f"{score}\n[bright_black]of {100 * outcome.survived:.0f}[/]"


def example_figure(model: Any, items: ImageSet, modifications: Mapping[str, Modification], trial: Trial) -> Figure:
    """Bottleneck Fig. 3 for a loaded network: a few of the images, under the modifications that are shown there."""
    prepared = Prepared(items, model.preprocess)
    images = torch.stack([item.image for item in _spread(prepared, trial.examples)])
    shown = {name: modify for name, modify in modifications.items() if name in SHOWN}
    return modified_examples(model, images.to(next(model.parameters()).device), shown, trial.threshold, trial.seed)


def places(length: int, count: int) -> Sequence[int]:
    """At most `count` places, spread evenly over `length`."""
    count = min(count, length)
    return [(2 * k + 1) * length // (2 * count) for k in range(count)]


def _spread(items: ImageSet, count: int) -> Iterator[Any]:
    return (items[place] for place in places(len(items), count))
