"""Position-wise attention and CBAM's spatial attention, against loops and against timm."""

import math

import pytest
import torch
from torch import nn

import foveate as fv


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


@pytest.mark.parametrize("size", [(1, 1), (4, 7)])
def test_the_positionwise_map_is_a_sigmoid_of_convolutions(size: tuple[int, int]) -> None:
    look = fv.PositionwiseAttention(5, widths=(6, 7), kernel_size=3).look
    x = torch.randn(2, 5, *size)
    y = x
    convolutions = [layer for layer in look.scores if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(5, 6), (6, 7), (7, 1)]
    for n, c in enumerate(convolutions):
        y = nn.functional.conv2d(y, c.weight, c.bias, padding=1)
        y = y.clamp_min(0) if n < 2 else y
    map = look(x).map
    assert map.shape == (2, 1, *size)
    for value, score in zip(map.flatten().tolist(), y.flatten().tolist(), strict=True):
        assert value == pytest.approx(sigmoid(score), abs=1e-5)


def test_positionwise_sees_only_its_neighbourhood() -> None:
    look = fv.PositionwiseAttention(3, widths=(4,)).look  # two 3×3 convolutions reach two pixels
    x = torch.randn(1, 3, 9, 9, requires_grad=True)
    (gradient,) = torch.autograd.grad(look(x).map[0, 0, 4, 4], x)
    reached = gradient.abs().sum(1)[0] > 0
    assert reached[2:7, 2:7].any()
    reached[2:7, 2:7] = False
    assert not reached.any()


def test_cbam_against_a_loop() -> None:
    attention = fv.CBAMAttention(4, kernel_size=3).eval()
    attention.look.norm.running_mean.fill_(0.1)
    attention.look.norm.running_var.fill_(2.0)
    weight = attention.look.conv.weight[0].tolist()
    x = torch.randn(1, 4, 5, 6)
    mean, largest = x.mean(1)[0].tolist(), x.max(1).values[0].tolist()
    output = attention(x)
    for i in range(5):
        for j in range(6):
            score = 0.0
            for k in range(3):
                for m in range(3):
                    row, column = i + k - 1, j + m - 1
                    if 0 <= row < 5 and 0 <= column < 6:
                        score += weight[0][k][m] * mean[row][column] + weight[1][k][m] * largest[row][column]
            value = sigmoid((score - 0.1) / math.sqrt(2 + attention.look.norm.eps))
            assert torch.allclose(output[0, :, i, j], value * x[0, :, i, j], atol=1e-5)  # it multiplies


def test_cbam_is_timms() -> None:
    cbam = pytest.importorskip("timm.layers.cbam")
    theirs, ours = cbam.SpatialAttn(kernel_size=7).eval(), fv.CBAMAttention(8).eval()
    ours.look.conv.weight.data = theirs.conv.conv.weight.data
    x = torch.randn(2, 8, 9, 7)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


@pytest.mark.parametrize("attention", [fv.PositionwiseAttention, fv.CBAMAttention])
def test_options_reach_the_combination(attention: type) -> None:
    x = torch.randn(2, 4, 6, 5)
    module = attention(4, combine="suppress", rescale=True).eval()
    map = module.look(x).map
    rescaled = map * 30 / map.sum(dim=(2, 3), keepdim=True)
    assert torch.allclose(module(x), x - rescaled * x, atol=1e-6)


@pytest.mark.parametrize(
    ("attention", "mode"), [(fv.PositionwiseAttention, "residual"), (fv.CBAMAttention, "multiply")]
)
def test_defaults_are_those_of_the_papers(attention: type, mode: str) -> None:
    module = attention(4)
    assert (module.combine.mode, module.combine.rescale) == (mode, False)


@pytest.mark.parametrize("attention", [fv.PositionwiseAttention, fv.CBAMAttention])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_the_map_in_float32(attention: type, dtype: torch.dtype) -> None:
    module, x = attention(4).eval(), torch.randn(2, 4, 6, 6)
    with torch.autocast("cpu", dtype):
        map, output = module.look(x).map, module(x.to(dtype))
    assert map.dtype == torch.float32
    assert output.dtype == dtype
    assert torch.allclose(output.float(), module(x), atol=0.1)


@pytest.mark.parametrize("attention", [fv.PositionwiseAttention, fv.CBAMAttention])
@pytest.mark.parametrize("size", [3, 5, 7])
def test_the_size_stays_for_odd_kernels_and_even_ones_are_refused(attention: type, size: int) -> None:
    x = torch.randn(1, 4, 6, 9).contiguous(memory_format=torch.channels_last)
    output = attention(4, kernel_size=size)(x)
    assert output.shape == x.shape
    assert output.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=f"kernel_size must be odd, not {size + 1}"):
        attention(4, kernel_size=size + 1)


def test_empty_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="widths must name at least one"):
        fv.PositionwiseAttention(4, widths=())
