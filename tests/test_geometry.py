"""The plane: one matrix moves images and points alike."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.geometry import inverse, move_points, pixel_centers, random_similarity, rotation, similarity, warp

angles = st.floats(-math.pi, math.pi)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 2, 7, 224])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixel_centers(length: int, dtype: torch.dtype) -> None:
    centers = pixel_centers(length, torch.zeros((), dtype=dtype))
    naive = torch.tensor([(i + 0.5) / length for i in range(length)], dtype=dtype)
    assert centers.dtype == dtype
    assert torch.allclose(centers, naive, atol=1e-7)


@given(angle=angles, scale=st.floats(0.2, 3), shift=st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
@settings(deadline=None)
def test_similarity_is_rotation_then_scale_then_shift(angle: float, scale: float, shift: tuple[float, float]) -> None:
    points, center = torch.rand(1, 6, 2, dtype=torch.float64), (0.4, 0.7)
    naive = []
    for row, column in points[0].tolist():
        down, right = row - center[0], column - center[1]
        down, right = (  # rectangular (3)
            math.cos(angle) * down - math.sin(angle) * right,
            math.sin(angle) * down + math.cos(angle) * right,
        )
        down, right = scale * down, scale * right
        naive.append([down + center[0] + shift[0], right + center[1] + shift[1]])
    matrix = similarity(tensor(angle), tensor(scale), tensor(*shift)[None], center)
    assert torch.allclose(move_points(points, matrix)[0], torch.tensor(naive, dtype=torch.float64))


@given(angle=angles, scale=st.floats(0.2, 3))
@settings(deadline=None)
def test_inverse_undoes(angle: float, scale: float) -> None:
    matrix = similarity(tensor(angle), tensor(scale), tensor(0.3, -0.2)[None])
    points = torch.rand(1, 3, 4, 2, dtype=torch.float64)
    assert torch.allclose(move_points(move_points(points, matrix), inverse(matrix)), points)


@pytest.mark.parametrize("shape", [(2, 2), (2, 5, 2), (2, 3, 4, 2), (2, 0, 2), (0, 2), (0, 5, 2)])
def test_move_points_of_any_shape(shape: tuple[int, ...]) -> None:
    points, matrix = torch.rand(shape), random_similarity(shape[0])
    moved = move_points(points, matrix)
    assert moved.shape == points.shape
    for b in range(shape[0]):
        for point, result in zip(points[b].reshape(-1, 2), moved[b].reshape(-1, 2), strict=True):
            assert torch.allclose(result, matrix[b, :, :2] @ point + matrix[b, :, 2], atol=1e-6)


@pytest.mark.parametrize("quarter", [-1, 0, 1, 2, 3])
def test_warp_by_quarter_turns_is_counter_clockwise_as_displayed(quarter: int) -> None:
    image = torch.rand(2, 3, 6, 6, dtype=torch.float64)
    matrix = similarity(tensor(quarter * math.pi / 2).expand(2), tensor(1.0).expand(2), torch.zeros(2, 2).double())
    # torch.rot90 turns from the first axis to the second: rows point down, so k = 1 is counter-clockwise on the screen
    assert torch.allclose(warp(image, matrix, padding="border"), torch.rot90(image, quarter, (2, 3)))


def test_a_quarter_turn_takes_the_right_to_the_top() -> None:
    right = torch.zeros(1, 1, 5, 5)
    right[0, 0, 2, 4] = 1
    turned = warp(right, similarity(torch.tensor([math.pi / 2]), torch.ones(1), torch.zeros(1, 2)))
    assert turned[0, 0, 0, 2] == pytest.approx(1, abs=1e-5)
    assert torch.allclose(
        rotation(torch.tensor(math.pi / 2)) @ torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 0]), atol=1e-6
    )


@pytest.mark.parametrize(("down", "right"), [(0, 0), (2, 0), (0, -3), (-1, 4)])
def test_warp_by_whole_pixels_is_exact(down: int, right: int) -> None:
    height, width = 7, 9
    image = torch.rand(1, 2, height, width, dtype=torch.float64)
    shift = tensor(down / height, right / width)[None]
    moved = warp(image, similarity(tensor(0.0), tensor(1.0), shift))
    naive = torch.zeros_like(image)
    for i in range(height):
        for j in range(width):
            if 0 <= i - down < height and 0 <= j - right < width:
                naive[:, :, i, j] = image[:, :, i - down, j - right]
    assert torch.allclose(moved, naive)


@pytest.mark.parametrize("size", [(8, 8), (5, 9), (1, 1), (3, 1)])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp_against_a_loop(size: tuple[int, int], padding: str) -> None:
    height, width = size
    image = torch.rand(2, 1, *size, dtype=torch.float64)
    matrix = random_similarity(2, math.pi, (0.5, 2.0), 0.3).double()
    back, warped = inverse(matrix), warp(image, matrix, padding)

    def value(b: int, i: int, j: int) -> float:
        if padding == "border":
            i, j = min(max(i, 0), height - 1), min(max(j, 0), width - 1)
        return image[b, 0, i, j].item() if 0 <= i < height and 0 <= j < width else 0.0

    for b in range(2):
        for i in range(height):
            for j in range(width):
                y, x = back[b, :, :2] @ tensor((i + 0.5) / height, (j + 0.5) / width) + back[b, :, 2]
                row, column = y.item() * height - 0.5, x.item() * width - 0.5
                if padding == "border":
                    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
                top, left = math.floor(row), math.floor(column)
                p, q = row - top, column - left
                naive = (1 - p) * ((1 - q) * value(b, top, left) + q * value(b, top, left + 1))
                naive += p * ((1 - q) * value(b, top + 1, left) + q * value(b, top + 1, left + 1))
                assert warped[b, 0, i, j].item() == pytest.approx(naive, abs=1e-9)


def test_warp_and_its_inverse_give_the_image_back_inside() -> None:
    rows, columns = torch.meshgrid(
        pixel_centers(64, torch.zeros(())), pixel_centers(64, torch.zeros(())), indexing="ij"
    )
    image = torch.exp(-(((rows - 0.45) ** 2 + (columns - 0.55) ** 2) / 0.02))[None, None]
    matrix = similarity(torch.tensor([0.7]), torch.tensor([1.1]), torch.tensor([[0.05, -0.03]]))
    assert torch.allclose(warp(warp(image, matrix), inverse(matrix)), image, atol=0.02)


def test_warp_keeps_constants_with_padding_and_fades_without() -> None:
    ones, matrix = torch.ones(1, 1, 6, 6), similarity(torch.zeros(1), torch.full((1,), 0.5), torch.zeros(1, 2))
    for padding in ("border", "reflection"):
        assert torch.allclose(warp(ones, matrix, padding), ones)
    assert warp(ones, matrix)[0, 0, 0, 0] == 0
    with pytest.raises(ValueError, match="padding"):
        warp(ones, matrix, "mirror")


def test_warp_gradients() -> None:
    image = torch.rand(2, 1, 5, 4, dtype=torch.float64, requires_grad=True)
    matrix = random_similarity(2, generator=torch.Generator().manual_seed(3)).double().requires_grad_()
    assert torch.autograd.gradcheck(warp, (image, matrix))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_moves_points_in_full_precision(dtype: torch.dtype) -> None:
    angle, points = torch.rand(4), torch.rand(4, 50, 2)
    exact = move_points(points, similarity(angle, torch.ones(4), torch.rand(4, 2) * 0 + 0.1))
    with torch.autocast("cpu", dtype):
        matrix = similarity(angle, torch.ones(4), torch.rand(4, 2) * 0 + 0.1)
        moved, back = move_points(points, matrix), inverse(matrix)
    assert moved.dtype == back.dtype == torch.float32
    assert torch.equal(moved, exact)


def test_warp_takes_half_precision_images() -> None:
    image, matrix = torch.rand(1, 1, 8, 8), random_similarity(1)
    assert warp(image.bfloat16(), matrix).dtype == torch.bfloat16
    assert torch.allclose(warp(image.bfloat16(), matrix).float(), warp(image, matrix), atol=0.02)


@pytest.mark.parametrize("batch", [0, 1, 64])
def test_random_similarity_stays_in_its_bounds(batch: int) -> None:
    matrix = random_similarity(batch, rotate=0.4, scale=(0.5, 2.0), shift=0.2)
    assert matrix.shape == (batch, 2, 3)
    scale = torch.linalg.det(matrix[:, :, :2]).sqrt()
    angle = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0])
    moved = move_points(torch.full((batch, 2), 0.5), matrix) - 0.5
    assert ((scale > 0.499) & (scale < 2.001)).all()
    assert (angle.abs() <= 0.4001).all()
    assert (moved.abs() <= 0.2001).all()
    if batch == 64:  # and it uses them, both ways
        assert scale.min() < 0.7 < 1.5 < scale.max()
        assert angle.min() < -0.2 < 0.2 < angle.max()


def test_random_similarity_follows_its_generator_and_the_global_seed() -> None:
    first, again = (random_similarity(3, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, again)
    torch.manual_seed(4)
    assert torch.equal(random_similarity(3), first)
    assert not torch.equal(random_similarity(3), first)
