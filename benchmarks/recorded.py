"""What recording a training step as a CUDA graph is worth: the networks of rot-MNIST, recorded over as ever.

python benchmarks/recorded.py --out results/recorded-cost.md

It ends with status 1 where the bound is broken: a recorded step of a network with attention may take half as long as
one that Python launches.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from pages import RatioRow, ratio_columns, write_page
from torch import Tensor

from foveate.metrics.cost import ratio
from foveate.models import p4cnn
from foveate.training.recorded import EAGER, Recorded

ROWS = {"p4": None, "α_F": "input", "α_CH": "channel", "α_SP": "spatial", "α": "full"}
BOUND = 0.5


def measure(batch: int, seconds: float) -> Iterator[RatioRow]:
    images = torch.rand(batch, 1, 28, 28, device="cuda")
    labels = torch.randint(10, (batch,), device="cuda")
    for name, attention in ROWS.items():
        ours, theirs = step(attention, recorded=True), step(attention, recorded=False)
        for _ in range(EAGER + 1):
            ours(images, labels)
        measured = ratio(partial(ours, images, labels), partial(theirs, images, labels), seconds)
        yield RatioRow(f"{name}, batch {batch}", measured, BOUND if attention else None)


def step(attention: str | None, recorded: bool) -> Callable[[Tensor, Tensor], object]:
    """A training step of a network of its own, by Adam."""
    torch.manual_seed(0)
    model = p4cnn(attention).cuda().train()
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-4)

    def loss(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        value = F.cross_entropy(model(images), labels)
        return value, value.detach()

    work = Recorded(loss, list(model.parameters())) if recorded else None

    def run(images: Tensor, labels: Tensor) -> None:
        if work is not None:
            work(images, labels)
        else:
            optimizer.zero_grad()
            loss(images, labels)[0].backward()
        optimizer.step()

    return run


def heading() -> list[str]:
    return [
        "# What a recorded training step is worth",
        "",
        f"Networks of rot-MNIST on one {torch.cuda.get_device_name()}: forward, backward and Adam, where the first",
        "two are replayed as a CUDA graph (`--model.record true`), over the same launched by Python. The two of a",
        "ratio run by turns; it is the median over neighbouring runs, and its quartiles show how noisy they were.",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5, help="for each measurement")
    parser.add_argument("--threads", type=int, default=4)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if not torch.cuda.is_available():
        parser.error("a CUDA device is what this measures, and there is none")
    torch.set_num_threads(options.threads)
    rows = measure(options.batch, options.seconds)
    return write_page(
        heading(), ratio_columns("recorded", "as ever"), rows, ["benchmarks/recorded.py", *given], options.out
    )


if __name__ == "__main__":
    sys.exit(main())
