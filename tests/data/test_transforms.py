import json
import math
import pickle

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from foveate.data import (
    Augmented,
    InMemory,
    Item,
    Prepared,
    Preprocess,
    Scenes,
    ShiftAndMirror,
    training_transform,
)

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


def test_training_changes_images_at_random_and_evaluation_does_not() -> None:
    transform = training_transform(Preprocess(24))
    assert transform(PHOTO).shape == (3, 24, 24)
    assert transform(PHOTO).dtype == torch.float32
    assert not torch.equal(transform(PHOTO), transform(PHOTO))
    plain = training_transform(Preprocess(24), jitter=0, perspective=0)
    assert torch.equal(plain(PHOTO), Preprocess(24)(PHOTO))


def test_jitter_stays_within_its_bounds() -> None:
    """On a grey image, saturation does nothing and brightness × contrast moves one value within known bounds."""
    transform = training_transform(Preprocess(4, (0.0,) * 3, (1.0,) * 3), perspective=0)
    values = torch.stack([transform(torch.full((3, 4, 4), 128, dtype=torch.uint8)) for _ in range(200)]).flatten(1)
    assert (values - values[:, :1]).abs().max() < 1e-2
    assert values.min() >= 0.7 * 128 / 255 - 1e-2
    assert values.max() <= 1.3 * 128 / 255 + 1e-2
    assert values[:, 0].std() > 0.05


def test_perspective_happens_as_often_as_asked() -> None:
    transform = training_transform(Preprocess(16, (0.0,) * 3, (1.0,) * 3), jitter=0, perspective=0.5)
    white = torch.full((3, 16, 16), 255, dtype=torch.uint8)
    bent = sum(bool((transform(white) < 0.5).any()) for _ in range(200))
    assert abs(bent - 100) < 4 * math.sqrt(50)


def test_training_items_have_an_image_and_a_label_and_nothing_that_tells_where_to_look() -> None:
    item = Augmented(Scenes(2, 16), training_transform(Preprocess(16)))[0]
    assert set(item) == {"image", "label"}


def test_evaluation_items_keep_the_truth() -> None:
    scenes = Scenes(2, 32)
    item = Prepared(scenes, Preprocess(16))[0]
    assert set(item) == set(scenes[0])
    assert item.image.shape == (3, 16, 16)
    assert item.mask.shape == (1, 16, 16)
    assert torch.equal(item.center, scenes[0].center)


def test_the_same_seed_epoch_and_index_give_the_same_image_with_any_number_of_workers() -> None:
    def run(workers: int, seed: int, epochs: list[int]) -> list[torch.Tensor]:
        items = Augmented(Scenes(6, 16), training_transform(Preprocess(16)), seed=seed)
        loader = DataLoader(items, 6, num_workers=workers, persistent_workers=workers > 0)
        images = []
        for epoch in epochs:
            items.set_epoch(epoch)
            images.append(next(iter(loader)).image)
        return images

    first, second = run(0, 0, [0, 1])
    assert not torch.equal(first, second)
    assert all(map(torch.equal, run(2, 0, [0, 1]), (first, second)))
    assert torch.equal(run(0, 0, [1])[0], second)  # a resumed run starts in the middle
    assert not torch.equal(run(0, 7, [0])[0], first)


def test_augmenting_leaves_the_global_random_numbers_alone() -> None:
    items = Augmented(Scenes(2, 16), training_transform(Preprocess(16)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    _ = items[0]
    assert torch.equal(torch.rand(2), expected)


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


def test_what_workers_are_sent_survives_the_way() -> None:
    scenes = Scenes(2, size=20)
    items = Augmented(InMemory(scenes, 16), training_transform(Preprocess(16)), seed=1)
    there = pickle.loads(pickle.dumps(items))
    assert torch.equal(there[1].image, items[1].image)


@pytest.mark.parametrize("size", [16, 20])
def test_batches_are_the_items_one_by_one_in_memory_and_out_of_it(size: int) -> None:
    scenes = Scenes(7, size=20)
    prepare = Preprocess(size)
    for transform in (prepare, ShiftAndMirror(prepare), training_transform(prepare)):
        for items in (scenes, InMemory(scenes, size)):
            for ready in (Augmented(items, transform, seed=3), Prepared(items, prepare)):
                batch = ready.batch([5, 0, 6])
                for place, index in enumerate([5, 0, 6]):
                    one = ready[index]
                    assert set(one) == set(batch)
                    assert torch.equal(batch.image[place], one.image)
                    assert batch.label[place] == one.label
                    if "mask" in one:
                        assert torch.equal(batch.mask[place], one.mask)
                        assert batch.name[place] == one.name


def test_shift_and_mirror_moves_each_image_as_its_numbers_say() -> None:
    images = torch.randint(1, 256, (40, 3, 9, 9), dtype=torch.uint8)
    numbers = torch.rand(40, 3)
    moved = ShiftAndMirror(Preprocess(9, (0.0,) * 3, (1 / 255,) * 3), shift=2)(images, numbers).round()
    seen = set()
    for image, (down, right, mirror), result in zip(images, numbers, moved, strict=True):
        row, column = int(down * 5) - 2, int(right * 5) - 2
        expected = torch.zeros(3, 9, 9)
        for i in range(9):
            for j in range(9):
                at = (i + row, (8 - j if mirror >= 0.5 else j) + column)
                if all(0 <= k < 9 for k in at):
                    expected[:, i, j] = image[:, at[0], at[1]]
        assert torch.equal(result, expected)
        seen.add((row, column))
    assert {row for row, _ in seen} == {column for _, column in seen} == {-2, -1, 0, 1, 2}


def test_shift_and_mirror_follows_seed_epoch_and_index() -> None:
    def run(seed: int, epoch: int, indices: list[int]) -> torch.Tensor:
        items = Augmented(InMemory(Scenes(6, 16), 16), ShiftAndMirror(Preprocess(16)), seed=seed)
        items.set_epoch(epoch)
        return items.batch(indices).image

    everything = run(0, 1, [0, 1, 2, 3, 4, 5])
    assert torch.equal(run(0, 1, [4, 2]), everything[[4, 2]])
    assert not torch.equal(run(0, 2, [4, 2]), everything[[4, 2]])
    assert not torch.equal(run(1, 1, [4, 2]), everything[[4, 2]])
