"""The pages of a comparison: its table on the terminal, and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from rich.measure import Measurement
from rich.table import Table

from foveate import models
from foveate.data import Item
from foveate.figures import Column, Gallery, Illustration, Report, split_accuracies, write_report
from foveate.gaze import Gaze, watch
from foveate.training.data import Images
from foveate.training.keep import NETWORK
from foveate.training.progress import console

if TYPE_CHECKING:
    from foveate.training.compare import AttentionRun, Settings

COLUMNS = (  # what a reader compares; table.csv has the other metrics too
    Column(
        "accuracy", "accuracy", "%", "higher", 1, "share of the validation images named rightly, after the last epoch"
    ),
    Column(
        "accuracy_quarter_turns",
        "quarter turns",
        "%",
        "higher",
        1,
        "accuracy when images are turned by 90, 180 or 270°",
    ),
    Column("accuracy_any_angle", "any angle", "%", "higher", 1, "accuracy when each is turned by an angle of its own"),
    Column("fitting_rate", "fitting rate", "%", "higher", 1, "overlap of where it looked with the object: IoU"),
    Column("pointing_accuracy", "pointing", "%", "higher", 1, "how often the map's maximum lies on the object"),
    Column("attention_inside", "inside", "%", "higher", 1, "share of the attention that lies on the object"),
    Column("equivariance_error", "equivariance error", "", "lower", 3, "how far the map fails to move with the image"),
    Column(
        "interpretability_score",
        "interpretability",
        "%",
        "higher",
        1,
        "of the modified images whose class survives, how many keep their map, to a cosine of 0.9; a map that never "
        "changes has 100 %, so read it beside the others",
    ),
    Column("added_parameters", "added parameters", "", None, 0, "what the attention learns, in numbers"),
    Column("latency_ratio", "latency", "×", "lower", 2, "time of a forward pass over that of the plain backbone"),
)
SHOWN = 8  # images in the gallery


def show(table: pd.DataFrame) -> None:
    """Print the table, as many of its columns as fit the terminal whole."""
    columns = [column for column in COLUMNS if column.name in table]
    fitting = (n for n in range(len(columns), 1, -1) if _width(_view(table, columns[:n])) <= console.width)
    shown = next(fitting, 1)
    console.print(_view(table, columns[:shown]))
    if left := columns[shown:]:
        console.print(f"not shown for want of room: {', '.join(column.title for column in left)}")


def page(table: pd.DataFrame, command: str) -> str:
    """The table in Markdown, for a page of results, with the command that makes it."""
    columns = [column for column in COLUMNS if column.name in table]
    titles = [column.title + (f" ({column.unit})" if column.unit else "") for column in columns]
    lines = [f"| attention | {' | '.join(titles)} |", "|---" + "|---:" * len(columns) + "|"]
    lines += [
        f"| {row['attention']} | {' | '.join(_cell(row, column) for column in columns)} |"
        for _, row in table.iterrows()
    ]
    return "\n".join([*lines, "", f"Made by `{command}`, {date.today()}.", ""])


def _view(table: pd.DataFrame, columns: Sequence[Column]) -> Table:
    view = Table(box=None, header_style="bold")
    view.add_column("attention", no_wrap=True)
    for column in columns:
        heading = column.title + (f" [{column.unit}]" if column.unit else "")
        view.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for _, row in table.iterrows():
        view.add_row(str(row["attention"]), *(_cell(row, column) for column in columns))
    return view


def _width(view: Table) -> int:
    return Measurement.get(console, console.options.update(width=10_000), view).maximum


def _cell(row: pd.Series[Any], column: Column) -> str:
    value, spread = row[column.name], row.get(f"{column.name}_std", float("nan"))
    if pd.isna(value):
        return "–"
    scale = 100 if column.unit == "%" else 1
    text = f"{value * scale:,.{column.digits}f}"
    return text if pd.isna(spread) else f"{text} ± {spread * scale:.{column.digits}f}"


def write(settings: Settings, runs: Sequence[AttentionRun], table: pd.DataFrame, path: Path) -> None:
    """Write report.html."""
    first = [run for run in runs if run.seed == settings.seeds[0]]
    report = Report(
        title=f"{settings.backbone} on {settings.data}",
        summary=(
            f"One backbone, {len(settings.attentions)} ways of attending, the same data and seeds. "
            "What an attention looked at was never told to it: masks are used to measure, not to train."
        ),
        columns=[column for column in COLUMNS if column.name in table],
        rows=_rows(runs, table),
        curves=_curves(runs),
        galleries=[_gallery(settings, first)],
        illustrations=_illustrations(settings, runs),
        settings={
            name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            for name, value in {**vars(settings), "lr": settings.rate}.items()
            if value not in (None, (), [])
        },
        notes=[
            "Mean ± standard deviation over the seeds, each with weights, order and split of its own.",
            f"Latency: batch of 8 on {torch.get_num_threads()} CPU threads, measured by turns with the plain backbone.",
        ],
    )
    write_report(path, report)


def _rows(runs: Sequence[AttentionRun], table: pd.DataFrame) -> Mapping[str, Mapping[str, Sequence[float]]]:
    rows: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        row = rows.setdefault(run.attention, {})
        for name, value in (run.result or {}).items():
            row.setdefault(name, []).append(value)
    for _, line in table.iterrows():
        for name in ("added_parameters", "latency_ratio"):
            rows[line["attention"]][name] = [line[name]]
    for row in rows.values():
        for column in COLUMNS:
            if column.unit == "%" and column.name in row:
                row[column.name] = [100 * value for value in row[column.name]]
    return rows


def _curves(runs: Sequence[AttentionRun]) -> dict[str, dict[int, dict[int, float]]]:
    curves: dict[str, dict[int, dict[int, float]]] = {}
    for run in runs:
        curves.setdefault(run.attention, {})[run.seed] = run.accuracies
    return curves


def _illustrations(settings: Settings, runs: Sequence[AttentionRun]) -> list[Illustration]:
    """The accuracy of each seed, where there are several (rectangular Fig. 5)."""
    if len(settings.seeds) < 2:
        return []
    accuracies: dict[str, list[float]] = {}
    for run in runs:
        accuracies.setdefault(run.attention, []).append(100 * (run.result or {})["accuracy"])
    split = f"{settings.ratio:.0%} for training" if settings.ratio else "the data's own split"
    figure = split_accuracies({split: accuracies}, "validation accuracy (%)")
    about = "Dots of one column share a seed: its weights, its order and, where the data are split here, its split."
    return [Illustration("Seed by seed", figure, about)]


def _gallery(settings: Settings, runs: Sequence[AttentionRun]) -> Gallery:
    """The same validation images, spread over the classes, under each attention."""
    data = settings.images(settings.seeds[0], cache=False)  # only a few of them are looked at
    items = _spread(data)
    images = torch.stack([data.preprocess(item.image) for item in items])
    gazes: dict[str, Gaze] = {}
    predictions: dict[str, list[str]] = {}
    for run in runs:
        model = models.load(run.folder / NETWORK)
        with watch(model) as seen, torch.no_grad():
            chosen = model(images).argmax(1).tolist()
        predictions[run.attention] = [data.class_names[label] for label in chosen]
        if seen:
            gazes[run.attention] = list(seen.values())[-1]
    masks = [item.mask for item in items if "mask" in item]
    return Gallery(
        data.preprocess.unnormalise(images),
        gazes,
        labels=[data.class_names[item.label] for item in items],
        predictions=predictions,
        masks=masks if len(masks) == len(items) else None,
    )


def _spread(data: Images) -> list[Item]:
    """Some validation items, of as many classes as can be."""
    count = len(data.val_items)
    return [data.val_items[index] for index in range(0, count, max(1, count // SHOWN))][:SHOWN]
