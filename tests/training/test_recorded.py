"""A training step that is recorded as a CUDA graph learns what the step learns as ever."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from foveate.geometry import random_similarity
from foveate.models import registry
from foveate.training.data import Images
from foveate.training.fitting import DEFAULTS, fit
from foveate.training.keep import CHECKPOINT, HISTORY
from foveate.training.module import Classifier
from foveate.training.recorded import EAGER, NothingToRecord, Recorded, RecordError

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {"backbone": "tiny"},
    "moved": {"backbone": "tiny", "attention": "rectangular-equivariant"},
    "priced": {"backbone": "tiny", "attention": "bottleneck-quantised", "warmup": 1.5},
    "full": {"backbone": "p4cnn", "backbone_options": {"attention": "full", "width": 4}},
    "input": {"backbone": "p4cnn", "backbone_options": {"attention": "input", "width": 4}},
}

WAITING = {"tvmax-pool"}  # it goes on until it has converged, which Python has to know


def history(folder: Path, epochs: int, record: bool, options: dict[str, Any], **settings: Any) -> pd.DataFrame:
    data = Images(size=28, count=48, batch_size=8, backbone=options["backbone"])
    model = Classifier(data.class_names, record=record, optimizer="sgd", lr=1e-2, **options)
    trainer = Trainer(max_epochs=epochs, enable_progress_bar=False, **{**DEFAULTS, "devices": 1, **settings})
    fit(trainer, model, data, folder)
    return pd.read_csv(folder / HISTORY)


@pytest.fixture(autouse=True)
def _full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # in which two runs as ever soon differ


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_recorded_run_has_the_history_of_the_run_as_ever(name: str, tmp_path: Path) -> None:
    found, expected = (history(tmp_path / str(record), 3, record, NETWORKS[name]) for record in (True, False))
    losses = [column for column in expected if not column.endswith("accuracy")]
    assert list(found) == list(expected)
    assert torch.allclose(torch.tensor(found[losses].to_numpy()), torch.tensor(expected[losses].to_numpy()), rtol=2e-3)
    assert found["loss"].is_unique  # it learns


@needs_gpu
@pytest.mark.parametrize("attention", [name for name in registry.names() if name not in WAITING])
def test_the_step_of_an_attention_can_be_recorded(attention: str) -> None:
    images, labels = torch.rand(4, 3, 32, 32, device="cuda"), torch.tensor([0, 1, 2, 1], device="cuda")
    moves, losses = random_similarity(4, generator=torch.Generator().manual_seed(0)).cuda(), []
    for record in (False, True):
        model = Classifier(["a", "b", "c"], "tiny", attention, equivariance=0.1).cuda().train()
        step = Recorded(model._drawn, list(model.network.parameters())) if record else model._drawn
        torch.manual_seed(1)  # of what is drawn
        for _ in range(EAGER + 2):
            loss, _ = step(images, labels, images.new_ones(()), moves)
        losses.append(float(loss.detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@needs_gpu
def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    options = NETWORKS["full"]
    whole = history(tmp_path / "whole", 3, True, options)
    history(tmp_path / "halves", 1, True, options)
    assert (tmp_path / "halves" / CHECKPOINT).is_file()
    resumed = history(tmp_path / "halves", 3, True, options)
    assert resumed["loss"].tolist() == pytest.approx(whole["loss"].tolist(), rel=2e-3)


@needs_gpu
def test_half_precision_has_its_weights_made_in_the_recording(tmp_path: Path) -> None:
    options = NETWORKS["plain"]
    found = history(tmp_path / "a", 3, True, options, precision="bf16-mixed")
    expected = history(tmp_path / "b", 3, False, options, precision="bf16-mixed")
    assert found["loss"].tolist() == pytest.approx(expected["loss"].tolist(), rel=2e-2)
    assert found["loss"].iloc[-1] != found["loss"].iloc[0]


@needs_gpu
def test_gradients_are_those_of_this_batch_and_other_shapes_run_as_ever() -> None:
    torch.manual_seed(0)
    layer, twin = (nn.Linear(4, 3).cuda() for _ in range(2))
    twin.load_state_dict(layer.state_dict())
    recorded = Recorded(lambda x: _squares(layer, x), list(layer.parameters()))
    for count in [5] * (EAGER + 3) + [2, 5]:
        x = torch.rand(count, 4, device="cuda")
        loss, doubled = recorded(x)
        twin.zero_grad()
        expected, _ = _squares(twin, x)
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert doubled.item() == pytest.approx(2 * expected.item(), rel=1e-5)
        for ours, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(ours.grad, theirs.grad, rtol=1e-5)
    assert recorded.graph is not None


def _squares(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    loss = layer(x).square().sum()
    return loss, 2 * loss.detach()


@needs_gpu
def test_a_step_that_waits_for_the_gpu_is_named() -> None:
    layer = nn.Linear(4, 3).cuda()

    def waits(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = layer(x).square().sum()
        return loss * float(loss.detach()), loss.detach()

    recorded, x = Recorded(waits, list(layer.parameters())), torch.rand(5, 4, device="cuda")
    for _ in range(EAGER):
        recorded(x)
    with pytest.raises(RecordError, match=r"waits for the GPU.*record false"):
        recorded(x)


def test_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="without accumulated gradients"):
        history(tmp_path, 1, True, NETWORKS["plain"], accumulate_grad_batches=2)


@needs_gpu
def test_scaled_losses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="rather than 16-mixed"):
        history(tmp_path, 1, True, NETWORKS["plain"], precision="16-mixed")


def test_without_a_gpu_it_runs_as_ever_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(NothingToRecord, match="no GPU"):
        found = history(tmp_path / "a", 2, True, NETWORKS["plain"], accelerator="cpu")
    expected = history(tmp_path / "b", 2, False, NETWORKS["plain"], accelerator="cpu")
    assert found["loss"].tolist() == pytest.approx(expected["loss"].tolist(), rel=1e-6)
