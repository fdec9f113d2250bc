"""Blocks, patches and bands against loops over pixels and frequencies."""

import math

import numpy as np
import pytest
import torch

from foveate.metrics.modifications import band, color_block, paper_modifications, patch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def changed(images, modified):
    """For each image, the first and last row and column that changed, and how many pixels did."""
    for image, other in zip(images, modified, strict=True):
        rows, columns = ((image != other).any(0)).nonzero(as_tuple=True)
        yield int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max()), len(rows)


@pytest.mark.parametrize("size", [1, 4, 8, 12, 16])
def test_a_block_is_a_whole_square_of_one_color_between_black_and_white(size):
    images = torch.full((40, 3, 16, 20), -9.0)
    black, white = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([1.0, 0.5, 3.0])
    blocked = color_block(images, generator(), size=size, levels=(black.tolist(), white.tolist()))
    corners = set()
    for k, (top, bottom, left, right, count) in enumerate(changed(images, blocked)):
        assert (bottom - top + 1, right - left + 1, count) == (size, size, size * size)
        square = blocked[k, :, top : bottom + 1, left : right + 1]
        color = square[:, 0, 0]
        assert (square == color[:, None, None]).all()
        assert ((black <= color) & (color <= white)).all()
        corners.add((top, left))
    assert len(corners) > (1 if size == 16 else 3)
    assert {top for top, _ in corners} <= set(range(16 - size + 1))
    assert {left for _, left in corners} <= set(range(20 - size + 1))
    assert len(blocked.amax((1, 2, 3)).unique()) == 40  # a colour of its own for each


def test_blocks_land_everywhere_alike():
    images = torch.zeros(4000, 1, 6, 5)
    covered = (color_block(images, generator(), size=2, levels=(1.0, 2.0)) > 0).float().mean(0)[0]
    expected = torch.zeros(6, 5)
    for top in range(5):
        for left in range(4):
            expected[top : top + 2, left : left + 2] += 1 / 20
    assert (covered - expected).abs().max() < 0.03


@pytest.mark.parametrize("of_the_batch", [True, False])
def test_a_patch_is_a_piece_of_one_other_image(of_the_batch):
    size = 3
    images = torch.arange(6 * 2 * 7 * 9.0).view(6, 2, 7, 9)
    donors = None if of_the_batch else 1000 + torch.arange(4 * 2 * 7 * 9.0).view(4, 2, 7, 9)
    givers = images if of_the_batch else donors
    sources = set()
    for seed in range(60):
        patched = patch(images, generator(seed), size=size, donors=donors)
        for k in range(len(images)):
            found = []  # every piece of every giver that explains the change
            outside = (patched[k] == images[k]).all(0)
            rows, columns = (~outside).nonzero(as_tuple=True)
            top, left = int(rows.min()), int(columns.min())
            piece = patched[k, :, top : top + size, left : left + size]
            assert len(rows) == size * size
            for g, giver in enumerate(givers):
                for i in range(7 - size + 1):
                    for j in range(9 - size + 1):
                        if torch.equal(giver[:, i : i + size, j : j + size], piece):
                            found.append((g, i, j))
            assert len(found) == 1
            assert not (of_the_batch and found[0][0] == k)
            sources.add(found[0])
    assert len({g for g, _, _ in sources}) == len(givers)
    assert len({(i, j) for _, i, j in sources}) == (7 - size + 1) * (9 - size + 1)


