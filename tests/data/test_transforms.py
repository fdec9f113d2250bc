import json

import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from foveate.data import InMemory, Item, Prepared, Preprocess, Scenes

PHOTO = torch.randint(0, 256, (3, 30, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_preprocessing_is_a_resize_and_a_normalisation() -> None:
    prepare = Preprocess(20, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    resized = functional.resize(PHOTO, [20, 20], antialias=True).double() / 255
    for channel, (mean, std) in enumerate([(0.1, 1), (0.2, 2), (0.3, 4)]):
        assert torch.allclose(prepare(PHOTO)[channel].double(), (resized[channel] - mean) / std, atol=1e-6)


def test_preprocessing_takes_pillow_uint8_floats_and_batches() -> None:
    prepare = Preprocess(20)
    expected = prepare(PHOTO)
    assert (expected.shape, expected.dtype) == ((3, 20, 20), torch.float32)
    assert torch.equal(prepare(Image.fromarray(PHOTO.permute(1, 2, 0).numpy())), expected)
    assert torch.allclose(prepare(PHOTO.float() / 255), expected, atol=0.02)  # uint8 rounds after the resize
    assert torch.equal(prepare(torch.stack([PHOTO, PHOTO]))[1], expected)


def test_unnormalise_undoes_normalise() -> None:
    prepare, values = Preprocess(8), torch.rand(2, 3, 8, 8)
    assert torch.allclose(prepare.unnormalise(prepare.normalise(values)), values, atol=1e-6)


def test_a_model_of_grey_images_gets_the_luminance() -> None:
    prepare = Preprocess(8, (0.1,), (0.5,))
    colours = torch.rand(2, 3, 8, 8)
    expected = (0.299 * colours[:, :1] + 0.587 * colours[:, 1:2] + 0.114 * colours[:, 2:] - 0.1) / 0.5
    assert torch.allclose(prepare(colours), expected, atol=1e-6)
    grey = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    assert torch.allclose(prepare(grey.expand(3, -1, -1)), prepare(grey), atol=1e-6)
    assert prepare.unnormalise(prepare(colours)).shape == (2, 3, 8, 8)


def test_preprocessing_goes_through_json() -> None:
    prepare = Preprocess(64, (0.5, 0.5, 0.5), (0.25, 0.5, 1))
    again = Preprocess.from_dict(json.loads(json.dumps(prepare.to_dict())))
    assert again == prepare
    assert hash(again) == hash(prepare)
    with pytest.raises(ValueError, match=r"settings \['mean', 'size', 'std'\]"):
        Preprocess.from_dict({"size": 3})
    with pytest.raises(ValueError, match="must be positive"):
        Preprocess(8, std=(1.0, 0.0, 1.0))


def test_a_mask_moves_with_its_image() -> None:
    mask = torch.zeros(1, 30, 50, dtype=torch.bool)
    mask[:, 10:20, 25:] = True
    small = Preprocess(30).mask(mask)
    assert small.shape == (1, 30, 30)
    assert small.dtype == torch.bool
    rows, columns = small[0].nonzero(as_tuple=True)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (10, 19, 15, 29)
    assert small.sum() == 150


def test_evaluation_items_keep_the_truth() -> None:
    scenes = Scenes(2, 32)
    item = Prepared(scenes, Preprocess(16))[0]
    assert set(item) == set(scenes[0])
    assert item.image.shape == (3, 16, 16)
    assert item.mask.shape == (1, 16, 16)
    assert torch.equal(item.center, scenes[0].center)


class Counted(Scenes):
    reads = 0

    def __getitem__(self, index: int) -> Item:
        Counted.reads += 1
        return super().__getitem__(index)


def test_images_in_memory_are_read_once_and_are_the_same() -> None:
    scenes = Counted(5, 32)
    kept = InMemory(scenes, 16)
    assert Counted.reads == 5
    again = [kept[i] for i in (4, 0, 4)]
    assert Counted.reads == 5
    assert torch.equal(again[0].image, Preprocess(16).resize(scenes[4].image))
    assert torch.equal(again[0].mask, Preprocess(16).mask(scenes[4].mask))
    assert kept.labels == scenes.labels
    again[0].label = -5
    assert kept[4].label == scenes.labels[4]
