"""Features of a folder: right, resumed, bad files named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from foveate.data.folders import BadFiles, DataError
from foveate.models import build
from foveate.models.features import extract_features
from foveate.models.recipe import Recipe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in ("a.png", "b.jpg", "deep/c.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(path)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path / "images"


def weights(tmp_path: Path) -> str:
    from safetensors.torch import save_file

    torch.manual_seed(3)
    save_file(build(Recipe("tiny", ["one"])).state_dict(), tmp_path / "w.safetensors")
    return str(tmp_path / "w.safetensors")


def test_they_are_the_last_feature_map(folder: Path, tmp_path: Path) -> None:
    file = weights(tmp_path)
    written, problems = extract_features(folder, tmp_path / "out", "tiny", 32, file, batch_size=2)
    assert (written, problems) == (3, {})
    model = build(Recipe("tiny", ["one"]), file).eval()
    from foveate.data.decode import read_image
    from foveate.data.transforms import Preprocess

    for name in ("a.png", "deep/c.png"):
        image = Preprocess(32)(read_image(folder / name))[None]
        with torch.no_grad():
            expected = model.stages[:4](image)[0]
        features = load_file((tmp_path / "out" / name).with_suffix(".safetensors"))["x"]
        assert features.dtype == torch.float16
        assert torch.allclose(features.float(), expected, atol=1e-2)
    index = pd.read_parquet(tmp_path / "out" / "features.parquet")
    assert index.to_dict("list") == {
        "image": ["a.png", "b.jpg", "deep/c.png"],
        "file": ["a.safetensors", "b.safetensors", "deep/c.safetensors"],
    }


def test_it_goes_on_where_it_was_interrupted_and_names_bad_files(folder: Path, tmp_path: Path) -> None:
    (folder / "bad.jpg").write_bytes(b"no image at all")
    with pytest.warns(BadFiles, match=r"bad\.jpg is not an image"):
        written, problems = extract_features(folder, tmp_path / "out", "tiny", 32, None)
    assert written == 3
    assert list(problems) == ["bad.jpg"]
    kept = tmp_path / "out" / "b.safetensors"
    before = kept.stat().st_mtime_ns
    (tmp_path / "out" / "a.safetensors").unlink()
    (folder / "bad.jpg").unlink()
    assert extract_features(folder, tmp_path / "out", "tiny", 32, None) == (1, {})
    assert kept.stat().st_mtime_ns == before
    assert extract_features(folder, tmp_path / "out", "tiny", 32, None) == (0, {})


def test_errors_teach(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        extract_features(tmp_path / "nowhere", tmp_path / "out")
    (folder / "a.bmp").write_bytes(b"")
    with pytest.raises(DataError, match="differ in their ending alone"):
        extract_features(folder, tmp_path / "out", "tiny", 32, None)
