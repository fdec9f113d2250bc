"""train: one experiment from a YAML file, every value of which the command line may override."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lightning.pytorch import Callback
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from foveate.training.data import Images
from foveate.training.fitting import DEFAULTS, fit, quiet
from foveate.training.keep import BEST, CHECKPOINT
from foveate.training.module import Classifier

OPTIONS: dict[str, Any] = {
    "run": False,
    "seed_everything_default": 0,
    "save_config_callback": None,
    "trainer_defaults": DEFAULTS,
    "parser_kwargs": {"prog": "foveate train", "description": __doc__, "allow_abbrev": False},
}


class Parser(LightningArgumentParser):
    """A parser whose errors name the near key."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with exit status 2 and a short message."""
        unknown = re.search(r"(?:unrecognized arguments: --|does not accept option '|Key ')([\w.]+)", message)
        if unknown:
            keys = {spelling for action in self._actions for spelling in (action.dest, action.dest.rpartition(".")[2])}
            near = difflib.get_close_matches(unknown[1], sorted(keys), n=1)
            if near:
                message += f"; did you mean {near[0]}?"
        self.exit(2, f"foveate train: error: {' '.join(message.split())}\n")
        raise AssertionError("exit returns never")


class Command(LightningCLI):
    """Lightning's command line over our module and data: --model.…, --data.…, --trainer.…, --out, --resume."""

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        """Ours, for the sake of its errors."""
        parser = Parser(**kwargs)
        parser.add_argument(
            "-c", "--config", action="config", help="a YAML file of settings; may be given several times"
        )
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """What the run leaves and where; what the model takes from the data."""
        parser.add_argument("--out", type=Path, required=True, help="folder for the history, checkpoint and networks")
        parser.add_argument("--resume", action="store_true", help="go on with the run that --out holds")
        parser.link_arguments("data.class_names", "model.class_names", apply_on="instantiate")
        parser.link_arguments("model.backbone", "data.backbone")
        parser.link_arguments("data.seed", "model.seed")


def train(arguments: Sequence[str]) -> Path:
    """Train as the arguments say; the path of the best network."""
    out: Path = run(arguments).config["out"]
    return out / BEST


def run(arguments: Sequence[str], callbacks: Sequence[Callback] = ()) -> Command:
    """Train as the arguments say; the trainer, the model and the data with which it was done."""
    with quiet():
        command = Command(Classifier, Images, args=list(arguments), **OPTIONS)
    out: Path = command.config["out"]
    if (out / CHECKPOINT).exists() and not command.config["resume"]:
        raise ValueError(f"{out} holds a run already: pass --resume to go on with it, or another --out")
    out.mkdir(parents=True, exist_ok=True)
    command.parser.save(command.config, out / "config.yaml", skip_check=True, overwrite=True)
    command.trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
    fit(command.trainer, command.model, command.datamodule, out)
    return command
