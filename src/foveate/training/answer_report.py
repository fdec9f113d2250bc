"""What a comparison of poolings shows: its tables on the terminal, where each pooling looked as figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from rich.table import Table

from foveate.data.questions import SceneQuestions
from foveate.figures import save
from foveate.figures.densities import attended
from foveate.files import writing
from foveate.gaze import Gaze
from foveate.training.answer_runs import UNIMODAL, Settings, load_network, runs_of, with_selection
from foveate.training.answering import Asked, outputs
from foveate.training.progress import console
from foveate.training.runs import TABLE, spread
from foveate.training.scene_features import SEEDS

PAGE = "table.md"
SHOWN, PIXELS = 6, 224  # questions in a figure, and the pixels of their pictures


@dataclass(frozen=True)
class Part:
    """A table to be read: its title, the heads of its columns, and its rows as they are printed."""

    title: str
    heads: list[str]
    rows: list[list[str]]


def parts(table: pd.DataFrame, modes: pd.DataFrame) -> list[Part]:
    """Accuracy and share of attention on the asked-about objects, and how many modes were chosen, in per cent."""
    found = []
    for title, prefix in (("accuracy [%]", "accuracy"), ("attention on the asked-about objects [%]", "inside")):
        columns = [c for c in table.columns if c.split("_")[0] == prefix and not c.endswith("_std")]
        rows = [
            [str(row["pooling"]), *(spread(100 * row[c], 100 * row.get(f"{c}_std", float("nan")), 1) for c in columns)]
            for _, row in table.iterrows()
        ]
        if columns:
            found.append(Part(title, ["pooling", *(c.partition("_")[2] or "overall" for c in columns)], rows))
    if len(modes):
        heads = [column if column == "λ" else f"K* = {column}" for column in modes.columns]
        shares = [[f"{row['λ']:g}", *(f"{100 * row[c]:.2f}" for c in modes.columns[1:])] for _, row in modes.iterrows()]
        found.append(Part("optimum number of modes [% of questions]", heads, shares))
    return found


def show(table: pd.DataFrame, modes: pd.DataFrame) -> None:
    """Print the tables."""
    for part in parts(table, modes):
        view = Table(title=part.title, box=None, header_style="bold")
        for place, head in enumerate(part.heads):
            view.add_column(head, justify="right" if place else "left", no_wrap=not place)
        for row in part.rows:
            view.add_row(*row)
        console.print(view)


def page(table: pd.DataFrame, modes: pd.DataFrame) -> str:
    """The tables in Markdown."""
    lines = []
    for part in parts(table, modes):
        lines += [f"**{part.title}**", ""]
        lines += [f"| {' | '.join(part.heads)} |", "|---|" + "---:|" * (len(part.heads) - 1)]
        lines += [f"| {' | '.join(row)} |" for row in part.rows] + [""]
    return "\n".join(lines)


def write(settings: Settings, out: Path, table: pd.DataFrame, modes: pd.DataFrame) -> list[Path]:
    """Write the tables in Markdown, draw where the first seed's networks looked; the paths of all there is to see."""
    with writing(out / PAGE) as beside:
        beside.write_text(page(table, modes))
    if settings.data != "scenes":
        return [out / TABLE, out / PAGE]
    runs = [run for run in runs_of(settings, out) if run.seed == settings.seeds[0]]
    val = settings.asked(out / "data")[1]
    chosen = _varied(val)
    batch = val.__getitems__(chosen)
    gazes: dict[str, Gaze] = {}
    answers: dict[str, list[str]] = {}
    networks = {run.pooling: load_network(settings, out, run) for run in runs}
    if UNIMODAL in networks and settings.penalties:
        networks["test-MCA"] = with_selection(settings, networks[UNIMODAL], min(settings.penalties))
    for name, network in networks.items():
        logits, gazes[name] = outputs(network, batch)
        answers[name] = [val.answers[n] for n in logits.argmax(1).tolist()]
    scenes = SceneQuestions(settings.val_count, PIXELS, SEEDS["val"])
    items = [scenes[index] for index in chosen]
    pictures, masks = (torch.stack([item[name] for item in items]) for name in ("image", "mask"))
    questions, right = [f"{item.words}?" for item in items], [scenes.classes[item.label] for item in items]
    figure = attended(pictures, gazes, questions, right, answers, masks)
    return [out / TABLE, out / PAGE, save(figure, out / "attended.png")]


def _varied(asked: Asked) -> list[int]:
    """Questions of all kinds, in turn."""
    kinds = asked.__getitems__(list(range(min(200, len(asked)))))["kind"]
    by_kind = [[i for i, kind in enumerate(kinds) if kind == k] for k in dict.fromkeys(kinds)]
    return [by_kind[n % len(by_kind)][n // len(by_kind) % len(by_kind[n % len(by_kind)])] for n in range(SHOWN)]
