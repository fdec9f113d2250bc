"""What is computed without the responses f̃ against f̃ itself, with hand-derived gradients checked numerically."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from foveate.groups import responses
from foveate.groups.responses import (
    Window,
    gated_sum,
    max_over_space,
    mean_over_space,
    spatial_attention,
    sum_and_max_over_channels,
)

WINDOWS = [Window(3), Window(2, stride=2), Window(3, stride=2, dilation=2), Window(1), Window(4)]
SIZES = [(6, 6), (7, 5)]
by_window = pytest.mark.parametrize("window", WINDOWS, ids=str)
by_size = pytest.mark.parametrize("size", SIZES, ids=str)


@pytest.fixture(params=["whole", "tiny tiles"])
def _tiles(request, monkeypatch) -> None:
    """Everything at once, and in so small tiles that every loop turns more than once."""
    if request.param == "tiny tiles":
        monkeypatch.setattr(responses, "TILE_ON_CPU", 200)


def some(window: Window, size: tuple[int, int], own: bool = False, batch: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn(batch, 3, 2, *size, dtype=torch.float64, requires_grad=True)
    count = window.kernel_size**2
    filters = torch.randn(*([batch] if own else []), 3, 2, 5, count, dtype=torch.float64, requires_grad=True)
    return x, filters


def naive_responses(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """f̃ by loops over the filter: (B, T, in, M, H', W')."""
    k, d, s = window.kernel_size, window.dilation, window.stride
    height, width = ((n - d * (k - 1) - 1) // s + 1 for n in x.shape[-2:])
    filters = filters if filters.ndim == 5 else filters[None]
    total = 0
    for u in range(k):
        for v in range(k):
            seen = x[..., u * d : u * d + (height - 1) * s + 1 : s, v * d : v * d + (width - 1) * s + 1 : s]
            total = total + filters[..., u * k + v, None, None] * seen[:, :, :, None]
    return total


@by_window
@by_size
@pytest.mark.usefixtures("_tiles")
def test_statistics_against_the_responses(window: Window, size: tuple[int, int]) -> None:
    x, filters = some(window, size)
    f = naive_responses(x, filters, window)
    assert torch.allclose(mean_over_space(x, filters, window), f.mean((-2, -1)), atol=1e-12)
    assert torch.allclose(max_over_space(x, filters, window), f.amax((-2, -1)), atol=1e-12)
    x, filters = some(window, size, own=True)
    f = naive_responses(x, filters, window)
    both = sum_and_max_over_channels(x, filters, window)
    assert torch.allclose(both, torch.stack([f.sum(2), f.amax(2)]), atol=1e-12)


@by_window
@by_size
@pytest.mark.usefixtures("_tiles")
def test_gradients_are_those_of_the_responses(window: Window, size: tuple[int, int]) -> None:
    for own, ours, naive in (
        (False, mean_over_space, lambda f: f.mean((-2, -1))),
        (False, max_over_space, lambda f: f.flatten(-2).max(-1).values),
        (True, sum_and_max_over_channels, lambda f: torch.stack([f.sum(2), f.amax(2)])),
    ):
        x, filters = some(window, size, own)
        y = naive(naive_responses(x, filters, window))
        weights = torch.randn_like(y)
        expected = torch.autograd.grad((weights * y).sum(), (x, filters))
        found = torch.autograd.grad((weights * ours(x, filters, window)).sum(), (x, filters))
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("window", [Window(3), Window(2, stride=2, dilation=2)], ids=str)
def test_gradcheck(window: Window) -> None:
    x, filters = some(window, (5, 4), batch=1)
    assert gradcheck(lambda x, w: max_over_space(x, w, window), (x, filters))
    x, filters = some(window, (5, 4), own=True, batch=1)
    assert gradcheck(lambda x, w: sum_and_max_over_channels(x, w, window), (x, filters))


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("plane", [(4, 5), (1, 1), (6, 2)])
def test_the_gate_against_a_loop_and_gradcheck(size: int, plane: tuple[int, int]) -> None:
    statistics = torch.randn(2, 2, 2, 3, *plane, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, size, size, dtype=torch.float64, requires_grad=True)
    alpha = torch.zeros(statistics.shape[1:], dtype=torch.float64)
    for t in range(2):
        for m in range(3):
            for s in range(2):
                alpha[:, t, m] += torch.conv2d(
                    statistics[s, :, t, m, None], weight[s, t, m, None, None], padding=size // 2
                )[:, 0]
    alpha = alpha.sigmoid()
    assert torch.allclose(spatial_attention(statistics, weight), alpha, atol=1e-12)
    assert torch.allclose(gated_sum(statistics, weight), (alpha * statistics[0]).sum(1), atol=1e-12)
    assert gradcheck(gated_sum, (statistics, weight))


def test_ties_over_channels_are_shared_and_over_space_go_to_the_first() -> None:
    window = Window(1)
    x = torch.zeros(1, 1, 4, 2, 2, dtype=torch.float64, requires_grad=True)  # all responses are 0
    own = torch.ones(1, 1, 4, 1, 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(sum_and_max_over_channels(x, own, window)[1].sum(), x)
    assert torch.allclose(gradient, torch.full_like(x, 0.25))
    (gradient,) = torch.autograd.grad(max_over_space(x, own[0], window).sum(), x)
    assert gradient[..., 0, 0].eq(1).all()
    assert gradient.sum() == 4
