"""The command line: parses, calls, prints. Exit status 0; 2 for a usage error, 1 for a failure, 130 on Ctrl-C."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
OWN = "own"  # the symmetries that a network has


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit status."""
    warnings.showwarning = _show_warning
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command; errors become a line on standard error and an exit status."""
    try:
        if argv[:1] == ["train"]:  # its options come from the signatures of the module, the data and the trainer
            return _train(argv[1:])
        arguments = _parser().parse_args(argv, argparse.Namespace(words=argv))
        status: int = arguments.command(arguments)
        return status
    except KeyboardInterrupt:
        print("\nfoveate: stopped; the same command with --resume goes on from here", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"foveate: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("FOVEATE_DEBUG"):
            traceback.print_exc()
        text = " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
        print(f"foveate: error: {text or type(error).__name__}", file=sys.stderr)
        if not isinstance(error, ValueError | OSError | ImportError | KeyError):
            print(f"foveate: ({type(error).__name__}; FOVEATE_DEBUG=1 shows where it came from)", file=sys.stderr)
        return 1


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Our own warnings as a line; those of libraries are for their developers."""
    if category.__module__.startswith("foveate") or os.environ.get("FOVEATE_DEBUG"):
        print(f"foveate: warning: {message}", file=sys.stderr)


class UsageError(ValueError):
    """The words of a command cannot be what was meant."""


def _parser() -> argparse.ArgumentParser:
    from foveate import __version__

    parser = argparse.ArgumentParser(
        prog="foveate", description="Spatial attention for vision models: compare, train, look, evaluate, explore."
    )
    parser.add_argument("--version", action="version", version=f"foveate {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_compare(commands.add_parser("compare", help="train one backbone with each attention; a table and a report"))
    commands.add_parser("train", help="train one experiment from a YAML file", add_help=False)
    _add_table(commands.add_parser("table", help="train the rows of a paper's table with several seeds, side by side"))
    _add_answer(commands.add_parser("answer", help="train a network that answers questions, with each pooling"))
    _add_features(commands.add_parser("features", help="write the last feature map of every image in a folder"))
    _add_look(commands.add_parser("look", help="draw where a trained network looks on your images"))
    _add_evaluate(commands.add_parser("evaluate", help="measure a trained network and its attention on a data set"))
    _add_explore(commands.add_parser("explore", help="a page on which to turn and modify images, and see the gazes"))
    return parser


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train the same backbone with each attention on the same data and seeds. Writes DIR/table.csv and a "
        "self-contained DIR/report.html. Without arguments it uses the built-in scenes and takes a few minutes."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), metavar="DIR", help="folder for all results")
    parser.add_argument("--resume", action="store_true", help="go on with the comparison that --out holds")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs side by side, in N processes")
    parser.add_argument("--data", default="scenes", help="scenes, a data set's name, or an image folder")
    parser.add_argument("--root", help="where data sets are kept")
    parser.add_argument("--backbone", default="tiny", help=f"any timm model, or {', '.join(_backbone_names())}")
    parser.add_argument("--weights", help="of the backbone: 'pretrained', or a safetensors file")
    parser.add_argument("--freeze", type=_list(str), default=(), metavar="LAYER,…", help="layers that do not learn")
    parser.add_argument("--hidden", type=int, default=0, help="width of a hidden layer before the logits")
    parser.add_argument("--attention", type=_list(str), metavar="A,B,…", help=f"of: {', '.join(_attention_names())}")
    parser.add_argument("--where", type=_list(str), default=(), metavar="LAYER,…", help="layers to attend after")
    parser.add_argument("--epochs", type=int, help="passes over the images")
    parser.add_argument("--seeds", type=_list(int), metavar="0,1,…", help="each draws its split, weights and order")
    parser.add_argument("--size", type=int, help="side of the square that images are resized to")
    parser.add_argument("--batch-size", type=int, help="images in a batch")
    parser.add_argument("--lr", type=float, help="learning rate of the backbone (2e-3 for tiny, 1e-4 for others)")
    parser.add_argument("--attention-lr", type=float, help="learning rate of the attention (5e-4)")
    parser.add_argument(
        "--equivariance", type=float, metavar="λ", help="weight of moving with the image, where that is trained for"
    )
    parser.add_argument("--ratio", type=float, help="share of the images to train on, by class")
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, help="ColorJitter and RandomPerspective")
    parser.add_argument("--workers", type=int, default=0, help="processes that load images")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed", "16-mixed"), help="of the training")
    parser.add_argument("--record", action="store_true", help="on a GPU, replay training steps as CUDA graphs: faster")
    parser.add_argument("--count", type=int, help="how many scenes to train on")
    parser.add_argument(
        "--rotate", type=float, metavar="RADIANS", help="how far shapes are turned in scenes; 0: upright"
    )
    parser.set_defaults(command=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from foveate.training import compare, comparison_report, runs

    given = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("command", "words", "out", "resume", "jobs", "record", "attention") and value is not None
    }
    if arguments.attention is not None:
        given["attentions"] = arguments.attention
    settings = _checked(lambda: compare.Settings(**given))
    command = shlex.join(["foveate", *arguments.words])
    table = compare.compare(settings, arguments.out, arguments.resume, arguments.jobs, command, arguments.record)
    comparison_report.show(table)
    print(f"{arguments.out / runs.TABLE}\n{arguments.out / compare.REPORT}")
    return 0