def naive_band(image, keep):
    """One channel by the sum that a discrete Fourier transform is, frequency by frequency."""
    height, width = image.shape
    rows, columns = np.mgrid[:height, :width]
    part = np.zeros((height, width), dtype=complex)
    for u in range(-(height // 2), (height + 1) // 2):
        for v in range(-(width // 2), (width + 1) // 2):
            if keep(math.hypot(u, v)):
                wave = np.exp(2j * np.pi * (u * rows / height + v * columns / width))
                part += (image * wave.conj()).sum() / (height * width) * wave
    assert abs(part.imag).max() < 1e-9
    return part.real


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (8, 8), (9, 6), (7, 7), (12, 5)])
@pytest.mark.parametrize(("above", "below"), [(2, None), (None, 3), (1, 3), (0, None), (None, 0), (5**0.5, None)])
def test_a_band_against_the_sum_over_frequencies(size, above, below):
    images = torch.rand(2, 2, *size, dtype=torch.float64)
    found = band(images, above=above, below=below)
    low, high = -1 if above is None else above, math.inf if below is None else below
    for image, part in zip(images.flatten(0, 1), found.flatten(0, 1), strict=True):
        expected = naive_band(image.numpy(), lambda radius: low < radius < high)
        assert np.allclose(part.numpy(), expected, atol=1e-9)


def test_a_band_as_wang_et_al_define_it():
    """The radius is the distance from the middle of the shifted spectrum, and both bands together are the image."""
    image = torch.rand(32, 32, dtype=torch.float64)
    spectrum = np.fft.fftshift(np.fft.fft2(image.numpy()))
    low = np.array([[math.dist((i, j), (16, 16)) < 12 for j in range(32)] for i in range(32)])
    for mask, found in ((low, band(image[None, None], below=12)), (~low, image - band(image[None, None], below=12))):
        assert np.allclose(np.fft.ifft2(np.fft.ifftshift(spectrum * mask)).real, found[0, 0].numpy(), atol=1e-12)


def test_a_stretched_band_reaches_from_black_to_white():
    images = torch.rand(3, 2, 16, 16)
    stretched = band(images, above=4, stretch=True, levels=([-1.0, 0.0], [1.0, 2.0]))
    assert torch.allclose(stretched.amin((2, 3)), torch.tensor([[-1.0, 0.0]]).expand(3, 2), atol=1e-5)
    assert torch.allclose(stretched.amax((2, 3)), torch.tensor([[1.0, 2.0]]).expand(3, 2), atol=1e-5)
    plain = band(images, above=4)
    assert torch.corrcoef(torch.stack([plain[0, 0].flatten(), stretched[0, 0].flatten()]))[0, 1] > 0.9999


def test_the_papers_ten_and_their_sizes():
    ten = paper_modifications()
    assert list(ten) == [*(f"{kind} p={p}" for kind in ("color", "patch") for p in (4, 8, 12, 16)), "r > 4", "r < 12"]
    images = torch.zeros(2, 3, 64, 64)
    for p in (4, 8, 12, 16):  # the same share of an image twice as wide
        one = paper_modifications(64, levels=(1.0, 2.0))[f"color p={p}"](images, generator())
        assert (one[:, 0] > 0).float().mean((1, 2)).tolist() == [(p / 32) ** 2] * 2
    assert paper_modifications(8)["patch p=4"](images[:, :, :8, :8], generator()).shape == (2, 3, 8, 8)


@pytest.mark.parametrize("name", list(paper_modifications()))
def test_shapes_types_seeds_and_layouts(name):
    modify = paper_modifications()[name]
    for batch in (0, 1, 5):
        images = torch.randn(batch, 3, 32, 40)
        once = modify(images, generator(3))
        assert once.shape == images.shape
        assert torch.equal(once, modify(images, generator(3)))
        assert torch.allclose(once, modify(images.to(memory_format=torch.channels_last), generator(3)), atol=1e-5)
        assert modify(images.half(), generator(3)).dtype == torch.float16
        if batch == 5:
            assert not torch.equal(once, images)
            assert name.startswith("r") == torch.equal(once, modify(images, generator(4)))


def test_the_global_seed_is_followed_where_there_is_no_generator():
    images, modify = torch.rand(4, 3, 32, 32), paper_modifications()["color p=8"]
    torch.manual_seed(1)
    first = modify(images, None)
    torch.manual_seed(1)
    assert torch.equal(first, modify(images, None))


def test_errors_say_what_was_wrong():
    images = torch.rand(1, 3, 8, 8)
    with pytest.raises(ValueError, match="square of 9 pixels does not fit into images of 8×8"):
        color_block(images, size=9)
    with pytest.raises(ValueError, match=r"donors are \(3, 4, 4\) each"):
        patch(images, size=2, donors=torch.rand(2, 3, 4, 4))
    with pytest.raises(ValueError, match="`above`, `below`"):
        band(images)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", list(paper_modifications()))
def test_a_gpu_modifies_as_a_cpu_does(name):
    images, modify = torch.rand(4, 3, 32, 32), paper_modifications()[name]
    assert torch.allclose(modify(images.cuda(), generator(3)).cpu(), modify(images, generator(3)), atol=1e-5)
