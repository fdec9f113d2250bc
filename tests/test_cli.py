import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from foveate import models, watch
from foveate.cli import run
from foveate.data import Scenes
from foveate.data.transforms import Preprocess
from foveate.training.data import Images
from foveate.training.module import Classifier
from foveate.training.train import OPTIONS, Command

SMALL = ["--size", "32", "--count", "32", "--batch-size", "16", "--attention", "rectangular"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def foveate(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foveate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    recipe = models.Recipe("tiny", Scenes.classes, "rectangular", options={"widths": [8, 8, 8]})
    path = tmp_path / "network.safetensors"
    models.save(models.build(recipe), recipe, Preprocess(32), path)
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for index, scene in enumerate(Scenes(10, 40)[i] for i in range(10)):
        pixels = (scene.image * 255).byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"scene {index}.png")
    return folder


def test_usage_errors_have_status_2_and_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["compare", "--attention", "rectangulr"], "did you mean 'rectangular'"),
        (["compare", "--epochs", "many"], "invalid int value"),
        (["compare", "--epochs", "0"], "epochs must be positive"),
        (["compare", "--seeds", "a,b"], "invalid list of int value"),
        (["comparee"], "invalid choice"),
        (["compare", "--backbone", "resnet18x"], "resnet18d"),
        ([], "COMMAND"),
        (["look", "x.png"], "--checkpoint"),
    ):
        try:
            status = run(words)
        except SystemExit as exit:
            status = exit.code
        assert status == 2, words
        assert said in capsys.readouterr().err, words


def test_failures_have_status_1_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["compare", "--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "a")], "does not exist"),
        (["compare", "--data", "cifar10", "--root", str(tmp_path), "--out", str(tmp_path / "c")], "cifar10"),
        (["look", str(tmp_path), "--checkpoint", str(tmp_path / "no.safetensors")], "there is no file"),
    ):
        assert run(words) == 1, words
        error = capsys.readouterr().err
        assert said in error, words
        assert "Traceback" not in error


