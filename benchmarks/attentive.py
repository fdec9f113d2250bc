"""What full attention costs when responses are not kept, over a plain layer that keeps them: time, memory, agreement.

python benchmarks/attentive.py --out results/equivariant-cost.md

It ends with status 1 where a bound is broken. The plain layer takes 10 GB of memory, the whole a quarter of an hour.
"""

import argparse
import copy
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from pages import write_page
from torch import Tensor, nn

from foveate.groups import P4, AttentiveGroupConv2d, GroupConv2d, plain
from foveate.metrics.cost import Ratio, ratio
from foveate.models import allcnn

SHAPES = [(16, 10, 28), (2, 48, 16)]  # images, channels, pixels on a side
LARGE, IMAGES = (2, 96, 32), 128
SPEED, MEMORY, GIGABYTES = 5.0, 15.0, 6.0
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4}
KINDS = ("plain", "fast", "network")


@dataclass(frozen=True)
class Row:
    what: str
    value: float
    detail: str
    least: float | None = None
    most: float | None = None

    @property
    def bound(self) -> str:
        if self.least is None and self.most is None:
            return "–"
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"

    @property
    def holds(self) -> bool:
        low, high = self.least or 0.0, float("inf") if self.most is None else self.most
        return low <= self.value <= high

    @property
    def cells(self) -> Sequence[str]:
        value = f"{self.value:.1e}" if self.value < 0.01 else f"{self.value:.2f}"
        return [self.what, value, self.bound, "–" if self.bound == "–" else "yes" if self.holds else "no", self.detail]


def layer_and_input(shape: Sequence[int]) -> tuple[AttentiveGroupConv2d, Tensor]:
    torch.manual_seed(0)
    batch, channels, size = shape
    layer = AttentiveGroupConv2d(P4, channels, channels, 3, padding=1)
    return layer, torch.randn(batch, channels, len(P4), size, size, requires_grad=True)


def step(run: Callable[[Tensor], Tensor], x: Tensor, layer: nn.Module) -> list[Tensor]:
    """The result, and the gradients of a sum of it with some weights: of the input and of all that is learnt."""
    y = run(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad((weights * y).sum(), [x, *layer.parameters()])]


def agreement(shape: Sequence[int], dtype: torch.dtype) -> Row:
    """The largest difference of a result or a gradient, in parts of its largest value."""
    layer, x = layer_and_input(shape)
    layer, x = layer.to(dtype), x.detach().to(dtype).requires_grad_()
    fast = step(layer, x, layer)
    slow = step(lambda x: plain.attend_and_convolve(layer, x), x, layer)
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(fast, slow, strict=True))
    name = str(dtype).removeprefix("torch.")
    return Row(f"difference, {name}, {words(shape)}", worst, "", most=AGREEMENT[dtype])


def speed(shape: Sequence[int], seconds: float) -> Iterator[Row]:
    layer, x = layer_and_input(shape)
    without = GroupConv2d(P4, shape[1], shape[1], 3, padding=1)

    def slow(x: Tensor) -> Tensor:
        return plain.attend_and_convolve(layer, x)

    faster = ratio(lambda: step(slow, x, layer), lambda: step(layer, x, layer), seconds)
    yield Row(f"time of the plain layer over ours, {words(shape)}", faster.value, times(faster), least=SPEED)
    dearer = ratio(lambda: step(layer, x, layer), lambda: step(without, x, without), seconds)
    yield Row(f"time of ours over a group convolution, {words(shape)}", dearer.value, times(dearer))


def other_kinds(shape: Sequence[int], seconds: float) -> Iterator[Row]:
    """What the cheaper attentions cost."""
    _, x = layer_and_input(shape)
    channels = shape[1]
    without = GroupConv2d(P4, channels, channels, 3, padding=1)
    for attention in ("channel", "spatial", "input", "poses"):
        layer = AttentiveGroupConv2d(P4, channels, channels, 3, attention, padding=1)
        dearer = ratio(lambda: step(layer, x, layer), lambda: step(without, x, without), seconds)  # noqa: B023
        yield Row(f"that of attention={attention!r}, {words(shape)}", dearer.value, times(dearer))


