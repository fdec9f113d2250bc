import math
import pickle

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from foveate.data import (
    Augmentation,
    Augmented,
    InMemory,
    PerspectiveAndColors,
    Prepared,
    Preprocess,
    Scenes,
    ShiftAndMirror,
)
from foveate.data.augmentation import ORDERS, color_jitter, see_from

PHOTOS = torch.randint(0, 256, (200, 3, 30, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
AS_IT_IS = Preprocess(24, (0.0,) * 3, (1.0,) * 3)
AUGMENTATIONS = (Augmentation, ShiftAndMirror, PerspectiveAndColors)


@pytest.mark.parametrize("size", [(24, 24), (20, 33)])
def test_perspective_is_that_of_torchvision(size: tuple[int, int]) -> None:
    height, width = size
    images = torch.rand(6, 3, *size, generator=torch.Generator().manual_seed(1))
    corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    moved = torch.randint(-5, 6, (6, 4, 2), generator=torch.Generator().manual_seed(2))
    moved[0] = 0
    bent = see_from(images, moved)
    for image, steps, result in zip(images, moved.tolist(), bent, strict=True):
        ends = [[x + right, y + down] for (x, y), (right, down) in zip(corners, steps, strict=True)]
        assert (result - functional.perspective(image, corners, ends)).abs().max() < 1e-3
    assert (bent[0] - images[0]).abs().max() < 1e-5


@pytest.mark.parametrize("order", range(len(ORDERS)))
def test_jitter_is_that_of_torchvision_in_every_order(order: int) -> None:
    images = torch.rand(4, 3, 5, 7, generator=torch.Generator().manual_seed(order))
    factors = torch.tensor([[0.7, 1.3, 1.2], [1.3, 0.8, 0.7], [1.0, 1.0, 1.0], [1.25, 0.7, 1.3]])
    steps = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
    result = color_jitter(images, factors, torch.full((4,), order))
    for image, given, jittered in zip(images, factors.tolist(), result, strict=True):
        for which in ORDERS[order]:
            image = steps[which](image, given[which])
        assert (jittered - image).abs().max() < 1e-3


def test_training_on_photographs_changes_them_at_random_and_may_be_told_not_to() -> None:
    augment, numbers = PerspectiveAndColors(AS_IT_IS), torch.rand(200, PerspectiveAndColors.draws)
    images = augment(PHOTOS, numbers)
    assert (images.shape, images.dtype) == ((200, 3, 24, 24), torch.float32)
    assert not torch.equal(augment(PHOTOS, torch.rand(200, PerspectiveAndColors.draws)), images)
    assert torch.equal(augment(PHOTOS[7:9], numbers[7:9]), images[7:9])
    assert torch.equal(PerspectiveAndColors(AS_IT_IS, jitter=0, perspective=0)(PHOTOS, numbers), AS_IT_IS(PHOTOS))


def test_jitter_stays_within_its_bounds() -> None:
    """On a grey image, saturation does nothing and brightness × contrast moves one value within known bounds."""
    grey, numbers = torch.full((200, 3, 24, 24), 128, dtype=torch.uint8), torch.rand(200, PerspectiveAndColors.draws)
    values = PerspectiveAndColors(AS_IT_IS, perspective=0)(grey, numbers).flatten(1)
    assert (values - values[:, :1]).abs().max() < 1e-2
    assert values.min() >= 0.7 * 128 / 255 - 1e-2
    assert values.max() <= 1.3 * 128 / 255 + 1e-2
    assert values[:, 0].std() > 0.05


def test_perspective_happens_as_often_as_asked_and_moves_corners_inwards_as_far_as_asked() -> None:
    white, numbers = torch.full((200, 3, 24, 24), 255, dtype=torch.uint8), torch.rand(200, PerspectiveAndColors.draws)
    augment = PerspectiveAndColors(AS_IT_IS, jitter=0, perspective=0.5, distortion=0.5)
    bent = (augment(white, numbers) < 0.5).flatten(1).any(1).sum()
    assert abs(bent - 100) < 4 * math.sqrt(50)
    steps = augment.corners(torch.rand(2000, 8), 24)
    assert steps.abs().unique().tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (steps * torch.tensor([[1, 1], [-1, 1], [-1, -1], [1, -1]]) >= 0).all()


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


def test_training_items_have_an_image_and_a_label_and_nothing_that_tells_where_to_look() -> None:
    items = Augmented(Scenes(2, 16), PerspectiveAndColors(Preprocess(16)))
    assert set(items[0]) == set(items.batch([0, 1])) == {"image", "label"}


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("size", [16, 20])
def test_batches_are_the_items_one_by_one_in_memory_and_out_of_it(size: int, augmentation: type[Augmentation]) -> None:
    scenes, prepare = Scenes(7, size=20), Preprocess(size)
    for items in (scenes, InMemory(scenes, size)):
        for ready in (Augmented(items, augmentation(prepare), seed=3), Prepared(items, prepare)):
            batch = ready.batch([5, 0, 6])
            for place, index in enumerate([5, 0, 6]):
                one = ready[index]
                assert set(one) == set(batch)
                assert torch.allclose(batch.image[place], one.image, atol=1e-5)
                assert batch.label[place] == one.label
                if "mask" in one:
                    assert torch.equal(batch.mask[place], one.mask)
                    assert batch.name[place] == one.name


@pytest.mark.parametrize("augmentation", AUGMENTATIONS[1:])
def test_what_happens_follows_seed_epoch_and_index_with_any_number_of_workers(augmentation: type[Augmentation]) -> None:
    def run(workers: int, seed: int, epochs: list[int]) -> list[torch.Tensor]:
        items = Augmented(Scenes(6, 16), augmentation(Preprocess(16)), seed=seed)
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
    items = Augmented(Scenes(2, 16), PerspectiveAndColors(Preprocess(16)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    _ = items[0]
    assert torch.equal(torch.rand(2), expected)


def test_what_workers_are_sent_survives_the_way() -> None:
    scenes = Scenes(2, size=20)
    items = Augmented(InMemory(scenes, 16), PerspectiveAndColors(Preprocess(16)), seed=1)
    there = pickle.loads(pickle.dumps(items))
    assert torch.equal(there[1].image, items[1].image)


def test_an_index_beyond_the_end_is_an_error() -> None:
    with pytest.raises(IndexError):
        Augmented(Scenes(2, 16), Augmentation(Preprocess(16)))[2]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", [Augmentation, ShiftAndMirror, PerspectiveAndColors])
@pytest.mark.parametrize("mean", [(0.5,), (0.5, 0.4, 0.3)])
def test_a_gpu_is_not_waited_for(kind: type[Augmentation], mean: tuple[float, ...]) -> None:
    augment = kind(Preprocess(16, mean, mean))
    images, numbers = torch.randint(256, (5, 3, 16, 16), dtype=torch.uint8), torch.rand(5, kind.draws)
    expected = augment(images, numbers)
    given = images.cuda(), numbers.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        changed = augment(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.allclose(changed.cpu(), expected, atol=1e-4)
