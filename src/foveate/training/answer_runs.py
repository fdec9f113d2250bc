"""The comparison of poolings on answering questions: the same network with each, on the same questions and seeds."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from lightning.pytorch import Callback, Trainer

from foveate.data.vqa import VQA, glove
from foveate.extras import require
from foveate.files import writing
from foveate.models import parameter_count
from foveate.models.coattention import AnswerNetwork
from foveate.models.registry import pooling
from foveate.training.answering import Answerer, Asked, Questions, SceneAsked, VQAAsked, evaluate_answers
from foveate.training.fitting import DEFAULTS, quiet
from foveate.training.fitting import run as fit
from foveate.training.keep import resumers
from foveate.training.runs import TABLE, Run, claim, finish_all, over_seeds
from foveate.training.scene_features import scene_tensors

DEFAULT = (
    "softmax-pool",
    "sparsemax-pool",
    "tvmax-pool",
    "continuous-softmax",
    "continuous-sparsemax",
    "mixture-2",
    "mixture-4",
)
UNIMODAL, SELECTED = "continuous-softmax", "mixture-selected"  # test-MCA takes the networks of the former
MODES, WEIGHTS = "modes.csv", "weights.safetensors"


@dataclass(frozen=True)
class Settings:
    """All that the numbers of a comparison depend on; the defaults are those of the built-in questions.

    Attributes:
        data: "scenes", or "vqa" for VQA-v2's files under `root`.
        root: where VQA-v2's files are.
        vectors: of words, a text file of GloVe's; nothing means that they are learned from random ones.
        train_split, val_split: of VQA-v2.
        count, val_count: of questions about scenes.
        size: of the scenes' images, in pixels; their grid is a quarter of it.
        poolings: registered names, compared in this order.
        options: of poolings, by name, for instance {"continuous-softmax": {"basis": 49}}.
        penalties: λ of (5.20) with which the trained continuous softmax is tested with one to five modes.
        seeds: of weights and order.
        epochs, batch_size, lr, precision: of the training.
        width, fused, embedding, hidden, layers, heads, dropout: of the network.
        workers: processes that load features.
    """

    data: Literal["scenes", "vqa"] = "scenes"
    root: str | None = None
    vectors: str | None = None
    train_split: str = "train2014"
    val_split: str = "val2014"
    count: int = 20_000
    val_count: int = 2_000
    size: int = 56
    poolings: Sequence[str] = DEFAULT
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    penalties: Sequence[float] = (10.0, 100.0, 500.0)
    seeds: Sequence[int] = (0,)
    epochs: int = 20
    batch_size: int = 64
    lr: float = 1e-3
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    width: int = 64
    fused: int = 128
    embedding: int = 32
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.0
    workers: int = 0

    def __post_init__(self) -> None:
        if not self.poolings or not self.seeds:
            raise ValueError("a comparison needs at least one pooling and one seed")
        if self.data == "vqa" and self.root is None:
            raise ValueError("VQA-v2 needs root, the folder of its files")
        for name in self.poolings:
            pooling(name, 4, **self.options.get(name, {}))

    @classmethod
    def read(cls, path: Path | None, given: Mapping[str, Any]) -> Settings:
        """The settings of a YAML file, where there is one, with those `given` in their place."""
        values: dict[str, Any] = {}
        if path is not None:
            values = require("yaml").safe_load(path.read_text()) or {}
        if unknown := sorted(set(values) - {f.name for f in fields(cls)}):
            raise ValueError(f"{path} sets {', '.join(unknown)}, which a comparison of poolings does not have")
        return cls(**{**values, **given})

    def asked(self, folder: Path) -> tuple[Asked, Asked]:
        """The questions to train on and to validate on; scenes are kept in the folder once they have been drawn."""
        if self.data == "scenes":
            counts = {"train": self.count, "val": self.val_count}
            parts = (scene_tensors(part, n, self.size, self.width, folder) for part, n in counts.items())
            train_scenes, val_scenes = map(SceneAsked, parts)
            return train_scenes, val_scenes
        train = VQA(Path(self.root or "."), self.train_split)
        val_items = VQA(Path(self.root or "."), self.val_split, train.words, train.classes)
        return VQAAsked(train), VQAAsked(val_items)

    def network(self, name: str, asked: Asked) -> AnswerNetwork:
        """The network with a pooling, with random weights."""
        return AnswerNetwork(
            len(asked.words),
            len(asked.answers),
            asked.channels,
            pooling(name, self.width, hidden=self.hidden, dropout=self.dropout, **self.options.get(name, {})),
            self.embedding,
            self.width,
            self.fused,
            self.layers,
            self.heads,
            self.dropout,
            self.hidden,
            coordinates=self.data == "scenes",
            vectors=glove(Path(self.vectors), asked.words) if self.vectors else None,
        )


@dataclass(frozen=True)
class PoolingRun(Run):
    """One pooling with one seed, and the folder that holds what came out of it."""

    pooling: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """As progress bars call it."""
        return f"{self.pooling}, seed {self.seed}"


def compare_poolings(
    settings: Settings, out: Path, resume: bool = False, jobs: int = 1
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Train and evaluate the network with every pooling and seed; write `table.csv` and `modes.csv` into `out`.

    A comparison that was interrupted goes on with `resume`. With several `jobs`, as many runs go side by side.
    """
    claim(out, asdict(settings), resume)
    runs = runs_of(settings, out)
    settings.asked(out / "data")  # draws the scenes, once for all runs
    finish_all(runs, partial(_run, settings, out), jobs, lambda result: f"accuracy {result['accuracy']:.1%}")
    table, modes = tabulate(runs), tabulate_modes(runs)
    for name, frame in ((TABLE, table), (MODES, modes)):
        with writing(out / name) as beside:
            frame.to_csv(beside, index=False)
    return table, modes


