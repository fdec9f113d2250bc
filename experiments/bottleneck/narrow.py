"""Tables 1 and 2 and Fig. 4(a) on CIFAR-10 with a narrow VGG: one command, which writes a page of results.

python experiments/bottleneck/narrow.py --data cifar10 --out runs/narrow --page results/bottleneck.md

Each run is one network with one seed; it leaves a JSON file, and a second call does only what is missing; with
--no-train it writes the page of what there is. All runs have the same schedule, the paper's shortened: SGD with
momentum 0.9 and weight decay 5e-4, batches of 128, a rate that is halved after each eighth of the run, images shifted
by up to 4 pixels and mirrored. What gazes and codes ask for grows to its full weight over the first steps: at full
weight from the start, a code is made to say nothing within 60 steps, for that costs nothing, long before the network
has anything to say, and it takes most of a short run to find out of this again.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from narrow_page import BETA, CODES, MAPS, TITLES, curves, page
from torch import Tensor, nn

import foveate as fv
from foveate import models
from foveate.data import Packed, Preprocess, ShiftAndMirror, open_dataset, some
from foveate.figures import save
from foveate.files import writing
from foveate.metrics.interpretability import interpretability_scores
from foveate.metrics.modifications import paper_modifications
from foveate.training.side_by_side import side_by_side

NETWORKS = tuple(TITLES)
BETAS = (1.0, 0.1, 0.01, 0.001, 0.0001)  # Fig. 4(a): 10^-p, p = 0, …, 4
BATCH, MOMENTUM, DECAY = 128, 0.9, 5e-4
PLATEAUS = 8  # of the learning rate, each half as high as the one before: 25 of 200 epochs each
WARM = 0.2  # of the run, over which penalties grow to their full weight
AHEAD = 64  # batches that are augmented at once, for one by one it takes as long as a narrow network does


@dataclass(frozen=True)
class Settings:
    """All that the numbers depend on, but for the network and the seed."""

    data: str
    train: int
    test: int
    width: float
    epochs: int
    rate: float
    warm: float = WARM


@dataclass(frozen=True)
class Run:
    """A network, the price of its information, a seed."""

    network: str
    seed: int
    beta: float = BETA

    @property
    def file(self) -> str:
        return f"{self.network}-beta{self.beta:g}-seed{self.seed}.json"

    def build(self, classes: int, width: float) -> nn.Module:
        torch.manual_seed(self.seed)
        priced = "aib" in self.network or "dvib" in self.network
        model: nn.Module = models.backbone(self.network).build(
            classes, width=width, **({"beta": self.beta} if priced else {})
        )
        return model


@dataclass(frozen=True)
class Images:
    """A part of the data on the device that trains, and how they are prepared."""

    pixels: Tensor
    labels: Tensor
    preprocess: Preprocess

    @classmethod
    def load(cls, settings: Settings, part: str, device: torch.device) -> "Images":
        pixels, labels = _decoded(settings.data, part, settings.train if part == "train" else settings.test)
        kind = models.backbone(NETWORKS[0])
        return cls(pixels.to(device), labels.to(device), Preprocess(32, kind.mean, kind.std))

    def shuffled(self, numbers: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented batches of one epoch, all of the same size."""
        move = ShiftAndMirror(self.preprocess)
        order = torch.randperm(len(self.labels), generator=numbers)
        draws = torch.rand(len(order), move.draws, generator=numbers).to(self.pixels.device)
        order = order.to(self.pixels.device)[: len(order) // BATCH * BATCH]
        for at, numbers_at in zip(order.split(AHEAD * BATCH), draws.split(AHEAD * BATCH), strict=False):
            moved = move(self.pixels[at], numbers_at[: len(at)]).contiguous(memory_format=torch.channels_last)
            yield from zip(moved.split(BATCH), self.labels[at].split(BATCH), strict=True)

    def batches(self, size: int = 500) -> Iterator[tuple[Tensor, Tensor]]:
        for pixels, labels in zip(self.pixels.split(size), self.labels.split(size), strict=True):
            yield self.preprocess(pixels), labels


@cache  # a process that does several runs decodes once
def _decoded(data: str, part: str, count: int) -> tuple[Tensor, Tensor]:
    items = some(open_dataset(data, part), count)
    whole = isinstance(items, Packed)
    pixels = items.images() if whole else torch.stack([items[index].image for index in range(len(items))])
    return pixels, torch.tensor(items.labels)


def work(settings: Settings, out: Path, run: Run) -> None:
    """Train and measure one network with one seed, and leave its numbers."""
    start = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    test = Images.load(settings, "test", device)
    model = run.build(int(test.labels.max()) + 1, settings.width).to(device, memory_format=torch.channels_last)
    history = train(model, Images.load(settings, "train", device), settings, run.seed)
    trained = time.perf_counter() - start
    machine = {"seconds": trained, "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"}
    numbers = {"run": asdict(run), "history": history, **measure(model, test, run.seed), **machine}
    with writing(out / run.file) as beside:
        beside.write_text(json.dumps(numbers))


def train(model: nn.Module, images: Images, settings: Settings, seed: int) -> list[dict[str, float]]:
    """The paper's training; the mean loss and accuracy of each epoch."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), settings.rate, MOMENTUM, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** (PLATEAUS * epoch // settings.epochs))
    numbers = torch.Generator().manual_seed(seed)
    rising = max(1.0, settings.warm * settings.epochs * (len(images.labels) // BATCH))  # steps
    history: list[dict[str, float]] = []
    for epoch in range(settings.epochs):
        sums: list[Tensor] = []
        with fv.watch(model) as seen:
            for batch, labels in images.shuffled(numbers):
                logits = model(batch)
                task = F.cross_entropy(logits, labels)
                price = task.new_zeros(()) + seen.penalty  # on the device, and without waiting for it
                steps = len(history) * (len(images.labels) // BATCH) + len(sums)
                optimizer.zero_grad()
                (task + min(1.0, steps / rising) * price).backward()
                optimizer.step()
                right = (logits.argmax(1) == labels).float().mean()
                sums.append(torch.stack([task, price, right]).detach())
        schedule.step()
        means = torch.stack(sums).mean(0).tolist()
        history.append({"epoch": epoch, **dict(zip(("cross_entropy", "penalty", "accuracy"), means, strict=True))})
    return history


@torch.no_grad()
def measure(model: nn.Module, test: Images, seed: int) -> dict[str, Any]:
    """Test error, by 4 × 12 draws where the network has any and without draws, and the scores of its attentions."""
    model.eval()
    torch.manual_seed(seed)
    wrong = {"error": 0, "error_of_means": 0}
    usage: list[Tensor] = []
    maps: dict[str, list[Tensor]] = {}
    for images, labels in test.batches():
        with fv.watch(model) as seen:
            means = model(images)
        wrong["error_of_means"] += int((means.argmax(1) != labels).sum())
        wrong["error"] += int((fv.predict(model, images, MAPS, CODES).logits.argmax(1) != labels).sum())
        usage += [gaze.usage for gaze in seen.values() if hasattr(gaze, "usage") and gaze.usage.shape[1]]
        for name, gaze in seen.items():
            maps.setdefault(name, []).append(gaze.map.flatten(1).std(1) / gaze.map.flatten(1).mean(1).clamp_min(1e-12))
    numbers: dict[str, Any] = {name: count / len(test.labels) for name, count in wrong.items()}
    numbers["usage"] = torch.cat(usage).mean(0).tolist() if usage else []
    numbers["relative_deviation"] = {name: float(torch.cat(values).mean()) for name, values in maps.items()}
    if maps:
        modifications = paper_modifications(levels=test.preprocess.levels)
        outcomes = interpretability_scores(model, (images for images, _ in test.batches()), modifications, seed=seed)
        numbers["scores"] = {
            name: {
                m: {"curve": o.curve.tolist(), "centred": o.centred_curve.tolist(), "survived": o.survived}
                for m, o in of.items()
            }
            for name, of in outcomes.items()
        }
    return numbers


def described(settings: Settings) -> str:
    """What all runs have in common."""
    return (
        f"VGG with every width times {settings.width:g}, {settings.train:,} training and {settings.test:,} test images "
        f"of CIFAR-10, {settings.epochs} epochs; all have the same schedule and images. Otherwise the paper's "
        f"settings: SGD, momentum {MOMENTUM}, weight decay {DECAY:g}, batches of {BATCH}, a rate of {settings.rate:g} "
        f"halved after each eighth of the run (the paper: 0.1), β = {BETA}, λq = 0.4, λc = 0.1, K = 256, Q = 20, "
        "shifts by up to 4 pixels and mirror images. Penalties grow to their full weight over the first "
        f"{settings.warm:.0%} of the steps, or the code collapses before anything is learned."
    )


def runs(networks: Sequence[str], seeds: Sequence[int], sweep: bool) -> list[Run]:
    """All of them, the first seed's networks first."""
    main = [Run(network, seed) for seed in seeds for network in networks]
    return main + [Run("vgg_aib", seeds[0], beta) for beta in BETAS if sweep and beta != BETA]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="a name, a folder or a packed file")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the numbers of each run")
    parser.add_argument("--page", type=Path, help="a Markdown file for the results; a figure is drawn beside it")
    parser.add_argument("--train", type=int, default=50_000, help="how many images to train on")
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.03, help="the first learning rate")
    parser.add_argument("--warm", type=float, default=WARM, help="share of the steps over which penalties grow")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--jobs", type=int, default=1, help="how many runs side by side")
    parser.add_argument("--no-train", action="store_true", help="write the page of the runs that there are")
    parser.add_argument("--no-sweep", action="store_true", help="leave out the other values of β")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    claim(settings, options.out)
    start = time.perf_counter()
    planned = runs(options.networks, options.seeds, not options.no_sweep)
    missing = [run for run in planned if not (options.out / run.file).is_file()]
    planned = [run for run in planned if run not in missing] if options.no_train else planned
    for run in in_turn(settings, options.out, [] if options.no_train else missing, options.jobs):
        error = json.loads((options.out / run.file).read_text())["error"]
        print(f"{run.file}: error {error:.2%}, after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    results = [json.loads((options.out / run.file).read_text()) for run in planned]
    words = [word for word in given if word != "--no-train"]
    command = shlex.join(["python", "experiments/bottleneck/narrow.py", *words])
    if not options.page:
        print(page(described(settings), results, command))
        return
    drawing = options.page.with_suffix(".png")
    scored = any("scores" in result for result in results)
    if scored:
        save(curves(results), drawing)
    with writing(options.page) as beside:
        beside.write_text(page(described(settings), results, command, drawing.name if scored else None))


def in_turn(settings: Settings, out: Path, missing: Sequence[Run], jobs: int) -> Iterator[Run]:
    if jobs > 1:
        yield from side_by_side(partial(work, settings, out), missing, jobs)
        return
    for run in missing:
        work(settings, out, run)
        yield run


def claim(settings: Settings, out: Path) -> None:
    """Make the folder that of these settings, or refuse."""
    path = out / "settings.json"
    ours = asdict(settings)
    if path.is_file() and (theirs := json.loads(path.read_text())) != ours:
        raise SystemExit(f"{out} holds runs with other settings ({theirs}); pass another --out")
    with writing(path) as beside:
        beside.write_text(json.dumps(ours, indent=2))


if __name__ == "__main__":
    main()