def _train(argv: Sequence[str]) -> int:
    from foveate.training.train import train

    print(train(argv))
    return 0


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train each YAML file of `foveate train` with each seed, and count its errors on the test images. Writes "
        "DIR/table.csv and DIR/table.md, with what the paper prints where a paper.csv lies beside the files, and the "
        "learning curves as DIR/curves.png."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("configs", nargs="+", type=Path, metavar="YAML", help="a file for each row")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for all results")
    parser.add_argument("--seeds", type=_list(int), default=(0,), metavar="0,1,…", help="each trains every row")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs side by side, in N processes")
    parser.add_argument("--resume", action="store_true", help="go on with the table that --out holds")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of all rows: trainer.max_epochs=5; {seed} in it is the run's own: data.split_seed={seed}",
    )
    parser.set_defaults(command=_table)


def _table(arguments: argparse.Namespace) -> int:
    from foveate.training.table import PAGE, table

    command = shlex.join(["foveate", *arguments.words])
    table(arguments.configs, arguments.seeds, arguments.out, arguments.jobs, arguments.resume, arguments.set, command)
    print((arguments.out / PAGE).read_text())
    return 0


def _add_answer(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train the same network to answer questions about images, with each pooling of the image, on the same "
        "questions and seeds. Writes DIR/table.csv, DIR/modes.csv and figures. Without arguments it asks about the "
        "built-in scenes."
    )
    parser.add_argument("-c", "--config", type=Path, help="a YAML file of settings, which the options override")
    parser.add_argument("--out", type=Path, default=Path("runs/answer"), metavar="DIR", help="folder for all results")
    parser.add_argument("--resume", action="store_true", help="go on with the comparison that --out holds")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs side by side, in N processes")
    parser.add_argument("--root", help="folder of VQA-v2's files")
    parser.add_argument("--poolings", type=_list(str), metavar="A,B,…", help=f"of: {', '.join(_pooling_names())}")
    parser.add_argument("--seeds", type=_list(int), metavar="0,1,…", help="each draws its weights and order")
    parser.add_argument("--penalties", type=_list(float), metavar="λ,…", help="with which numbers of modes are chosen")
    parser.add_argument("--epochs", type=int, help="passes over the questions")
    parser.add_argument("--count", type=int, help="questions about scenes to train on")
    parser.add_argument("--val-count", type=int, help="questions about scenes to measure on")
    parser.add_argument("--batch-size", type=int, help="questions in a batch")
    parser.add_argument("--lr", type=float, help="largest learning rate")
    parser.add_argument("--width", type=int, help="of the network's representations")
    parser.add_argument("--layers", type=int, help="of the co-attention")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), help="of the training")
    parser.add_argument("--workers", type=int, help="processes that load features")
    parser.set_defaults(command=_answer)


