"""table: the rows of a paper's table, each from its YAML file, with several seeds, side by side; beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from foveate import models
from foveate.data import InMemory
from foveate.figures import learning_curves, save
from foveate.files import writing
from foveate.training.evaluate import error
from foveate.training.keep import BEST
from foveate.training.runs import TABLE, Run, RunsError, claim, finish_all, over_seeds, spread
from foveate.training.train import run

PAGE, CURVES = "table.md", "curves.png"
PAPER = "paper.csv"  # beside the YAML files: row, error, deviation, parameters, as printed


@dataclass(frozen=True)
class RowRun(Run):
    """One row of a table with one seed."""

    config: Path
    seed: int
    folder: Path
    changes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """As progress bars call it."""
        return f"{self.config.stem}, seed {self.seed}"


def table(
    configs: Sequence[Path],
    seeds: Sequence[int],
    out: Path,
    jobs: int = 1,
    resume: bool = False,
    changes: Sequence[str] = (),
    command: str = "",
) -> pd.DataFrame:
    """Train every row with every seed, count its errors on the test images, and write table and learning curves.

    Args:
        configs: a YAML file of `foveate train` for each row, which is named as the file is.
        seeds: of the training; those of `out` that are there already are kept.
        out: folder for the runs and the tables.
        jobs: how many runs go side by side, each in a process of its own.
        resume: go on with what `out` holds.
        changes: settings in which all rows differ from their files, as "trainer.max_epochs=5"; "{seed}" in one is
            the seed of the run, as in "data.split_seed={seed}".
        command: what the page says made it.
    """
    names = [config.stem for config in configs]
    if len(set(names)) < len(names) or not names or not seeds:
        raise RunsError("a table needs at least one seed, and at least one row, each with a name of its own")
    rows_as_written = {config.stem: config.read_text() for config in configs}
    claim(out, {"changes": list(changes), **rows_as_written}, resume, grow=True)
    runs = [RowRun(c, seed, out / "runs" / f"{c.stem}-seed{seed}", changes) for seed in seeds for c in configs]
    finish_all(runs, _train, jobs, lambda result: f"{result['error']:.2f} % wrong")
    rows = tabulate(runs)
    with writing(out / TABLE) as beside:
        rows.to_csv(beside, index=False)
    with writing(out / PAGE) as beside:
        beside.write_text(page(rows, command))
    save(learning_curves(curves(runs), "error on the validation part (%)", size=(7.2, 4.2)), out / CURVES)
    return rows


def _train(row: RowRun, callbacks: Sequence[Callback] = ()) -> None:
    """Train one row with one seed, and count the errors of its last and of its best network on the test images."""
    words = ["--config", row.config, "--out", row.folder, "--resume", "--data.seed", row.seed]
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.devices", "1"]
    trained = run(
        [*map(str, words), *quiet, *(f"--{change.replace('{seed}', str(row.seed))}" for change in row.changes)],
        callbacks,
    )
    preprocess, device = trained.datamodule.preprocess, trained.trainer.strategy.root_device
    items = InMemory(trained.datamodule.test_items(), preprocess.size)
    count = partial(error, items=items, preprocess=preprocess)
    best = models.load(row.folder / BEST)
    row.finish(
        {
            "error": count(trained.model.network.to(device)),
            "error_best": count(best.to(device)),
            "parameters": models.parameter_count(best),
            "epochs": _epochs(trained.trainer),
        }
    )


def _epochs(trainer: Trainer) -> float:
    """How often the training images were seen: not a whole number where `max_time` cut the last epoch short."""
    return float((trainer.fit_loop.epoch_loop.total_batch_idx + 1) / max(1, trainer.num_training_batches))


def tabulate(runs: Sequence[RowRun]) -> pd.DataFrame:
    """A line for each row: mean and deviation over its seeds, parameters, and what the paper prints."""
    rows = over_seeds([{"row": run.config.stem, **(run.result or {})} for run in runs], "row").set_index("row")
    rows.insert(0, "seeds", pd.Series([run.config.stem for run in runs]).value_counts())
    printed = [_printed(config) for config in dict.fromkeys(run.config for run in runs)]
    return rows.join(pd.DataFrame(printed).set_index("row")).reset_index()


def _printed(config: Path) -> dict[str, Any]:
    """What the paper prints for a row, where the `paper.csv` beside its file says so."""
    path = config.parent / PAPER
    rows = pd.read_csv(path).set_index("row") if path.is_file() else pd.DataFrame()
    values = rows.loc[config.stem].items() if config.stem in rows.index else ()
    return {"row": config.stem, **{f"paper_{name}": value for name, value in values}}


def curves(runs: Sequence[RowRun]) -> dict[str, dict[int, dict[int, float]]]:
    """What is drawn of each row and seed: percent wrong after each epoch.

    A mean over the last twentieth of all epochs, for neighbouring ones differ by as much as rows do; and without the
    first tenth, which is so much worse that nothing else could be seen.
    """
    found: dict[str, dict[int, dict[int, float]]] = {}
    wrongs = [100 * (1 - pd.Series(row.accuracies)) for row in runs]
    longest = max(map(len, wrongs))
    for row, wrong in zip(runs, wrongs, strict=True):
        shown = wrong.rolling(max(1, longest // 20), min_periods=1).mean().iloc[longest // 10 :]
        found.setdefault(row.config.stem, {})[row.seed] = dict(zip(map(int, shown.index), shown, strict=True))
    return found


def page(rows: pd.DataFrame, command: str) -> str:
    """The table in Markdown, with the command that makes it."""
    lines = [
        "| row | test error (%), last epoch | best epoch of validation | paper | parameters | paper | epochs | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.to_dict("records"):
        cells = [
            row["row"],
            spread(row["error"], row.get("error_std")),
            spread(row["error_best"], row.get("error_best_std")),
            spread(row.get("paper_error"), row.get("paper_deviation"), 3),
            f"{int(row['parameters']):,}",
            "–" if pd.isna(row.get("paper_parameters")) else str(row["paper_parameters"]),
            f"{row['epochs']:.1f}".removesuffix(".0"),
            str(row["seeds"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made by `{command}`, {date.today()}.", ""])
