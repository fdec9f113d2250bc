"""Shipping: a file of a run becomes a network with a name, which says what the run found out."""

import json
import runpy
from pathlib import Path

import pytest
import torch

from foveate import models
from foveate.data import Preprocess

main = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "ship.py"))["main"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recipe = models.Recipe("p4cnn", tuple("0123456789"), backbone_options={"width": 4})
    path = tmp_path / "run" / "network.safetensors"
    models.save(models.build(recipe), recipe, Preprocess(28, (0.1,), (0.3,)), path, {"epoch": 99})
    (path.parent / "result.json").write_text(json.dumps({"error": 2.0, "error_best": 1.5, "epochs": 100}))
    return path


@pytest.mark.parametrize("half", [False, True])
def test_a_shipped_network_is_that_of_the_run(run: Path, tmp_path: Path, half: bool) -> None:
    words = [str(run), "rotmnist-mine", "--folder", str(tmp_path), *(["--half"] if half else [])]
    assert main(words) == 0
    shipped, own = models.load(tmp_path / "rotmnist-mine.safetensors"), models.load(run)
    images = torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        difference = (shipped(images) - own(images)).abs().max()
    assert (difference == 0) != half
    assert difference < 0.05
    assert shipped.notes == {"epoch": 99, "error": 2.0, "epochs": 100}
    assert shipped.preprocess == own.preprocess


def test_the_best_network_has_its_own_error_in_its_notes(run: Path, tmp_path: Path) -> None:
    best = run.rename(run.with_name("best.safetensors"))
    assert main([str(best), "mine", "--folder", str(tmp_path)]) == 0
    assert models.load(tmp_path / "mine.safetensors").notes == {"epoch": 99, "error": 1.5, "epochs": 100}


def test_what_is_too_large_or_has_no_proper_name_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    large = models.Recipe("p4cnn", tuple("0123456789"), backbone_options={"width": 24})
    models.save(models.build(large), large, Preprocess(28, (0.1,), (0.3,)), run)
    for words, said in (([str(run), "large"], "400,000 are the most"), ([str(run), "../x"], "letters and digits")):
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--folder", str(tmp_path)])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
