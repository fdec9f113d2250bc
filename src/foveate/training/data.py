"""Images: the Lightning data module over any data set that the data room opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset, Sampler

from foveate import models
from foveate.data import ImageSet, Item
from foveate.data.augmentation import Augmentation, Augmented, PerspectiveAndColors, ShiftAndMirror
from foveate.data.catalogue import open_dataset, open_split
from foveate.data.transforms import InMemory, Prepared, Preprocess

T = TypeVar("T")
MEMORY = 4 * 2**30  # bytes of images that are kept without asking
AUGMENTATIONS: dict[bool | str, type[Augmentation]] = {
    False: Augmentation,
    True: PerspectiveAndColors,
    "photo": PerspectiveAndColors,
    "shift": ShiftAndMirror,
}


class Images(LightningDataModule):
    """Images to train on and to validate on, prepared for a network.

    Args:
        data: the name of a data set ("scenes", "oxford-iiit-pet", "cifar10", …) or an image folder.
        root: where data sets are kept.
        download: fetch a data set that is not there.
        ratio: the share of the training images to train on, the others being for validation, drawn by class; nothing
            means the data set's own validation split, else its test split, or 0.8 where it has none.
        split_seed: which of the random splits.
        size: side of the square that images are resized to.
        batch_size: over all processes together.
        workers: processes that load images.
        augment: "photo", or simply true, is ColorJitter and RandomPerspective (rectangular App. G), for photographs;
            "shift" is a shift by up to 4 pixels and a mirror image, for small ones (CIFAR-10+).
        backbone: the network they are for, whose normalisation is used; filled in from the model.
        seed: what is random in the order and the augmentation follows it, the epoch and the image.
        count, rotate: of scenes, where the data are scenes; see `foveate.data.Scenes`.
        cache: decode and resize each image once, and keep it in memory; nothing means where they take 4 GB or less.
    """

    def __init__(
        self,
        data: str = "scenes",
        root: str | None = None,
        download: bool = False,
        ratio: float | None = None,
        split_seed: int = 0,
        size: int = 64,
        batch_size: int = 32,
        workers: int = 0,
        augment: bool | Literal["photo", "shift"] = False,
        backbone: str = "tiny",
        seed: int = 0,
        count: int | None = None,
        rotate: float | None = None,
        cache: bool | None = None,
    ) -> None:
        super().__init__()
        self.batch_size, self.workers, self.seed = batch_size, workers, seed
        kind = models.backbone(backbone)
        self.preprocess = Preprocess(size, kind.mean, kind.std)
        given = {"size": size, "count": count, "rotate": rotate} if data == "scenes" else {}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        training, validation = open_split(data, ratio, split_seed, root=root, download=download, masks=True, **options)
        self._test = partial(open_dataset, data, "test", root=root, **options) if ratio is None else None
        self.class_names = list(training.classes)
        fits = 3 * size**2 * (len(training) + len(validation)) <= MEMORY
        keep = partial(InMemory, size=size) if cache or (cache is None and fits) else _as_it_is
        self.val_items = keep(validation)
        self.augment = AUGMENTATIONS[augment](self.preprocess)
        self.train_items = Augmented(keep(training), self.augment, seed)

    def train_dataloader(self) -> DataLoader[Item]:
        """Batches of `image` and `label`, shuffled, and of the `numbers` that say what will happen to the images."""
        return self._loader(self.train_items, shuffle=True)

    def on_after_batch_transfer(self, batch: Item, dataloader_idx: int = 0) -> Item:
        """A batch with its images augmented, on the device that they are trained on."""
        if "numbers" not in batch:
            return batch
        return Item(image=self.augment(batch["image"], batch["numbers"]), label=batch["label"])

    def val_dataloader(self) -> DataLoader[Item]:
        """Batches with all that is known of the images, masks too; `counts` is false for what fills a share up."""
        return self._loader(Prepared(self.val_items, self.preprocess), shuffle=False)

    def test_items(self) -> ImageSet:
        """The test part, which no training sees; the validation part where the data set has no third one."""
        return self.val_items if self._test is None else self._test()

    def _loader(self, items: ImageSet, shuffle: bool) -> DataLoader[Item]:
        trainer = self.trainer
        world, rank = (trainer.world_size, trainer.global_rank) if trainer else (1, 0)
        if self.batch_size % world:
            raise ValueError(f"a batch of {self.batch_size} images cannot be shared by {world} processes")
        epoch = (lambda: trainer.current_epoch) if trainer else (lambda: 0)
        return DataLoader(
            Dealt(items),
            self.batch_size // world,
            sampler=Deal(len(items), self.seed if shuffle else None, epoch, world, rank),
            collate_fn=_as_it_is,  # `Dealt` gives whole batches
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),  # so that the next batch travels while this one is computed
            persistent_workers=False,
            drop_last=shuffle and len(items) >= self.batch_size,
        )


class Dealt(Dataset[Item]):
    """Batches of items at the indices that `Deal` deals: (epoch, position, counts)."""

    def __init__(self, items: ImageSet) -> None:
        self.items = items

    def __getitems__(self, indices: Sequence[tuple[int, int, bool]]) -> Item:
        """What a DataLoader asks for: a batch at once."""
        epochs, positions, counts = zip(*indices, strict=True)
        if isinstance(self.items, Augmented):
            self.items.set_epoch(epochs[0])
            return self.items.untouched(list(positions))
        return self.items.batch(list(positions)).but(counts=torch.tensor(counts))


class Deal(Sampler[tuple[int, int, bool]]):
    """Deals positions to processes like cards, so that all of them together see the batches that one alone would see.

    Args:
        count: how many items there are.
        seed: of the shuffling, which also follows the epoch; None keeps their order.
        epoch: tells which epoch it is.
        world: how many processes.
        rank: which of them.
    """

    def __init__(self, count: int, seed: int | None, epoch: Callable[[], int], world: int = 1, rank: int = 0) -> None:
        self.count, self.seed, self.epoch, self.world, self.rank = count, seed, epoch, world, rank

    def __len__(self) -> int:
        return -(-self.count // self.world)

    def __iter__(self) -> Iterator[tuple[int, int, bool]]:
        epoch = self.epoch()
        order = list(range(self.count))
        if self.seed is not None:
            generator = torch.Generator().manual_seed(hash((self.seed, epoch)) % 2**63)
            order = torch.randperm(self.count, generator=generator).tolist()
        for place in range(self.rank, len(self) * self.world, self.world):
            yield epoch, order[place % self.count], place < self.count


def _as_it_is(items: T) -> T:
    return items
