"""The narrow run of the information bottleneck: it trains, resumes, and its page says what its numbers say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from foveate.data import ImageSet, Item, pack

SCRIPT = Path(__file__).parents[2] / "experiments" / "bottleneck" / "narrow.py"


class Halves(ImageSet):
    """Images that are bright above or below, and noise."""

    classes = ("above", "below")

    def __init__(self, count: int, seed: int) -> None:
        self.pixels = torch.randint(120, (count, 3, 32, 32), generator=torch.Generator().manual_seed(seed))
        for index, label in enumerate(self.labels):
            self.pixels[index, :, 16 * label : 16 * (label + 1)] += 120

    @property
    def labels(self) -> list[int]:
        return [index % 2 for index in range(len(self.pixels))]

    def __getitem__(self, index: int) -> Item:
        return Item(image=self.pixels[index].to(torch.uint8), label=index % 2)


def run(folder: Path, *options: str, networks: tuple[str, ...] = ("vgg_aib_qt",)) -> None:
    sys.path.insert(0, str(SCRIPT.parent))  # as where a script is run
    spec = importlib.util.spec_from_file_location("narrow", SCRIPT)
    narrow = importlib.util.module_from_spec(spec)
    sys.modules["narrow"] = narrow
    spec.loader.exec_module(narrow)
    sys.path.remove(str(SCRIPT.parent))
    given = [
        "--data",
        str(folder / "halves.safetensors"),
        "--out",
        str(folder / "runs"),
        "--page",
        str(folder / "page.md"),
    ]
    small = ["--train", "128", "--test", "20", "--width", "0.0625", "--epochs", "2", "--seeds", "0", "--no-sweep"]
    narrow.main([*given, *small, "--networks", *networks, *options])


def test_it_trains_resumes_and_writes_its_page(tmp_path) -> None:
    pytest.importorskip("torchmetrics")
    pack(Halves(128, 0), Halves(20, 1), tmp_path / "halves.safetensors")
    run(tmp_path)
    (file,) = (tmp_path / "runs").glob("vgg*.json")
    numbers = json.loads(file.read_text())
    assert [epoch["epoch"] for epoch in numbers["history"]] == [0, 1]
    assert len(numbers["usage"]) == 20
    assert set(numbers["scores"]) == {"attention"}
    assert len(numbers["scores"]["attention"]) == 10

    numbers["error"], numbers["scores"]["attention"]["r > 4"]["curve"][90] = 0.125, 0.375
    file.write_text(json.dumps(numbers))
    run(tmp_path)
    page = (tmp_path / "page.md").read_text()
    assert "| VGG-aib-qt | 12.50 |" in page  # what the file says, so nothing was trained again
    table = page[page.index("Cosine ≥ 0.9:") :].splitlines()
    row = next(line for line in table if line.startswith("| VGG-aib-qt"))
    assert row.split(" | ")[-2] == "37.5"

    theirs = {**numbers, "run": {**numbers["run"], "network": "vgg_att3"}, "usage": []}
    gazes = ("attention.0", "attention.1", "attention.2")
    theirs["relative_deviation"] = dict.fromkeys(gazes, 0.5)
    worse = {
        m: {**of, "curve": [0.0] * 101, "centred": [1.0] * 101} for m, of in numbers["scores"]["attention"].items()
    }
    theirs["scores"] = dict.fromkeys(gazes, worse)
    (tmp_path / "runs" / file.name.replace("aib_qt", "att3")).write_text(json.dumps(theirs))
    run(tmp_path, "--no-train", networks=("vgg_att3", "vgg_aib_qt", "vgg_aib"))  # of the third there is no run
    page = (tmp_path / "page.md").read_text()
    (verdict,) = (line for line in page.splitlines() if line.startswith("| against VGG-att3, block 5"))
    better = sum(of["curve"][80] > 0 for of in numbers["scores"]["attention"].values())
    lead = 10 * sum(of["curve"][80] for of in numbers["scores"]["attention"].values())
    assert verdict.split(" | ")[1] == f"{better}, {lead:+.0f}"
    assert verdict.split(" | ")[5].startswith("0, ")

    with pytest.raises(SystemExit, match="other settings"):
        run(tmp_path, "--epochs", "3")
