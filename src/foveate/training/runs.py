"""Runs: trainings that each leave their numbers in a folder, done in turn or side by side, and gone on with."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import pandas as pd

from foveate.files import writing
from foveate.progress import bars
from foveate.training.keep import HISTORY
from foveate.training.progress import Bar, console
from foveate.training.side_by_side import side_by_side

RESULT, SETTINGS, TABLE = "result.json", "settings.json", "table.csv"


class RunsError(ValueError):
    """Runs cannot be made as they were asked for."""


class Run(ABC):
    """One training, and the folder that holds what came out of it."""

    folder: Path

    @property
    @abstractmethod
    def name(self) -> str:
        """As progress bars call it."""

    @property
    def result(self) -> dict[str, Any] | None:
        """Its numbers, once it is over."""
        path = self.folder / RESULT
        return json.loads(path.read_text()) if path.is_file() else None

    @property
    def accuracies(self) -> dict[int, float]:
        """Its accuracy on the validation part after each epoch, counted from 1."""
        history = pd.read_csv(self.folder / HISTORY)
        return dict(zip(history["epoch"].astype(int) + 1, history["val_accuracy"], strict=True))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Keep its numbers: it is over."""
        with writing(self.folder / RESULT) as beside:
            beside.write_text(json.dumps(result, indent=2))


R = TypeVar("R", bound=Run)


def finish_all(runs: Sequence[R], work: Callable[..., None], jobs: int, tell: Callable[[dict[str, Any]], str]) -> None:
    """Do the work of every run that is not over, and say of each what came out of it.

    Args:
        runs: all of them; those that have a result are kept.
        work: makes one of them and calls its `finish`: `work(run, callbacks)`, with those of Lightning's trainer that
            show how far it is.
        jobs: how many go side by side, each in a process of its own; then `work` must be what a process can be sent.
        tell: a few words about a result.
    """
    missing = [run for run in runs if run.result is None]
    finish = partial(_finish, work)
    with bars() as shown:
        overall = shown.add_task("all runs", total=len(runs), note="")
        shown.update(overall, completed=len(runs) - len(missing))
        for run in side_by_side(finish, missing, jobs) if jobs > 1 else map(finish, missing):
            shown.update(overall, advance=1)
            console.print(f"{run.name}: {tell(run.result or {})}")


def _finish(work: Callable[..., None], run: R) -> R:
    with bars() as shown:
        work(run, [Bar(shown, run.name)])
    return run


def claim(out: Path, settings: Mapping[str, Any], resume: bool, grow: bool = False) -> None:
    """Make a folder that of these settings, or refuse.

    Args:
        out: the folder; it keeps the settings in a file.
        settings: all that the numbers in it depend on, in JSON's terms.
        resume: whether there may be runs already.
        grow: whether settings may be added to those that are there; none may change.
    """
    path = out / SETTINGS
    ours: dict[str, Any] = json.loads(json.dumps(settings))
    if path.is_file():
        if not resume:
            raise RunsError(f"{out} holds runs already: pass --resume to go on with them, or another --out")
        theirs = json.loads(path.read_text())
        other = [name for name in ours if (name in theirs or not grow) and theirs.get(name) != ours[name]]
        if other:
            what = ", ".join(f"{name} ({_short(theirs.get(name))}, now {_short(ours[name])})" for name in other)
            raise RunsError(f"{out} holds runs with other settings: {what}")
        ours = {**theirs, **ours} if grow else ours
    with writing(path) as beside:
        beside.write_text(json.dumps(ours, indent=2))


def _short(value: Any) -> str:
    return shorten(repr(value), 60, placeholder=" …")


def over_seeds(rows: Sequence[Mapping[str, Any]], by: str) -> pd.DataFrame:
    """Numbers of single runs to a line for each value of the column `by`: means, and deviations as `…_std`.

    >>> over_seeds([{"of": "a", "error": 1.0}, {"of": "a", "error": 3.0}], "of").round(2).to_dict("records")
    [{'of': 'a', 'error': 2.0, 'error_std': 1.41}]
    """
    grouped = pd.DataFrame(rows).groupby(by, sort=False)
    spread = grouped.std(ddof=1).add_suffix("_std").dropna(axis=1, how="all")
    return grouped.mean().join(spread).reset_index()


def spread(mean: float | None, deviation: float | None = None, digits: int = 2) -> str:
    """A mean with its deviation, where there is one, as tables print them.

    >>> spread(2.04, 0.1), spread(2.04), spread(None)
    ('2.04 ± 0.10', '2.04', '–')
    """
    if mean is None or pd.isna(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if deviation is None or pd.isna(deviation) else f" ± {deviation:.{digits}f}")