def test_a_folder_with_a_broken_file_in_it_is_compared_and_the_file_named(tmp_path: Path) -> None:
    for index in range(16):
        folder = tmp_path / "data" / ("cat", "dog")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (Scenes(16, 40)[index].image * 255).byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"{index}.png")
    whole = (tmp_path / "data/cat/0.png").read_bytes()
    (tmp_path / "data/cat/cut short.png").write_bytes(whole[: len(whole) // 2])
    words = ["--size", "32", "--batch-size", "4", "--epochs", "1", "--attention", "none,positionwise"]
    done = foveate("compare", "--data", tmp_path / "data", "--out", tmp_path / "out", *words)
    assert done.returncode == 0, done.stderr
    assert "foveate: warning: " in done.stderr
    assert "cut short.png" in done.stderr
    assert (tmp_path / "out/table.csv").exists()


def test_help_is_quick_and_names_every_attention() -> None:
    shown = foveate("compare", "--help")
    assert shown.returncode == 0
    text = "".join(shown.stdout.split())  # long lists are wrapped, at hyphens too
    for name in models.names():
        assert name in text


def test_ctrl_c_is_130_and_resume_goes_on(tmp_path: Path) -> None:
    words = ["compare", *SMALL, "--out", str(tmp_path), "--epochs", "200"]
    process = subprocess.Popen(
        [sys.executable, "-m", "foveate", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background are born deaf to it
    )
    checkpoint = tmp_path / "runs/rectangular-seed0/last.ckpt"
    deadline = time.time() + 200
    while not checkpoint.exists() and process.poll() is None and time.time() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=100)[1]
    assert process.returncode == 130
    assert "--resume" in error
    assert "Traceback" not in error
    history = tmp_path / "runs/rectangular-seed0/history.csv"
    assert 0 < len(history.read_text().splitlines()) - 1 < 200
    assert not (tmp_path / "table.csv").exists()


def test_look_draws_each_kind_of_figure(checkpoint: Path, images: Path, tmp_path: Path) -> None:
    (images / "broken.png").write_bytes(b"no image")
    look = ["look", str(images), "--checkpoint", str(checkpoint), "--out"]
    with pytest.warns(UserWarning, match=r"broken\.png"):
        assert run([*look, str(tmp_path / "a")]) == 0
    (images / "broken.png").unlink()
    assert run([*look, str(tmp_path / "b"), "--sort", "center.col"]) == 0
    one = ["look", str(images / "scene 0.png"), "--checkpoint", str(checkpoint), str(checkpoint), "--out"]
    assert run([*one, str(tmp_path / "c"), "--moves", "4"]) == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["look-000.png", "look-001.png"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["sorted-center.col.png"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "scene 0-moves-animated.png",
        "scene 0-moves.png",
    ]
    assert Image.open(tmp_path / "c/scene 0-moves-animated.png").n_frames == 4


def test_look_turns_says_in_which_regime_a_network_is(
    checkpoint: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"group": "mirror", "attention": "input", "exact": False}
    recipe = models.Recipe("allcnn", Scenes.classes, backbone_options=options)
    models.save(models.build(recipe), recipe, Preprocess(16), tmp_path / "strided.safetensors")
    look = ["look", str(images / "scene 0.png"), "--checkpoint", str(tmp_path / "strided.safetensors")]
    assert run([*look, "--out", str(tmp_path / "a"), "--turns", "--where", "stages.3.0"]) == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "scene 0-turns-animated.png",
        "scene 0-turns.png",
    ]
    assert Image.open(tmp_path / "a/scene 0-turns-animated.png").n_frames == 2
    errors = {}
    for line in capsys.readouterr().out.splitlines()[3:]:
        network, name, percent, _ = line.rsplit(maxsplit=3)
        errors[network, name] = float(percent)
    rough, exact = "allcnn mirror input, 16 × 16: approximate", "allcnn mirror input, 17 × 17: exact"
    for name in ("stages.3.0", "stages.8.0", "logits"):
        assert errors[rough, name] > 0.5 > 0.05 > errors[exact, name]

    plain = ["look", str(images / "scene 0.png"), "--checkpoint", str(checkpoint), "--out", str(tmp_path / "b")]
    assert run([*plain, "--turns", "mirror"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "under mirror" in printed[2]
    assert [line.split()[:2] for line in printed[3:]] == [["rectangular", "stages.3"], ["rectangular", "logits"]]
    assert Image.open(tmp_path / "b/scene 0-turns-animated.png").n_frames == 2
    assert run([*plain, "--turns", "p5"]) == 1
    assert "no group is named 'p5'; there are: trivial, p4" in capsys.readouterr().err
    assert run([*plain, "--turns", "--where", "stages.9"]) == 1
    assert "no gaze is at stages.9; there are: stages.3" in capsys.readouterr().err


def test_evaluate_measures_a_saved_network(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from foveate.training.evaluate import evaluate_checkpoint

    assert run(["evaluate", "--checkpoint", str(checkpoint), "--data", "scenes", "--ratio", "0.99"]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    values = evaluate_checkpoint(checkpoint, "scenes", ratio=0.99)
    assert {name: float(value) for name, value in printed.items()} == pytest.approx(values, abs=1e-4)
    assert {"accuracy", "fitting_rate", "equivariance_error"} <= set(values)


TRAIN = ["--data.size", "32", "--data.count", "32", "--data.batch_size", "16", "--trainer.max_epochs", "2",
         "--model.backbone", "test_convnext", "--model.attention", "rectangular-equivariant", "--model.lr", "0.001",
         "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]  # fmt: skip


def test_training_on_two_processes_is_training_on_one(tmp_path: Path) -> None:
    # Processes draw their own random similarities, so the equivariance term is left out of what must be equal.
    words = [*TRAIN, "--model.equivariance", "0"]
    one = foveate("train", *words, "--out", tmp_path / "one")
    two = foveate("train", *words, "--out", tmp_path / "two", "--trainer.devices", "2", "--trainer.strategy", "ddp")
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    weights, others = (load_file(tmp_path / name / "network.safetensors") for name in ("one", "two"))
    start = models.build(models.load(tmp_path / "one/network.safetensors").recipe).state_dict()
    moved = max(float((weights[name] - start[name]).abs().max()) for name in weights)
    assert max(float((weights[name] - others[name]).abs().max()) for name in weights) < 1e-3 * moved
    histories = [(tmp_path / name / "history.csv").read_text().splitlines()[-1].split(",") for name in ("one", "two")]
    assert [float(v) for v in histories[0]] == pytest.approx([float(v) for v in histories[1]], abs=1e-4)


def test_train_reads_yaml_and_the_command_line_wins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("model: {backbone: tiny, lr: 0.5}\ndata: {size: 32, count: 16}\ntrainer: {max_epochs: 1}\n")
    quiet = ["--trainer.enable_progress_bar", "false"]
    words = ["train", "--config", str(config), "--model.lr", "0.01", "--out", str(tmp_path / "run"), *quiet]
    assert run(words) == 0
    assert "lr: 0.01" in (tmp_path / "run/config.yaml").read_text()
    assert models.load(tmp_path / "run/best.safetensors").class_names == list(Scenes.classes)
    assert run(words) == 1
    assert "--resume" in capfd.readouterr().err
    assert run(["train", "--config", str(tmp_path / "run/config.yaml"), "--resume", *quiet]) == 0


class ParseOnly(Command):
    """Reads and checks the settings, and builds nothing: the published weights are not at hand."""

    def instantiate_classes(self) -> None:
        pass


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["--model.attension", "none"], "model.attention"),
        (["--data.siz", "32"], "data.size"),
        (["--trainer.max_epoch", "1"], "trainer.max_epochs"),
    ],
)
def test_an_unknown_key_names_the_near_one(words, near, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        ParseOnly(Classifier, Images, args=[*words, "--out", str(tmp_path)], **OPTIONS)
    assert exit.value.code == 2
    assert f"did you mean {near}" in capsys.readouterr().err


def test_an_unknown_key_in_yaml_names_the_near_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("model: {backbon: tiny}\n")
    with pytest.raises(SystemExit) as exit:
        run(["train", "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path)])
    assert exit.value.code == 2
    assert "did you mean backbone?" in capsys.readouterr().err


OF_QUESTIONS = "continuous"  # whose files are read by `foveate answer`, not by `foveate train`
EXPERIMENTS = [
    path
    for path in sorted(Path(__file__).parent.parent.glob("experiments/*/*.yaml"))
    if path.parent.name != OF_QUESTIONS
]


def test_there_is_an_experiment_for_every_row_of_table_i() -> None:
    names = {path.stem for path in EXPERIMENTS if path.parent.name == "rectangular"}
    methods = ("none", "positionwise", "rectangular", "rectangular-equivariant")
    assert names == {f"{backbone}-{m}" for backbone in ("mobilenetv3", "efficientnet-b0") for m in methods}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_what_the_code_takes(path: Path, tmp_path: Path) -> None:
    config = ParseOnly(Classifier, Images, args=["--config", str(path), "--out", str(tmp_path)], **OPTIONS).config
    model = models.build(
        models.Recipe(
            config.model.backbone, ["a", "b"], config.model.attention, config.model.where, config.model.options or {}
        )
    )
    with watch(model.eval()) as gazes:
        model(torch.rand(1, 3, 64, 64))
    where = list(config.model.where) or list(models.backbone(config.model.backbone).last_feature_map(model))
    assert list(gazes) == ([] if config.model.attention == "none" else where)
    if path.parent.name == "rectangular":  # App. G
        assert (config.model.hidden, config.model.lr, config.data.size) == (512, 1e-4, 300)
        assert (config.data.batch_size, config.trainer.max_epochs, config.data.augment) == (32, 40, True)
