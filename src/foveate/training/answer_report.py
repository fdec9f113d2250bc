"""What a comparison of poolings shows: its tables on the terminal, where each pooling looked as figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from rich.table import Table

from foveate.data.questions import SceneQuestions
from foveate.figures import save
from foveate.figures.densities import attended
from foveate.gaze import Gaze
from foveate.training.answer_runs import UNIMODAL, Settings, load_network, runs_of, with_selection
from foveate.training.answering import Asked, outputs
from foveate.training.progress import console
from foveate.training.runs import TABLE, spread
from foveate.training.scene_features import SEEDS

SHOWN, PIXELS = 6, 224  # questions in a figure, and the pixels of their pictures


def show(table: pd.DataFrame, modes: pd.DataFrame) -> None:
    """Print accuracy and share of attention on the asked-about objects, and how many modes were chosen."""
    for title, prefix in (("accuracy [%]", "accuracy"), ("attention on the asked-about objects [%]", "inside")):
        columns = [c for c in table.columns if c.split("_")[0] == prefix and not c.endswith("_std")]
        if columns:
            console.print(_view(table, columns, title))
    if len(modes):
        view = Table(title="optimum number of modes [% of questions]", box=None, header_style="bold")
        for column in modes.columns:
            view.add_column(column if column == "λ" else f"K* = {column}", justify="right")
        for _, row in modes.iterrows():
            view.add_row(f"{row['λ']:g}", *(f"{100 * row[c]:.2f}" for c in modes.columns[1:]))
        console.print(view)


def _view(table: pd.DataFrame, columns: list[str], title: str) -> Table:
    view = Table(title=title, box=None, header_style="bold")
    view.add_column("pooling", no_wrap=True)
    for column in columns:
        view.add_column(column.partition("_")[2] or "overall", justify="right")
    for _, row in table.iterrows():
        cells = [spread(100 * row[c], 100 * row.get(f"{c}_std", float("nan")), 1) for c in columns]
        view.add_row(str(row["pooling"]), *cells)
    return view


def write(settings: Settings, out: Path, table: pd.DataFrame, modes: pd.DataFrame) -> list[Path]:
    """Draw where each pooling looked, for the first seed's networks; the paths of all that there is to see."""
    if settings.data != "scenes":
        return [out / TABLE]
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
    return [out / TABLE, save(attended(pictures, gazes, questions, right, answers, masks), out / "attended.png")]


def _varied(asked: Asked) -> list[int]:
    """Questions of all kinds, in turn."""
    kinds = asked.__getitems__(list(range(min(200, len(asked)))))["kind"]
    by_kind = [[i for i, kind in enumerate(kinds) if kind == k] for k in dict.fromkeys(kinds)]
    return [by_kind[n % len(by_kind)][n // len(by_kind) % len(by_kind[n % len(by_kind)])] for n in range(SHOWN)]
