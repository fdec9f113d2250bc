"""Data sets in one file."""

import pytest
import torch
from torch import Tensor

from foveate.data import DataError, ImageSet, Item, Packed, Scenes, open_dataset, open_split, pack, some


class Noise(ImageSet):
    """Images of noise, of any size, which no lossy format would keep."""

    classes = ("a", "b", "c")

    def __init__(self, count: int, seed: int, sizes: tuple[int, int] = (9, 7)) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.pixels = [torch.randint(256, (3, *sizes), generator=draw).to(torch.uint8) for _ in range(count)]

    @property
    def labels(self) -> list[int]:
        return [index % 3 for index in range(len(self.pixels))]

    def __getitem__(self, index: int) -> Item:
        return Item(image=self.pixels[index], label=index % 3)


def test_every_pixel_and_label_comes_back(tmp_path) -> None:
    train, test = Noise(7, 0), Noise(4, 1, (5, 12))
    pack(train, test, tmp_path / "noise.safetensors")
    for part, original in (("train", train), ("test", test)):
        opened = open_dataset(tmp_path / "noise.safetensors", part)
        assert opened.classes == original.classes
        assert opened.labels == original.labels
        assert all(torch.equal(opened[index].image, image) for index, image in enumerate(original.pixels))
        assert torch.equal(opened.images(), torch.stack(original.pixels))
    assert len(open_dataset(tmp_path / "noise.safetensors", "all")) == 11
    assert torch.equal(opened.images([2, 0]), torch.stack([test.pixels[2], test.pixels[0]]))
    ours, theirs = open_split(tmp_path / "noise.safetensors")
    assert (len(ours), len(theirs)) == (7, 4)


def test_floats_are_rounded_to_8_bits(tmp_path) -> None:
    scenes = Scenes(3, 16)
    pack(scenes, Scenes(2, 16, seed=1), tmp_path / "scenes.safetensors")
    opened = open_dataset(tmp_path / "scenes.safetensors").images() / 255
    assert (opened - torch.stack([scenes[index].image for index in range(3)])).abs().max() <= 0.5001 / 255


def test_it_is_smaller_than_its_pixels(tmp_path) -> None:
    scenes = Scenes(20, 32)
    pack(scenes, Scenes(2, 32, seed=1), tmp_path / "scenes.safetensors")
    assert (tmp_path / "scenes.safetensors").stat().st_size < 0.7 * 22 * 3 * 32 * 32


def test_some_keeps_the_shares_of_the_classes() -> None:
    noise = Noise(300, 0)
    part = some(noise, 30)
    assert [part.labels.count(label) for label in range(3)] == [10, 10, 10]
    assert part.labels == some(noise, 30).labels
    assert [int(item.image.sum()) for item in (part[0], part[5])] != [
        int(item.image.sum()) for item in (some(noise, 30, seed=1)[0], some(noise, 30, seed=1)[5])
    ]
    assert some(noise, 1000) is noise


def test_what_is_no_packed_data_set_is_refused(tmp_path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(DataError, match="there is no file"):
        Packed(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is no data set at all")
    with pytest.raises(DataError, match="is not a safetensors file"):
        Packed(tmp_path / "text.safetensors")
    save_file({"x": Tensor([1.0])}, tmp_path / "weights.safetensors")
    with pytest.raises(DataError, match="not a data set that foveate packed"):
        Packed(tmp_path / "weights.safetensors")
    with pytest.raises(DataError, match=r"ends in '\.safetensors'"):
        pack(Noise(1, 0), Noise(1, 1), tmp_path / "noise.zip")
    assert not (tmp_path / "noise.safetensors").exists()
