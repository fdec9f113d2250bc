"""table: the rows of a paper's table, each from its YAML file, with several seeds, side by side; beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from foveate import models
from foveate.data import ImageSet, InMemory, Prepared, Preprocess
from foveate.files import writing
from foveate.training.keep import BEST
from foveate.training.progress import console, progress_bars
from foveate.training.side_by_side import side_by_side
from foveate.training.train import run

RESULT, SETTINGS, TABLE, PAGE = "result.json", "settings.json", "table.csv", "table.md"
PAPER = "paper.csv"  # beside the YAML files: row, error, deviation, parameters, as printed
BATCH = 500  # images at a time when errors are counted


class TableError(ValueError):
    """A table cannot be made as it was asked for."""


@dataclass(frozen=True)
class RowRun:
    """One row of a table with one seed, and the folder that holds what came out of it."""

    config: Path
    seed: int
    folder: Path
    changes: Sequence[str] = ()

    @property
    def result(self) -> dict[str, float] | None:
        """Its final numbers, once it is over."""
        path = self.folder / RESULT
        return json.loads(path.read_text()) if path.is_file() else None


def table(
    configs: Sequence[Path],
    seeds: Sequence[int],
    out: Path,
    jobs: int = 1,
    resume: bool = False,
    changes: Sequence[str] = (),
    command: str = "",
) -> pd.DataFrame:
    """Train every row with every seed, count its errors on the test images, and write `table.csv` and `table.md`.

    Args:
        configs: a YAML file of `foveate train` for each row, which is named as the file is.
        seeds: of the training; those of `out` that are there already are kept.
        out: folder for the runs and the tables.
        jobs: how many runs go side by side, each in a process of its own.
        resume: go on with what `out` holds.
        changes: settings in which all rows differ from their files, as "trainer.max_epochs=5".
        command: what the page says made it.
    """
    names = [config.stem for config in configs]
    if len(set(names)) < len(names) or not names or not seeds:
        raise TableError("a table needs at least one seed, and at least one row, each with a name of its own")
    _claim(out, configs, changes, resume)
    runs = [
        RowRun(config, seed, out / "runs" / f"{config.stem}-seed{seed}", changes)
        for seed in seeds
        for config in configs
    ]
    with progress_bars() as progress:
        overall = progress.add_task("all runs", total=len(runs), note="")
        missing = [run for run in runs if run.result is None]
        progress.advance(overall, len(runs) - len(missing))
        for done in side_by_side(_train, missing, jobs) if jobs > 1 else _in_turn(missing):
            progress.advance(overall)
            console.print(f"{done.folder.name}: {(done.result or {})['error']:.2f} % wrong")
    rows = tabulate(runs)
    with writing(out / TABLE) as beside:
        rows.to_csv(beside, index=False)
    with writing(out / PAGE) as beside:
        beside.write_text(page(rows, command))
    return rows


def _in_turn(runs: Sequence[RowRun]) -> Iterator[RowRun]:
    for one in runs:
        _train(one)
        yield one


def _train(row: RowRun) -> None:
    """Train one row with one seed, and count the errors of its last and of its best network on the test images."""
    words = ["--config", row.config, "--out", row.folder, "--resume", "--data.seed", row.seed]
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.devices", "1"]
    trained = run([*map(str, words), *quiet, *(f"--{change}" for change in row.changes)])
    preprocess, device = trained.datamodule.preprocess, trained.trainer.strategy.root_device
    items = InMemory(trained.datamodule.test_items(), preprocess.size)
    count = partial(error, items=items, preprocess=preprocess)
    best = models.load(row.folder / BEST)
    result = {
        "error": count(trained.model.network.to(device)),
        "error_best": count(best.to(device)),
        "parameters": models.parameter_count(best),
        "epochs": trained.trainer.current_epoch,
    }
    with writing(row.folder / RESULT) as beside:
        beside.write_text(json.dumps(result, indent=2))


@torch.no_grad()
def error(model: nn.Module, items: ImageSet, preprocess: Preprocess) -> float:
    """The share of images that a network names wrongly, in percent."""
    device = next(model.parameters()).device
    ready = Prepared(items, preprocess)
    model.eval()
    wrong = 0
    for start in range(0, len(ready), BATCH):
        batch = ready.batch(range(start, min(start + BATCH, len(ready))))
        wrong += int((model(batch.image.to(device)).argmax(1).cpu() != batch.label).sum())
    return 100 * wrong / max(1, len(ready))


def tabulate(runs: Sequence[RowRun]) -> pd.DataFrame:
    """A line for each row: mean and deviation over its seeds, parameters, and what the paper prints."""
    frame = pd.DataFrame([{"row": run.config.stem, "seed": run.seed, **(run.result or {})} for run in runs])
    grouped = frame.groupby("row", sort=False)
    rows = grouped.agg(
        seeds=("seed", "count"),
        error=("error", "mean"),
        deviation=("error", "std"),
        error_best=("error_best", "mean"),
        deviation_best=("error_best", "std"),
        parameters=("parameters", "first"),
        epochs=("epochs", "max"),
    )
    papers = {run.config.parent / PAPER for run in runs}
    printed = [pd.read_csv(path).set_index("row").add_prefix("paper_") for path in papers if path.is_file()]
    return rows.join(pd.concat(printed) if printed else pd.DataFrame(index=rows.index)).reset_index()


def page(rows: pd.DataFrame, command: str) -> str:
    """The table in Markdown, with the command that makes it."""
    lines = [
        "| row | test error (%), last epoch | best epoch of validation | paper | parameters | paper | epochs | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.to_dict("records"):
        cells = [
            row["row"],
            _spread(row["error"], row["deviation"]),
            _spread(row["error_best"], row["deviation_best"]),
            _spread(row.get("paper_error"), row.get("paper_deviation"), 3),
            f"{int(row['parameters']):,}",
            "–" if pd.isna(row.get("paper_parameters")) else str(row["paper_parameters"]),
            str(int(row["epochs"])),
            str(row["seeds"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made by `{command}`, {date.today()}.", ""])


def _spread(mean: Any, deviation: Any, digits: int = 2) -> str:
    if mean is None or pd.isna(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if deviation is None or pd.isna(deviation) else f" ± {deviation:.{digits}f}")


def _claim(out: Path, configs: Sequence[Path], changes: Sequence[str], resume: bool) -> None:
    """Make the folder this table's, or refuse; rows and seeds may be added, those that are there may not change."""
    path = out / SETTINGS
    ours: dict[str, Any] = {"changes": list(changes), "rows": {config.stem: config.read_text() for config in configs}}
    if path.is_file():
        if not resume:
            raise TableError(f"{out} holds a table already: pass --resume to go on with it, or another --out")
        theirs = json.loads(path.read_text())
        other = [name for name, text in ours["rows"].items() if theirs["rows"].get(name, text) != text]
        if other or theirs["changes"] != ours["changes"]:
            raise TableError(f"{out} holds a table with other settings of {', '.join(other) or 'all rows'}")
        ours["rows"] = {**theirs["rows"], **ours["rows"]}
    with writing(path) as beside:
        beside.write_text(json.dumps(ours, indent=2))
