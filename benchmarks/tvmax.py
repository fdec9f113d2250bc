"""How long TVmax takes for each 14×14 map of a batch of 64, beside sparsemax, forward and backward.

python benchmarks/tvmax.py
"""

import argparse
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from entmax import sparsemax
from torch import Tensor

from foveate.metrics.cost import machine, ratio
from foveate.pooling import tvmax


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)

    def taken(run: Callable[[], object]) -> str:
        return f"{1e3 * ratio(run, lambda: None, options.seconds).seconds / options.batch:.3f}"

    generator = torch.Generator().manual_seed(0)
    rough = torch.randn(options.batch, 1, options.size, options.size, generator=generator)
    smooth = F.interpolate(rough[:, :, :4, :4], rough.shape[2:], mode="bicubic")
    size = (options.size, options.size)
    print(f"{machine()}, {options.device}: ms for each {size[0]}×{size[1]} map of a batch of {options.batch}")
    print("| scores | transform | forward | forward and backward |\n|---|---|---:|---:|")
    for name, scores in {"noise": rough, "smooth": smooth}.items():
        flat = scores.flatten(1).to(options.device).requires_grad_()
        transforms: dict[str, Callable[[Tensor], Tensor]] = {"sparsemax": lambda s: sparsemax(s, dim=1)}
        for weight in (0.01, 0.1):
            transforms[f"TVmax, λ = {weight}"] = lambda s, weight=weight: tvmax(s, size, weight)
        for what, transform in transforms.items():
            forward = taken(lambda: transform(flat.detach()))  # noqa: B023
            both = taken(lambda: transform(flat).square().sum().backward())  # noqa: B023
            print(f"| {name} | {what} | {forward} | {both} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
