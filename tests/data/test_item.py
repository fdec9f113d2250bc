import pickle

import pytest
import torch
from torch.utils.data import default_collate

from foveate.data import Item


def test_keys_are_attributes() -> None:
    item = Item(label=2)
    item.name = "cat"
    assert item == {"label": 2, "name": "cat"}
    assert item.but(label=3).label == 3
    assert item.label == 2
    with pytest.raises(AttributeError, match="no 'mask'; it has label, name"):
        _ = item.mask


def test_a_batch_of_items_is_an_item() -> None:
    batch = default_collate([Item(image=torch.zeros(3, 4, 4), label=i, name=f"n{i}") for i in range(2)])
    assert isinstance(batch, Item)
    assert batch.image.shape == (2, 3, 4, 4)
    assert batch.label.tolist() == [0, 1]
    assert batch.name == ["n0", "n1"]


def test_items_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(Item(label=1))) == Item(label=1)
