import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foveate.data.transforms import InMemory
from foveate.training.data import Deal, Images


@given(count=st.integers(1, 50), world=st.integers(1, 4), batch=st.integers(1, 4), epoch=st.integers(0, 3))
def test_processes_together_see_the_batches_of_one(count: int, world: int, batch: int, epoch: int) -> None:
    alone = [position for _, position, _ in Deal(count, 7, lambda: epoch)]
    assert sorted(alone) == list(range(count))
    shares = [list(Deal(count, 7, lambda: epoch, world, rank)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    for start in range(0, len(shares[0]) - batch + 1, batch):
        together = [p for share in shares for _, p, counts in share[start : start + batch] if counts]
        assert sorted(together) == sorted(alone[start * world : (start + batch) * world])


def test_the_order_follows_seed_and_epoch_alone() -> None:
    def order(seed: int | None, epoch: int) -> list[int]:
        return [position for _, position, _ in Deal(20, seed, lambda: epoch)]

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert order(None, 5) == list(range(20))


@pytest.mark.parametrize("augment", [True, "shift"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_with_any_number_of_workers(workers: int, augment: bool | str) -> None:
    def batches(workers: int) -> list[torch.Tensor]:
        data = Images(size=16, count=20, batch_size=8, augment=augment, workers=workers)
        return [data.on_after_batch_transfer(batch)["image"] for batch in data.train_dataloader()]

    for mine, alone in zip(batches(workers), batches(0), strict=True):
        assert torch.equal(mine, alone)


def test_training_never_sees_a_mask_and_validation_does() -> None:
    data = Images(size=16, count=20, batch_size=8)
    given = next(iter(data.train_dataloader()))
    assert set(given) == {"image", "label", "numbers"}
    assert set(data.on_after_batch_transfer(given)) == {"image", "label"}
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())))
    assert batch["mask"].shape == (8, 1, 16, 16)
    assert batch["mask"].dtype == torch.bool


def test_a_split_by_ratio_follows_its_seed() -> None:
    def labels(seed: int) -> list[int]:
        return Images(size=16, count=30, ratio=0.6, split_seed=seed).val_items.labels

    first = Images(size=16, count=30, ratio=0.6)
    assert len(first.train_items) + len(first.val_items) == 60
    assert labels(0) == labels(0)
    names = [[Images(size=16, count=30, ratio=0.6, split_seed=s).val_items[0].name] for s in range(4)]
    assert len({tuple(n) for n in names}) > 1


def test_images_are_kept_in_memory_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(Images(size=16, count=8).val_items, InMemory)
    assert not isinstance(Images(size=16, count=8, cache=False).val_items, InMemory)
    monkeypatch.setattr("foveate.training.data.MEMORY", 3 * 16**2 * 15)
    assert not isinstance(Images(size=16, count=8).val_items, InMemory)
    assert isinstance(Images(size=16, count=8, cache=True).val_items, InMemory)
