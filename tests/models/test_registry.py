from dataclasses import replace

import pytest
import torch

from foveate import watch
from foveate.attention import PositionwiseAttention
from foveate.groups import P4, P4M
from foveate.models import Entry, Recipe, attaching, build, entry, names, parameter_count, register
from foveate.models.registry import _ENTRIES


@pytest.mark.parametrize("name", names())
def test_every_named_attention_can_be_trained(name: str) -> None:
    model = build(Recipe("tiny", ["cat", "dog"], name))
    with watch(model) as gazes:
        model(torch.rand(2, 3, 64, 64)).sum().backward()
    expected = 5 * name.endswith("-attentive") if entry(name).anew else name not in ("none", "dvib")
    assert len(gazes) == expected  # of attentive networks every convolution looks
    untouched = {n for n, p in model.named_parameters() if p.grad is None}
    assert all(n.endswith((".anchors", ".vote.weight")) for n in untouched)  # which learn by terms of their own


@pytest.mark.parametrize("group", [P4, P4M], ids=lambda group: group.name)
@pytest.mark.parametrize("kind", ["", "-attentive"])
def test_equivariant_counterparts_are_as_large_and_see_a_moved_image_alike(group, kind: str) -> None:
    recipe = Recipe("tiny", ["cat", "dog"], f"equivariant-{group.name}{kind}")
    model, host = build(recipe).eval(), build(replace(recipe, attention="none"))
    assert parameter_count(model) == pytest.approx(parameter_count(host), rel=0.02 if not kind else 0.06)
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        logits = model(torch.cat([group.transform(image, h) for h in range(len(group))]))
    assert (logits - logits[:1]).abs().max() < 1e-5 * logits.abs().max()
    wide = build(replace(recipe, options={"width": "channels"}))
    assert parameter_count(wide) > 3 * parameter_count(model)


def test_a_counterpart_does_not_start_from_weights() -> None:
    with pytest.raises(
        ValueError, match="equivariant-p4 makes the layers of tiny anew, so it cannot start from weights"
    ):
        build(Recipe("tiny", ["cat", "dog"], "equivariant-p4"), weights="tiny.safetensors")


def test_an_attention_takes_part_by_one_registration() -> None:
    try:
        register(Entry("mine", "wide", attaching(PositionwiseAttention, widths=(4,))))
        model = build(Recipe("tiny", ["cat", "dog"], "mine", options={"kernel_size": 1}))
        assert model.stages[3][-1].foveate.look.scores[0].weight.shape == (4, 96, 1, 1)
        with pytest.raises(ValueError, match="registered already"):
            register(entry("mine"))
    finally:
        _ENTRIES.pop("mine", None)