def _answer(arguments: argparse.Namespace) -> int:
    from foveate.training import answer_report, answer_runs

    own = ("command", "words", "config", "out", "resume", "jobs")
    given = {name: value for name, value in vars(arguments).items() if name not in own and value is not None}
    settings = _checked(lambda: answer_runs.Settings.read(arguments.config, given))
    table, modes = answer_runs.compare_poolings(settings, arguments.out, arguments.resume, arguments.jobs)
    answer_report.show(table, modes)
    for path in answer_report.write(settings, arguments.out, table, modes):
        print(path)
    return 0


def _add_features(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the last feature map of every image under a folder, in a safetensors file each."
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("folder", type=Path, metavar="DIR", help="images; what is there already is kept")
    parser.add_argument("--out", type=Path, default=Path("features"), metavar="DIR", help="folder for the features")
    parser.add_argument("--backbone", default="resnet152", help=f"any timm model, or {', '.join(_backbone_names())}")
    parser.add_argument("--size", type=_positive, default=448, help="side of the square that images are resized to")
    parser.add_argument("--weights", default="pretrained", help="'pretrained', 'none', or a safetensors file")
    parser.add_argument("--batch-size", type=_positive, default=16, help="images in a batch")
    parser.set_defaults(command=_features)


def _features(arguments: argparse.Namespace) -> int:
    from foveate.models.features import extract_features

    weights = None if arguments.weights == "none" else arguments.weights
    written, problems = extract_features(
        arguments.folder, arguments.out, arguments.backbone, arguments.size, weights, arguments.batch_size
    )
    print(f"{written} files written to {arguments.out}, {len(problems)} bad images left out")
    for name, reason in problems.items():
        print(f"  {name} {reason}")
    return 0


def _add_look(parser: argparse.ArgumentParser) -> None:
    parser.description = "Draw where a trained network looks, on images or a folder of them, as PNG files."
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="image files, or folders of them")
    parser.add_argument(
        "--checkpoint", required=True, nargs="+", type=Path, help="networks that `train` or `compare` saved: a row each"
    )
    parser.add_argument("--out", type=Path, default=Path("look"), metavar="DIR", help="folder for the figures")
    parser.add_argument(
        "--how", default="overlay+outline", help="overlay, outline, contour, spotlight, or a sum of them"
    )
    parser.add_argument(
        "--sort", metavar="PARAMETER", help="first and last images by it: center.col, extent.row, angle, …"
    )
    parser.add_argument(
        "--moves", type=int, metavar="N", help="turn, shift and scale each image in N steps, as animation too"
    )
    parser.add_argument(
        "--turns",
        nargs="?",
        const=OWN,
        metavar="GROUP",
        help="turn each image by the network's symmetries, or p4, p4m, …; as animation too, with equivariance errors",
    )
    parser.add_argument("--where", type=_list(str), default=(), metavar="LAYER,…", help="gazes that --turns draws")
    parser.set_defaults(command=_look)


def _look(arguments: argparse.Namespace) -> int:
    if arguments.turns is not None:
        return _look_turns(arguments)
    from foveate.figures.look import look

    for path in look(
        arguments.images, arguments.checkpoint, arguments.out, arguments.how, arguments.sort, arguments.moves
    ):
        print(path)
    return 0


