"""What rectangular attention costs: ratios against the same network without it, in one run.

python benchmarks/cost.py --out results/cost.md

It ends with status 1 where a bound is broken.
"""

import argparse
import copy
import sys
from collections.abc import Iterator
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from pages import RatioRow, ratio_columns, write_page
from torch import Tensor, nn

import foveate as fv
from foveate.attention.rectangular import RectangleGaze
from foveate.metrics.cost import Ratio, ratio

MODEL, LAYER = "mobilenetv3_large_100", "blocks.6"
LATENCY, TRAINING, SHARE = 1.15, 1.25, 0.05


def latency(plain: nn.Module, attentive: nn.Module, images: Tensor, seconds: float) -> Ratio:
    with torch.inference_mode():
        return ratio(lambda: attentive(images), lambda: plain(images), seconds)


def training_step(plain: nn.Module, attentive: nn.Module, images: Tensor, seconds: float) -> Ratio:
    labels = torch.arange(len(images)) % 37

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    pairs = [(m, torch.optim.Adam(m.parameters(), lr=1e-4)) for m in (plain.train(), attentive.train())]
    measured = ratio(lambda: step(*pairs[1]), lambda: step(*pairs[0]), seconds)
    plain.eval(), attentive.eval()
    return measured


def share_of_the_map(attention: nn.Module, features: Tensor, seconds: float) -> Ratio:
    """Time from five numbers to the map, over the time of the whole module."""
    with torch.inference_mode():
        gaze, size = attention.look(features), features.shape[2:]
        return ratio(
            lambda: RectangleGaze.draw(gaze.center, gaze.extent, gaze.angle, size), lambda: attention(features), seconds
        )


def measure(size: int, batches: list[int], compiled: bool, seconds: float) -> Iterator[RatioRow]:
    torch.manual_seed(0)
    plain = timm.create_model(MODEL, num_classes=37).eval()
    attentive = fv.attach(copy.deepcopy(plain), LAYER, fv.RectangularAttention)
    (attention,) = (m for m in attentive.modules() if isinstance(m, fv.RectangularAttention))
    for batch in batches:
        features = torch.rand(batch, 960, -(-size // 32), -(-size // 32))
        share = share_of_the_map(attention, features, seconds)
        yield RatioRow(f"the map's share of the module, eager, batch {batch}", share, SHARE)
    for batch in batches:
        images = torch.rand(batch, 3, size, size)
        yield RatioRow(f"latency, eager, batch {batch}", latency(plain, attentive, images, seconds), LATENCY)
        if compiled:
            pair = torch.compile(plain, dynamic=False), torch.compile(attentive, dynamic=False)
            yield RatioRow(f"latency, compiled, batch {batch}", latency(*pair, images, seconds), LATENCY)
            torch.compiler.reset()
    yield RatioRow(f"training step, batch {batches[-1]}", training_step(plain, attentive, images, seconds), TRAINING)


def heading(size: int) -> list[str]:
    return [
        "# What rectangular attention costs",
        "",
        f"`{MODEL}` at {size} px with `RectangularAttention` behind `{LAYER}`, over the same network without it. The",
        "two run by turns; a ratio is the median over neighbouring runs, and its quartiles show how noisy they were.",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--size", type=int, default=224, help="pixels on a side")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=30, help="for each measurement")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled models")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    rows = measure(options.size, options.batches, not options.no_compile, options.seconds)
    columns, command = ratio_columns("with", "reference"), ["benchmarks/cost.py", *given]
    return write_page(heading(options.size), columns, rows, command, options.out)


if __name__ == "__main__":
    sys.exit(main())
