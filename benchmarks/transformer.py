"""How the cost of a self-attention layer grows with the image: continuous attention against all pairs of positions.

python benchmarks/transformer.py

The other layer is PyTorch's `scaled_dot_product_attention` between the same projections. Forward and backward of both
are timed by turns. It ends with status 1 where continuous attention grows more than twice as fast as the positions,
or is no quicker than the other on the largest map.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.densities import ContinuousSelfAttention
from foveate.metrics.cost import Ratio, machine, ratio


class AllPairs(nn.Module):
    """Multi-head softmax attention of every position to every other one."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.output = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        """Tokens (B, L, C) to as many."""
        query, key, value = self.project(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.output(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def measure(layers: list[nn.Module], side: int, batch: int, channels: int, seconds: float, device: str) -> Ratio:
    """All pairs over continuous attention, forward and backward."""
    x = torch.randn(batch, side**2, channels, device=device, requires_grad=True)

    def step(layer: nn.Module) -> object:
        return torch.autograd.grad(layer(x, (side, side)).square().mean(), [x, *layer.parameters()])

    return ratio(lambda: step(layers[1]), lambda: step(layers[0]), seconds, at_least=3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[14, 28, 56, 112])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--basis", type=int, default=100)
    parser.add_argument("--alpha", type=int, choices=(1, 2), default=1)
    parser.add_argument("--seconds", type=float, default=5, help="for each size")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    ours = ContinuousSelfAttention(options.channels, options.heads, options.basis, options.alpha)
    layers = [layer.to(options.device) for layer in (ours, AllPairs(options.channels, options.heads))]
    print(
        f"{machine()}, {options.device}: batch {options.batch}, {options.channels} channels, {options.heads} heads, "
        f"{options.basis} basis functions, α = {options.alpha}\n"
    )
    print("| map | positions | continuous (ms) | all pairs (ms) | ratio |\n|---|---:|---:|---:|---:|")
    found = {}
    for side in options.sides:
        found[side] = measure(layers, side, options.batch, options.channels, options.seconds, options.device)
        theirs, own = 1e3 * found[side].seconds, 1e3 * found[side].reference_seconds
        print(f"| {side}×{side} | {side**2} | {own:.1f} | {theirs:.1f} | {found[side].value:.2f} |", flush=True)
    first, last = options.sides[0], options.sides[-1]
    growth = found[last].reference_seconds / found[first].reference_seconds
    positions = (last / first) ** 2
    other = found[last].seconds / found[first].seconds
    print(f"\n{positions:.0f} times the positions take {growth:.1f} times as long, and all pairs {other:.0f} times.")
    return 0 if growth <= 2 * positions and (len(found) == 1 or found[last].value > 1) else 1


if __name__ == "__main__":
    sys.exit(main())
