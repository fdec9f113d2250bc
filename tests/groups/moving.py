"""How far a layer is from equivariance: the largest error over all elements, in parts of the signal."""

from collections.abc import Callable

from torch import Tensor

from foveate.groups import Group


def equivariance_error(layer: Callable[[Tensor], Tensor], group: Group, x: Tensor) -> float:
    y = layer(x)
    errors = [(layer(group.transform(x, h)) - group.transform(y, h)).abs().max() for h in range(len(group))]
    return (max(errors) / y.abs().max()).item()
