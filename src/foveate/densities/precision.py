"""In what precision densities are computed: never below float32, their small matrices in float64, autocast or not."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def at_least_single(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in one type of theirs, float64 if any is float64, else float32.

    >>> [t.dtype for t in at_least_single(torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2))]
    [torch.float32, torch.float32]
    """
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return tuple(t.to(dtype) for t in tensors)


def double(t: Tensor) -> Tensor:
    """In float64 where the device has it: the determinant of a thin ellipse loses all its digits in float32.

    >>> double(torch.zeros(1)).dtype
    torch.float64
    """
    return t.float() if t.device.type == "mps" else t.double()


def without_autocast(function: Callable[P, T]) -> Callable[P, T]:
    """A function of tensors whose products autocast leaves in the types they have."""

    @wraps(function)
    def exact(*args: P.args, **kwargs: P.kwargs) -> T:
        kinds = {t.device.type for t in (*args, *kwargs.values()) if isinstance(t, Tensor)} or {"cpu"}
        with torch.autocast(kinds.pop(), enabled=False):
            return function(*args, **kwargs)

    return exact


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to the shape that all of them have together.

    >>> [tuple(t.shape) for t in broadcast(torch.zeros(2, 1), torch.zeros(3))]
    [(2, 3), (2, 3)]
    """
    expanded: tuple[Tensor, ...] = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
    return expanded