def runs_of(settings: Settings, out: Path) -> list[PoolingRun]:
    """The runs of a comparison that is kept in `out`."""
    return [PoolingRun(p, seed, out / "runs" / f"{p}-seed{seed}") for seed in settings.seeds for p in settings.poolings]


def _run(settings: Settings, out: Path, run: PoolingRun, callbacks: Sequence[Callback] = ()) -> None:
    """Train and evaluate one pooling with one seed."""
    train, val = settings.asked(out / "data")
    torch.manual_seed(run.seed)
    network = settings.network(run.pooling, train)
    data = Questions(train, val, settings.batch_size, run.seed, settings.workers)
    model = Answerer(network, train.answers, train.types, settings.lr, run.seed)
    with quiet():
        trainer = Trainer(
            max_epochs=settings.epochs,
            devices=1,
            precision=settings.precision,
            callbacks=list(callbacks),
            enable_progress_bar=False,
            reload_dataloaders_every_n_epochs=1,
            gradient_clip_val=5.0,
            **DEFAULTS,
        )
    fit(trainer, model, data, run.folder, resumers(run.folder))
    network = network.to(trainer.strategy.root_device)
    with writing(run.folder / WEIGHTS) as beside:
        weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        beside.write_bytes(require("safetensors.torch").save(weights))
    result: dict[str, Any] = evaluate_answers(network, data.val_dataloader(), val)
    result["parameters"] = parameter_count(network)
    if run.pooling == UNIMODAL:
        result["selected"] = {str(λ): _selected(settings, network, data, val, λ) for λ in settings.penalties}
    run.finish(result)


def load_network(settings: Settings, out: Path, run: PoolingRun) -> AnswerNetwork:
    """The trained network of a run."""
    network = settings.network(run.pooling, settings.asked(out / "data")[1])
    network.load_state_dict(require("safetensors.torch").load_file(run.folder / WEIGHTS))
    return network.eval()


def with_selection(settings: Settings, network: AnswerNetwork, penalty: float) -> AnswerNetwork:
    """A network trained with one mode, with as many as (5.20) selects for each image: test-MCA of continuous 6.3.1."""
    options = {**settings.options.get(UNIMODAL, {}), "penalty": penalty}
    twin = copy.deepcopy(network)
    twin.pool = pooling(SELECTED, settings.width, hidden=settings.hidden, **options)
    twin.pool.load_state_dict(network.pool.state_dict())
    return twin.to(network.answer.weight.device)


def _selected(settings: Settings, network: AnswerNetwork, data: Questions, val: Asked, λ: float) -> dict[str, Any]:
    """The numbers of test-MCA, and the share of questions with each number of modes."""
    twin = with_selection(settings, network, λ)
    counts: dict[int, int] = {}
    look = twin.pool.look.register_forward_hook(lambda _, __, gaze: _count(counts, gaze.modes.tolist()))
    values: dict[str, Any] = evaluate_answers(twin, data.val_dataloader(), val)
    look.remove()
    total = sum(counts.values())
    return {**values, "modes": {str(k): counts[k] / total for k in sorted(counts)}}


def _count(counts: dict[int, int], modes: Sequence[int]) -> None:
    for k in modes:
        counts[k] = counts.get(k, 0) + 1


def tabulate(runs: Sequence[PoolingRun]) -> pd.DataFrame:
    """A row for each pooling, and for each λ of test-MCA: mean and deviation over seeds."""
    rows = []
    for run in runs:
        result = dict(run.result or {})
        selected = result.pop("selected", {})
        rows.append({"pooling": run.pooling, **result})
        rows += [
            {"pooling": f"test-MCA, λ = {float(λ):g}", **{k: v for k, v in values.items() if k != "modes"}}
            for λ, values in selected.items()
        ]
    return over_seeds(rows, "pooling")


def tabulate_modes(runs: Sequence[PoolingRun]) -> pd.DataFrame:
    """Table 6.4: for each λ, the share of questions with each optimum number of modes, averaged over seeds."""
    rows = [
        {"λ": float(λ), "modes": int(k), "share": share}
        for run in runs
        for λ, values in (run.result or {}).get("selected", {}).items()
        for k, share in values["modes"].items()
    ]
    if not rows:
        return pd.DataFrame(columns=["λ"])
    seeds = len({run.seed for run in runs})
    table = pd.DataFrame(rows).pivot_table(index="λ", columns="modes", values="share", aggfunc="sum") / seeds
    return table.reindex(columns=range(1, 6)).fillna(0.0).reset_index().rename(columns=str)
