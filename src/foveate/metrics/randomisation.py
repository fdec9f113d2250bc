"""Does the map depend on what the network has learned? Cascading randomisation (Adebayo et al. 2018).

The weights are redrawn layer by layer from the output down, and after each step the map is held against the one before
anything was redrawn. A map that is still the same when nothing learned is left says nothing about the network.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from foveate.attach import undisturbed
from foveate.gaze import Gaze, watch
from foveate.metrics.functional import in_steps

SAME = 0.9  # a rank correlation from which on a map counts as one that ignores the network


@dataclass(frozen=True)
class Cascade:
    """What became of the maps.

    Attributes:
        layers: the layers that each step redrew, from the output down.
        similarity: by the name of the gaze, (steps + 1,): the rank correlation of its maps with the first ones, in the
            mean over images; 1 before anything was redrawn.
    """

    layers: Sequence[Sequence[str]]
    similarity: Mapping[str, Tensor]

    @property
    def ignoring(self) -> list[str]:
        """The gazes whose maps are the same when no weight is: they ignore the network."""
        return [name for name, values in self.similarity.items() if float(values[-1]) >= SAME]


@torch.no_grad()
def cascading_randomisation(model: nn.Module, images: Tensor, seed: int = 0, steps: int = 12) -> Cascade:
    """Redraw the weights of a copy of a network from the output down, and watch its maps.

    Each tensor of weights is redrawn from a normal distribution of its own root mean square, so that what follows
    meets numbers of the size that it is used to. Layers are taken in the reverse of the order in which the network
    registers them. The maps of an attention stay as they are until the layers that it looks through are reached.

    Args:
        model: any network with attention; it stays as it is.
        images: (B, C, H, W), as the network takes them.
        seed: of the weights.
        steps: at most so many; a network with more layers has several of them redrawn in each.

    >>> from foveate.attention import CBAMAttention
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), CBAMAttention(8))
    >>> cascade = cascading_randomisation(model, torch.rand(4, 3, 8, 8))
    >>> cascade.layers
    [['1.look.norm'], ['1.look.conv'], ['0']]
    >>> float(cascade.similarity["1"][0])
    1.0
    """
    model = copy.deepcopy(model)
    generator = Generator().manual_seed(seed)
    layers = [name for name, module in model.named_modules() if module._parameters][::-1]
    size = -(-len(layers) // steps) if layers else 1
    groups = [layers[start : start + size] for start in range(0, len(layers), size)]
    with undisturbed(model):
        first = _maps(model, images, seed)
        if not first:
            raise ValueError("this network has no attention, so there are no maps to be watched")
        rows = [{name: map_correlation(map, map).mean() for name, map in first.items()}]
        redrawn: set[int] = set()
        for group in groups:
            for name in group:
                _redraw(model.get_submodule(name), generator, redrawn)
            maps = _maps(model, images, seed)
            rows.append({name: map_correlation(first[name], map).mean() for name, map in maps.items()})
    return Cascade(groups, {name: torch.stack([row[name] for row in rows]).cpu() for name in first})


def map_correlation(map: Tensor | Gaze, other: Tensor | Gaze) -> Tensor:
    """Spearman's rank correlation (B,) of two maps (B, 1, H, W): 1 where the order of their pixels is the same.

    Two flat maps are the same; a flat map and another one have nothing in common, 0.

    >>> map_correlation(torch.tensor([[[[1.0, 2.0, 9.0]]]]), torch.tensor([[[[0.1, 0.5, 0.2]]]]))
    tensor([0.5000])
    """
    first, second = (_ranks(m.map if isinstance(m, Gaze) else m) for m in (map, other))
    lengths = first.square().sum(1) * second.square().sum(1)
    both_flat = (first == 0).all(1) & (second == 0).all(1)
    correlation = (first * second).sum(1) / lengths.sqrt().clamp_min(torch.finfo(first.dtype).tiny)
    return torch.where(both_flat, 1.0, correlation).clamp(-1, 1).float()


def _ranks(map: Tensor) -> Tensor:
    """The ranks (B, N) of a map's pixels about their mean, those that tie at the middle of their places."""
    steps = in_steps(map.flatten(1).double().nan_to_num())
    ordered = steps.sort(1).values
    places = torch.searchsorted(ordered, steps) + torch.searchsorted(ordered, steps, right=True)
    return (places.double() - 1) / 2 - (steps.shape[1] - 1) / 2


def _maps(model: nn.Module, images: Tensor, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)  # so that an attention that draws differs by its weights alone
    with watch(model) as gazes:
        model(images)
    return {name: gaze.map for name, gaze in gazes.items()}


def _redraw(layer: nn.Module, generator: Generator, redrawn: set[int]) -> None:
    """Redraw a layer's own weights, but for those that were redrawn in a layer which shares them."""
    for weights in layer._parameters.values():
        if weights is None or id(weights) in redrawn:
            continue
        redrawn.add(id(weights))
        noise = torch.randn(weights.shape, generator=generator)
        weights.copy_(noise.to(weights) * weights.float().square().mean().sqrt().to(weights))
