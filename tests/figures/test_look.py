from pathlib import Path

import pytest
import torch

from foveate import models
from foveate.data.folders import DataError
from foveate.data.transforms import Preprocess
from foveate.figures.look import load_onlookers


def network(folder: Path, name: str, **options: str) -> Path:
    recipe = models.Recipe("p4cnn", "0123456789", backbone_options=options)
    path = folder / f"{name}.safetensors"
    models.save(models.build(recipe), recipe, Preprocess(28, (0.1,), (0.3,)), path)
    return path


def test_maps_of_a_network_without_padding_lie_where_they_look(tmp_path: Path) -> None:
    (onlooker,) = load_onlookers([network(tmp_path, "a", attention="input")])
    images = torch.rand(2, 3, 40, 40)
    captions, gazes = onlooker.see(list(images))
    assert len(captions) == 2
    for name, reach in (("c1", 28), ("c2", 26), ("c3", 24), ("c5", 16)):  # it looks at the input of each layer
        map = gazes[f"p4cnn input, {name}"].render((56, 56))[:, 0]
        lit = map.amax((0, 1)) > 1e-6
        assert lit.sum() == 2 * reach
        assert torch.equal(lit, lit.flip(0))


def test_networks_whose_attention_is_their_own_are_told_apart(tmp_path: Path) -> None:
    paths = [network(tmp_path, "a", attention="input"), network(tmp_path, "b")]
    attentive, plain = load_onlookers(paths)
    assert (attentive.name, plain.name) == ("p4cnn input", "p4cnn")
    same = load_onlookers([paths[0], paths[0]])
    assert [onlooker.name for onlooker in same] == [str(paths[0])] * 2
    with pytest.raises(DataError, match="'p4cnn' has no attention"):
        plain.see([torch.rand(3, 40, 40)])
