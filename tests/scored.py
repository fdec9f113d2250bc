"""Poolings as if they were trained: new ones score every position the same."""

from typing import TypeVar

from torch import nn

from foveate.pooling.base import Score

M = TypeVar("M", bound=nn.Module)


def scored(module: M) -> M:
    """Every score of the module draws its last layer as other layers are drawn."""
    for part in module.modules():
        if isinstance(part, Score):
            part.last.reset_parameters()
    return module
