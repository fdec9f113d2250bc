"""What four maps and twelve codes cost over one of each: VGG-aib, and the shares that it must not pay twice.

python benchmarks/bottleneck.py --out results/bottleneck-cost.md

It ends with status 1 where the bound is broken: a prediction by 4 × 12 draws may take 1.2 times what four passes of the
encoder and one of the features take.
"""

import argparse
import datetime
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import foveate as fv
from foveate import models
from foveate.attention.bottleneck import nearest_anchor
from foveate.metrics.cost import Ratio, machine, ratio

MAPS, CODES, BOUND = 4, 12, 1.2
ANCHORS = 50


@dataclass(frozen=True)
class Row:
    what: str
    measured: Ratio
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.measured.value <= self.bound


def measure(width: float, batch: int, seconds: float) -> Iterator[Row]:
    torch.manual_seed(0)
    images = torch.rand(batch, 3, 32, 32)
    for anchors in (0, 20):
        name = "VGG-aib-qt" if anchors else "VGG-aib"
        model = models.vgg_aib(10, anchors, width=width).eval()
        yield Row(
            f"{name}, {MAPS} × {CODES}, over four encoder passes and one feature pass",
            shared(model, images, seconds),
            BOUND,
        )
        yield Row(f"{name}, {MAPS} × {CODES}, over 1 × 1", draws(model, images, seconds))
    yield Row(f"nearest of {ANCHORS} anchors by midpoints, over all distances", anchored(batch, seconds))


def shared(model: nn.Sequential, images: torch.Tensor, seconds: float) -> Ratio:
    """4 × 12 draws, over the passes that no sharing avoids."""

    def passes() -> None:
        features = model.features(images)
        for _ in range(MAPS):
            model.encoder(features)

    with torch.inference_mode():
        return ratio(lambda: fv.predict(model, images, MAPS, CODES), passes, seconds)


def draws(model: nn.Module, images: torch.Tensor, seconds: float) -> Ratio:
    with torch.inference_mode():
        return ratio(lambda: fv.predict(model, images, MAPS, CODES), lambda: fv.predict(model, images, 1, 1), seconds)


def anchored(batch: int, seconds: float) -> Ratio:
    """The look-up of bottleneck (9) on the maps of a batch, over the array of all distances."""
    maps, anchors = torch.rand(batch, 1, 32, 32), torch.linspace(0, 1, ANCHORS)
    return ratio(
        lambda: nearest_anchor(maps, anchors), lambda: (maps[..., None] - anchors).square().argmin(-1), seconds
    )


def table(rows: list[Row], width: float, batch: int, command: str) -> str:
    lines = [
        "# What several draws cost",
        "",
        f"VGG-aib for 10 classes at 32 px, width times {width:g}, batches of {batch}. Features run once, the encoder",
        "once for each map, and only the decoder for every code. The two of a ratio run by turns; it is the median",
        "over neighbouring runs, and its quartiles show how noisy they were.",
        "",
        "| what | ratio | quartiles | at most | holds | first (ms) | second (ms) | pairs |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        r = row.measured
        bound = ("–", "–") if row.bound is None else (f"{row.bound}", "yes" if row.holds else "no")
        numbers = f"{r.value:.3f} | {r.low:.3f} to {r.high:.3f} | {' | '.join(bound)}"
        lines.append(
            f"| {row.what} | {numbers} | {1e3 * r.seconds:.2f} | {1e3 * r.reference_seconds:.2f} | {r.pairs} |"
        )
    date = datetime.date.today().isoformat()
    return "\n".join([*lines, "", f"{date}, {machine()}: `{command}`", ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--width", type=float, default=1.0, help="factor on the channels; 1 is the paper's")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30, help="for each measurement")
    parser.add_argument("--threads", type=int, default=1)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    rows = []
    for row in measure(options.width, options.batch, options.seconds):
        print(f"{row.what}: {row.measured.value:.3f}", file=sys.stderr, flush=True)
        rows.append(row)
    text = table(rows, options.width, options.batch, " ".join(["python benchmarks/bottleneck.py", *given]))
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
