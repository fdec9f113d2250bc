"""What four maps and twelve codes cost over one of each: VGG-aib, and the shares that it must not pay twice.

python benchmarks/bottleneck.py --out results/bottleneck-cost.md

It ends with status 1 where the bound is broken: a prediction by 4 × 12 draws may take 1.2 times what four passes of the
encoder and one of the features take.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from pages import RatioRow, ratio_columns, write_page
from torch import nn

import foveate as fv
from foveate import models
from foveate.attention.bottleneck import nearest_anchor
from foveate.metrics.cost import Ratio, ratio

MAPS, CODES, BOUND = 4, 12, 1.2
ANCHORS = 50


def measure(width: float, batch: int, seconds: float) -> Iterator[RatioRow]:
    torch.manual_seed(0)
    images = torch.rand(batch, 3, 32, 32)
    for anchors in (0, 20):
        name = "VGG-aib-qt" if anchors else "VGG-aib"
        model = models.vgg_aib(10, anchors, width=width).eval()
        yield RatioRow(
            f"{name}, {MAPS} × {CODES}, over four encoder passes and one feature pass",
            shared(model, images, seconds),
            BOUND,
        )
        yield RatioRow(f"{name}, {MAPS} × {CODES}, over 1 × 1", draws(model, images, seconds))
    yield RatioRow(f"nearest of {ANCHORS} anchors by midpoints, over all distances", anchored(batch, seconds))


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


def heading(width: float, batch: int) -> list[str]:
    return [
        "# What several draws cost",
        "",
        f"VGG-aib for 10 classes at 32 px, width times {width:g}, batches of {batch}. Features run once, the encoder",
        "once for each map, and only the decoder for every code. The two of a ratio run by turns; it is the median",
        "over neighbouring runs, and its quartiles show how noisy they were.",
    ]


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
    rows = measure(options.width, options.batch, options.seconds)
    columns, command = ratio_columns("first", "second"), ["benchmarks/bottleneck.py", *given]
    return write_page(heading(options.width, options.batch), columns, rows, command, options.out)


if __name__ == "__main__":
    sys.exit(main())
