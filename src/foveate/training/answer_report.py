"""What a comparison of poolings shows: its tables on the terminal, where each pooling looked as figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from rich.table import Table

from foveate.figures import save
from foveate.figures.densities import attended
from foveate.gaze import Gaze
from foveate.training.answer_runs import SELECTED, TABLE, UNIMODAL, Run, Settings, load_network, runs_of, with_selection
from foveate.training.answering import outputs
from foveate.training.progress import console

SHOWN = 6  # questions in a figure


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
        cells = []
        for column in columns:
            spread = row.get(f"{column}_std", float("nan"))
            cells.append(f"{100 * row[column]:.1f}" + ("" if pd.isna(spread) else f" ± {100 * spread:.1f}"))
        view.add_row(str(row["pooling"]), *cells)
    return view


def write(settings: Settings, out: Path, table: pd.DataFrame, modes: pd.DataFrame) -> list[Path]:
    """Draw where each pooling looked, for the first seed's networks; the paths of all that there is to see."""
    if settings.data != "scenes":
        return [out / TABLE]
    runs = [run for run in runs_of(settings, out) if run.seed == settings.seeds[0]]
    val = settings.asked(out / "data")[1]
    batch = val.__getitems__(_varied(settings, out))
    gazes: dict[str, Gaze] = {}
    answers: dict[str, list[str]] = {}
    for run in runs:
        for name, network in _networks(settings, out, run):
            logits, gazes[name] = outputs(network, batch)
            answers[name] = [val.answers[n] for n in logits.argmax(1).tolist()]
    pictures = batch["picture"].float() / 255
    questions = [" ".join(val.words[n] for n in question.tolist() if n) + "?" for question in batch["question"]]
    right = [people[0] for people in batch["people"]]
    figure = attended(pictures, gazes, questions, right, answers, batch["mask"])
    return [out / TABLE, save(figure, out / "attended.png")]


def _networks(settings: Settings, out: Path, run: Run) -> list[tuple[str, torch.nn.Module]]:
    network = load_network(settings, out, run)
    if run.pooling != UNIMODAL or not settings.penalties:
        return [(run.pooling, network)]
    return [(run.pooling, network), (SELECTED, with_selection(settings, network, min(settings.penalties)))]


def _varied(settings: Settings, out: Path) -> list[int]:
    """Questions of all kinds, in turn."""
    kinds = settings.asked(out / "data")[1].tensors["kind"].tolist()  # type: ignore[attr-defined]
    by_kind = [[i for i, kind in enumerate(kinds) if kind == k] for k in sorted(set(kinds))]
    return [by_kind[n % len(by_kind)][n // len(by_kind)] for n in range(SHOWN)]