def times(measured: Ratio) -> str:
    first, second = 1e3 * measured.seconds, 1e3 * measured.reference_seconds
    return f"{measured.low:.2f} to {measured.high:.2f}; {first:.0f} ms over {second:.0f} ms, {measured.pairs} pairs"


def memory(shape: Sequence[int]) -> Row:
    slow, fast = (peak(kind, shape) for kind in KINDS[:2])
    detail = f"{slow / 1e6:,.0f} MB over {fast / 1e6:,.0f} MB"
    return Row(f"memory of the plain layer over ours, {words(shape)}", slow / max(fast, 1.0), detail, least=MEMORY)


def network(images: int) -> Row:
    needed = peak("network", (images, 3, 32)) / 1e9
    detail = "the process, PyTorch and images included; the paper needs 72"
    return Row(f"GB for a training step of the α-p4 All-CNN on {images} images", needed, detail, most=GIGABYTES)


def peak(kind: str, shape: Sequence[int]) -> float:
    """The peak memory in bytes of one step, forward and backward, in a process of its own: beyond that before it."""
    words = [sys.executable, __file__, "--peak", kind, "--shape", *map(str, shape)]
    words += ["--threads", str(torch.get_num_threads())]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def measure_peak(kind: str, shape: Sequence[int]) -> float:
    if kind == "network":
        net = allcnn("p4", "full").train()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        F.cross_entropy(net(torch.randn(*shape, shape[-1])), torch.arange(shape[0]) % 10).backward()
        optimizer.step()
        return resident()
    layer, x = layer_and_input(shape)
    small = copy.deepcopy(layer), torch.randn(1, shape[1], len(P4), 2, 2, requires_grad=True)
    step(small[0], small[1], small[0])  # what libraries take when they start is not the layer's
    before = resident()
    step(layer if kind == "fast" else lambda x: plain.attend_and_convolve(layer, x), x, layer)
    return resident() - before


def resident() -> float:
    """The largest memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would begin with what the parent has
        return 1024 * float(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def words(shape: Sequence[int]) -> str:
    batch, channels, size = shape
    return f"batch {batch}, {channels} channels, {size}×{size}"


def measure(shapes: Sequence[Sequence[int]], large: Sequence[int], images: int, seconds: float) -> Iterator[Row]:
    for shape in shapes:
        for dtype in AGREEMENT:
            yield agreement(shape, dtype)
        yield from speed(shape, seconds)
    yield from other_kinds(shapes[0], seconds)
    yield memory(large)
    yield network(images)


HEADING = [
    "# What full attention costs",
    "",
    "A p4 layer with full attention, forward and backward, as `foveate.groups.AttentiveGroupConv2d` computes it",
    "without keeping the responses f̃, and as `foveate.groups.plain` does with all of them: the same weights in one",
    "run. The two of a ratio of times run by turns; it is the median over neighbouring runs, its quartiles say how",
    "noisy they were. A difference is the largest of the result and of every gradient, in parts of the largest",
    "value of each. Memory is what a process of its own takes beyond what it had before.",
]
COLUMNS = {"what": "---", "value": "---:", "bound": "---:", "holds": "---", "": "---"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--seconds", type=float, default=60, help="for each ratio of times")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="at sizes that take a moment, to see that it runs")
    parser.add_argument("--peak", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs=3, help=argparse.SUPPRESS)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    if options.peak:
        print(measure_peak(options.peak, options.shape))
        return 0
    small = [(2, 3, 6)], (2, 16, 32), 2
    rows = measure(*(small if options.small else (SHAPES, LARGE, IMAGES)), seconds=options.seconds)
    return write_page(HEADING, COLUMNS, rows, ["benchmarks/attentive.py", *given], options.out)


if __name__ == "__main__":
    sys.exit(main())