def _look_turns(arguments: argparse.Namespace) -> int:
    from foveate.data.folders import flat_folder
    from foveate.figures.look import load_onlookers
    from foveate.figures.turns import Turns

    group = None if arguments.turns == OWN else arguments.turns
    turns = Turns(load_onlookers(arguments.checkpoint), group, arguments.where)
    for path in turns.draw(flat_folder(arguments.images), arguments.out):
        print(path)
    print(f"largest errors of equivariance under {turns.group.name}, in parts of what gazes and logits span:")
    print("\n".join(turns.lines()))
    return 0


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure a trained network: accuracy, and where and how its attention looks. With --interpretability, whether "
        "the attention stays where it was on modified images; with --faithfulness, whether the network needs what it "
        "looked at. Tables on the screen, tables and figures in --out."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("--checkpoint", required=True, type=Path, help="a network that `train` or `compare` saved")
    parser.add_argument("--data", default="scenes", help="scenes, a data set's name, or an image folder")
    parser.add_argument("--root", help="where data sets are kept")
    parser.add_argument("--ratio", type=float, help="measure on what a split at this ratio leaves for validation")
    parser.add_argument("--split-seed", type=int, default=0, help="which split")
    parser.add_argument("--split", choices=("test", "train"), default="test", help="the part that is measured")
    parser.add_argument(
        "--match", choices=("name", "number"), help="find the network's classes in data that have other ones"
    )
    parser.add_argument("--batch-size", type=_positive, default=32, help="images in a batch")
    parser.add_argument("--interpretability", action="store_true", help="the scores of modified images, by attention")
    parser.add_argument(
        "--faithfulness", action="store_true", help="deletion, insertion, and what is left when the weights go"
    )
    parser.add_argument("--threshold", type=float, default=0.9, help="the cosine from which on two maps count as one")
    parser.add_argument("--patches", metavar="DATA", help="whose patches are put on images; other images of --data")
    parser.add_argument("--stretch", action="store_true", help="stretch bands of frequencies from black to white")
    parser.add_argument("--count", type=_positive, metavar="N", help="try N of the images, spread evenly; all")
    parser.add_argument("--seed", type=int, default=0, help="of the modifications")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and figures; none are written")
    parser.set_defaults(command=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    from foveate.training import evaluate

    if not -1 <= arguments.threshold <= 1:
        raise UsageError(f"--threshold is a cosine, in [-1, 1], not {arguments.threshold:g}")
    of_data = ("data", "root", "ratio", "split_seed", "split", "match")
    chosen = {name: getattr(arguments, name) for name in of_data}
    if arguments.interpretability or arguments.faithfulness:
        return _trust(arguments, chosen)
    values = evaluate.evaluate_checkpoint(arguments.checkpoint, batch_size=arguments.batch_size, **chosen)
    for name, value in values.items():
        print(f"{name:22} {value:.4f}")
    return 0


def _trust(arguments: argparse.Namespace, chosen: dict[str, Any]) -> int:
    from rich.console import Console

    from foveate import models
    from foveate.training import evaluate, faithfulness, trust

    model = evaluate.best_device(models.load(arguments.checkpoint))
    items = evaluate.opened(model, **chosen)
    of_trial = ("patches", "root", "threshold", "stretch", "seed", "batch_size", "count")
    trial = trust.Trial(**{name: getattr(arguments, name) for name in of_trial})
    if arguments.interpretability:
        scores = trust.interpretability(model, items, trial, arguments.out)
        Console().print(trust.table_2(scores, trial.threshold))
    if arguments.faithfulness:
        found = faithfulness.faithfulness(model, items, trial, arguments.out)
        Console().print(faithfulness.table_of(found))
    if arguments.out is not None:
        print(*sorted(path for path in arguments.out.iterdir() if path.suffix in (".csv", ".png")), sep="\n")
    return 0


def _add_explore(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve a page on this machine: drop an image, turn, shift, scale and modify it, see the gazes."
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "--checkpoint", nargs="+", default=["scenes-rectangular"], help="networks that `train` or `compare` saved"
    )
    parser.add_argument("--port", type=int, help="of the page; the first free one from 7860 on")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.set_defaults(command=_explore)


def _explore(arguments: argparse.Namespace) -> int:
    from foveate.figures import explorer

    explorer.serve(arguments.checkpoint, arguments.port, arguments.open)
    return 0


def _list(of: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A parser of values between commas."""

    def parse(text: str) -> tuple[T, ...]:
        return tuple(of(part.strip()) for part in text.split(",") if part.strip())

    parse.__name__ = f"list of {of.__name__}"
    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _attention_names() -> list[str]:
    from foveate.models import registry

    return registry.names()


def _pooling_names() -> list[str]:
    from foveate.models import registry

    return list(registry.POOLINGS)


def _backbone_names() -> list[str]:
    from foveate.models import backbones

    return backbones()


def _checked(make: Callable[[], T]) -> T:
    """What is wrong with a command's words is a usage error."""
    try:
        return make()
    except ValueError as error:
        raise UsageError(str(error)) from error
