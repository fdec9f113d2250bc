import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
import torch

from foveate import BottleneckHead, models
from foveate.data import Part, Preprocess, Scenes
from foveate.training.runs import RunsError
from foveate.training.table import RowRun, curves, error, table

ROW = """
model: {backbone: tiny, attention: ATTENTION, lr: 2.0e-3, backbone_options: {widths: [4, 4, 4, 4, 4]}}
data: {data: scenes, size: 16, count: 24, batch_size: 8}
trainer: {max_epochs: 2, accelerator: cpu}
"""


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "paper.csv").write_text("row,error,deviation,parameters\nplain,2.048,0.045,24.61K\n")
    for name, attention in (("plain", "none"), ("attended", "positionwise")):
        (folder / f"{name}.yaml").write_text(ROW.replace("ATTENTION", attention))
    return [folder / "plain.yaml", folder / "attended.yaml"]


@pytest.fixture(scope="module")
def whole(configs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    table(configs, [0, 1], out, command="the command")
    return out


def test_a_row_has_mean_and_deviation_of_its_seeds_beside_the_papers(whole: Path) -> None:
    rows = pd.read_csv(whole / "table.csv")
    assert list(rows["row"]) == ["plain", "attended"]
    for row in rows.to_dict("records"):
        results = [json.loads((whole / f"runs/{row['row']}-seed{s}/result.json").read_text()) for s in (0, 1)]
        errors = torch.tensor([result["error"] for result in results], dtype=torch.float64)
        assert row["error"] == pytest.approx(errors.mean().item())
        assert row["error_std"] == pytest.approx(errors.std().item())
        assert row["epochs"] == 2
    page = (whole / "table.md").read_text()
    assert "2.048 ± 0.045" in page
    assert "24.61K" in page
    assert "the command" in page
    assert page.count("\n| ") == 2


def test_curves_are_running_means_of_errors_without_the_worst_beginning(
    configs: list[Path], tmp_path: Path, whole: Path
) -> None:
    assert (whole / "curves.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "history.csv").write_text(
        "epoch,val_accuracy\n" + "\n".join(f"{epoch},{epoch / 40}" for epoch in range(40))
    )
    drawn = curves([RowRun(configs[0], 3, tmp_path)])["plain"][3]
    assert list(drawn) == list(range(5, 41))
    assert drawn[5] == pytest.approx(100 * (1 - (4 + 3) / 2 / 40))
    assert drawn[40] == pytest.approx(100 * (1 - (39 + 38) / 2 / 40))


def test_the_error_is_counted_image_by_image(whole: Path) -> None:
    network = models.load(whole / "runs/plain-seed0/network.safetensors")
    scenes = Scenes(24, size=16, seed=1)  # the test part
    items = [scenes[index] for index in range(24)]
    wrong = [int(network(network.preprocess(item.image)[None]).argmax()) != item.label for item in items]
    result = json.loads((whole / "runs/plain-seed0/result.json").read_text())
    assert result["error"] == pytest.approx(100 * sum(wrong) / 24)
    assert result["parameters"] == models.parameter_count(network)
    assert error(network, scenes, Preprocess(16)) == pytest.approx(result["error"])


def test_resuming_keeps_what_is_there_and_adds_rows_and_seeds(configs, whole: Path, tmp_path: Path) -> None:
    table(configs[:1], [0], tmp_path)
    before = (tmp_path / "runs/plain-seed0/network.safetensors").stat().st_mtime_ns
    with pytest.raises(RunsError, match="--resume"):
        table(configs, [0, 1], tmp_path)
    rows = table(configs, [0, 1], tmp_path, resume=True)
    assert (tmp_path / "runs/plain-seed0/network.safetensors").stat().st_mtime_ns == before
    assert rows["error"].tolist() == pytest.approx(pd.read_csv(whole / "table.csv")["error"].tolist())
    with pytest.raises(RunsError, match="other settings: changes"):
        table(configs, [0], tmp_path, resume=True, changes=["trainer.max_epochs=1"])


def test_rows_with_one_name_are_refused(configs, tmp_path: Path) -> None:
    with pytest.raises(RunsError, match="a name of its own"):
        table([configs[0], configs[0]], [0], tmp_path)


def test_the_command_line_changes_a_setting_of_every_row(configs, tmp_path: Path, capsys) -> None:
    from foveate.cli import run

    changes = ["--set", "trainer.max_epochs=1", "--set", "data.ratio=0.5", "--set", "data.split_seed={seed}"]
    words = ["table", str(configs[0]), "--out", str(tmp_path), "--seeds", "3", *changes]
    assert run(words) == 0
    page = capsys.readouterr().out
    assert "| 1 | 1 |" in page
    assert f"`{shlex.join(['foveate', *words])}`" in page
    assert (tmp_path / "runs/plain-seed3/network.safetensors").is_file()
    assert "split_seed: 3" in (tmp_path / "runs/plain-seed3/config.yaml").read_text()


def test_the_paper_is_read_beside_each_row_and_an_epoch_that_is_cut_short_counts_in_part(
    configs, tmp_path: Path
) -> None:
    other = tmp_path / "plus" / "attended.yaml"
    other.parent.mkdir()
    other.write_text(configs[1].read_text())
    (other.parent / "paper.csv").write_text("row,error,deviation,parameters\nplain,9.9,,1K\nattended,8.8,,2K\n")
    cut = ["trainer.max_steps=4"]  # of 3 a epoch; max_time stops in the same way
    rows = table([configs[0], other], [0], tmp_path / "out", changes=cut)
    assert rows["paper_error"].tolist() == [2.048, 8.8]
    assert rows["epochs"].tolist() == pytest.approx([4 / 3, 4 / 3])
    assert "| 2K | 1.3 | 1 |" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.slow
def test_runs_side_by_side_end_in_the_numbers_of_runs_in_turn(configs, whole: Path, tmp_path: Path) -> None:
    rows = table(configs, [0, 1], tmp_path, jobs=2)
    assert rows["error"].tolist() == pytest.approx(pd.read_csv(whole / "table.csv")["error"].tolist())


def test_errors_of_networks_that_draw_are_counted_over_draws() -> None:
    class Timid(torch.nn.Module):
        """By the mean of its code it is always right by a hair; by its draws, which are all noise, hardly ever."""

        def __init__(self) -> None:
            super().__init__()
            self.head = BottleneckHead(192, latent=3, classes=3)
            for parameter in self.head.parameters():
                parameter.requires_grad_(False).zero_()
            self.head.encode.numbers.bias[3:] = 20.0  # deviations
            self.head.decode[0].weight.copy_(torch.eye(3))
            self.head.decode[2].weight[1, 0] = self.head.decode[2].weight[2, 1] = 1.0
            self.head.decode[2].bias[0] = 1e-3

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.flatten(1))

    scenes = Scenes(30, size=8, seed=1)
    kept = [index for index, label in enumerate(scenes.labels) if label == 0]
    items, preprocess = Part(scenes, kept), Preprocess(8)
    assert int(Timid().eval()(torch.zeros(1, 3, 8, 8)).argmax()) == 0
    assert error(Timid(), items, preprocess) == 100.0
    assert error(Timid(), items, preprocess) == error(Timid(), items, preprocess)
