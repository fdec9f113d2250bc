import json
import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import foveate as fv
from foveate.data import Scenes
from foveate.data.decode import to_tensor
from foveate.data.transforms import Preprocess
from foveate.models import LoadError, Recipe, build, parameter_count, save
from foveate.models.files import PACKAGED

RECIPE = Recipe("tiny", ["cat", "dog"], "rectangular", options={"widths": [8, 8, 8], "shape": "ellipse"})
PREPROCESS = Preprocess(32, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2))


@pytest.fixture
def saved(tmp_path):
    model = build(RECIPE).eval()
    save(model, RECIPE, PREPROCESS, tmp_path / "model.safetensors", {"epoch": 3})
    return model, tmp_path / "model.safetensors"


def test_a_saved_network_comes_back_whole(saved) -> None:
    model, path = saved
    loaded = fv.load(path)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(images), model(images))
    assert not loaded.training
    assert loaded.class_names == ["cat", "dog"]
    assert loaded.preprocess == PREPROCESS
    assert loaded.notes == {"epoch": 3}
    assert loaded.recipe == RECIPE
    with fv.watch(loaded) as gazes:
        loaded(loaded.preprocess(torch.randint(256, (3, 50, 40), dtype=torch.uint8))[None])
    assert gazes["stages.3"].shape == "ellipse"


def test_saving_leaves_nothing_beside_the_file(saved) -> None:
    _, path = saved
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_nothing_in_a_strangers_file_is_executed(tmp_path) -> None:
    (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(LoadError, match="not a safetensors file"):
        fv.load(tmp_path / "bomb.safetensors")


def _with(path, tmp_path, **changes):
    with safe_open(path, "pt") as file:
        header = {**file.metadata(), **changes}
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(weights, tmp_path / "changed.safetensors", header)
    return tmp_path / "changed.safetensors"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"foveate": "99"}, "format"),
        ({"recipe": "{"}, "does not describe"),
        ({"recipe": json.dumps({**RECIPE.to_dict(), "backbone": "hf-hub:someone/something"})}, "no backbone is named"),
        ({"recipe": json.dumps({**RECIPE.to_dict(), "attention": "os.system"})}, "no attention is named"),
        ({"recipe": json.dumps({**RECIPE.to_dict(), "surprise": 1})}, "surprise"),
        ({"recipe": json.dumps({**RECIPE.to_dict(), "options": {"widths": [4, 4, 4]}})}, "does not describe"),
        ({"preprocess": "{}"}, "preprocessing"),
    ],
)
def test_a_file_that_does_not_fit_says_why(saved, tmp_path, changes, said) -> None:
    with pytest.raises(LoadError, match=said):
        fv.load(_with(saved[1], tmp_path, **changes))


def test_missing_and_cut_files_say_so(saved, tmp_path) -> None:
    with pytest.raises(LoadError, match="no file"):
        fv.load(tmp_path / "nothing.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(saved[1].read_bytes()[:-100])
    with pytest.raises(LoadError, match="cut short"):
        fv.load(cut)


def test_the_packaged_network_knows_the_scenes_and_sees_their_objects() -> None:
    model = fv.load("scenes-rectangular")
    scenes = [Scenes(200, seed=1)[index] for index in range(200)]
    with torch.no_grad(), fv.watch(model) as gazes:
        logits = model(torch.stack([model.preprocess(scene.image) for scene in scenes]))
    labels = torch.tensor([scene.label for scene in scenes])
    assert (logits.argmax(1) == labels).float().mean() > 0.7
    centers = torch.stack([scene.center for scene in scenes])
    (gaze,) = gazes.values()
    assert (gaze.center - centers).norm(dim=1).median() < 0.15  # at random it is about 0.35
    with pytest.raises(LoadError, match=r"there are: .*scenes-rectangular"):
        fv.load("scenes-rectangle")


def rotated_digits(prepare: Preprocess) -> tuple[torch.Tensor, torch.Tensor]:
    """A hundred digits of rot-MNIST's test part, ten in a row, prepared; and what they are."""
    sheet = to_tensor(Image.open(Path(__file__).with_name("rotated-digits.png")))
    digits = sheet.unfold(1, 28, 28).unfold(2, 28, 28).permute(1, 2, 0, 3, 4).flatten(0, 1)
    return prepare(digits), torch.arange(10).repeat_interleave(10)


@pytest.mark.parametrize(
    ("name", "parameters"), [("rotmnist-p4", 24_610), ("rotmnist-alpha-f-p4", 29_462), ("rotmnist-alpha-p4", 73_130)]
)
def test_the_packaged_digit_networks_are_small_and_read_digits_at_any_angle(name: str, parameters: int) -> None:
    assert (PACKAGED / f"{name}.safetensors").stat().st_size <= 400_000
    model = fv.load(name)
    assert parameter_count(model) == parameters
    images, labels = rotated_digits(model.preprocess)
    with torch.no_grad():
        logits, turned = model(images), model(images.rot90(1, (2, 3)))
    assert (logits.argmax(1) == labels).float().mean() >= 0.93
    assert (turned - logits).abs().max() < 1e-3 * logits.abs().max()
    with fv.watch(model) as gazes:
        model(images[:2])
    assert len(gazes) == (0 if name == "rotmnist-p4" else 7)
