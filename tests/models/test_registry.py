import pytest
import torch

from foveate import watch
from foveate.attention import PositionwiseAttention
from foveate.models import Entry, Recipe, attaching, build, entry, names, register
from foveate.models.registry import _ENTRIES


@pytest.mark.parametrize("name", names())
def test_every_named_attention_can_be_trained(name: str) -> None:
    model = build(Recipe("tiny", ["cat", "dog"], name))
    with watch(model) as gazes:
        model(torch.rand(2, 3, 64, 64)).sum().backward()
    assert len(gazes) == (name not in ("none", "dvib"))
    untouched = {n for n, p in model.named_parameters() if p.grad is None}
    assert all(n.endswith((".anchors", ".vote.weight")) for n in untouched)  # which learn by terms of their own


def test_an_attention_takes_part_by_one_registration() -> None:
    try:
        register(Entry("mine", "wide", attaching(PositionwiseAttention, widths=(4,))))
        model = build(Recipe("tiny", ["cat", "dog"], "mine", options={"kernel_size": 1}))
        assert model.stages[3][-1].foveate.look.scores[0].weight.shape == (4, 96, 1, 1)
        with pytest.raises(ValueError, match="registered already"):
            register(entry("mine"))
    finally:
        _ENTRIES.pop("mine", None)
