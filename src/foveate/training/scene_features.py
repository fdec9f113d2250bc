"""Features of scenes, made once for all runs by a small network that has learned to name what it sees where.

The networks that answer questions get features of a network trained elsewhere, as in continuous 6.2.1; there it is a
ResNet trained on ImageNet. Here it learns, on scenes of its own, which colours and shapes are at each position.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.questions import COLORS, SHAPES, SceneQuestions
from foveate.extras import require
from foveate.files import writing
from foveate.models.coattention import SmallGrid
from foveate.progress import counted

STRIDE = 4  # of SmallGrid
SCENES, STEPS, BATCH = 4_000, 1_500, 64  # to learn from; none of them is asked about
SEEDS = {"train": 0, "val": 1, "features": 2}


def scene_tensors(part: str, count: int, size: int, channels: int, folder: Path) -> dict[str, Tensor]:
    """What questions about scenes are made of, from files in the folder, which are made where they are not there.

    Returns:
        `image` (count, channels, size/4, size/4) float16 features, `picture` (count, 3, size, size) uint8, `mask`,
        `question`, `label` and `kind`, see `SceneQuestions`.
    """
    stored = require("safetensors.torch")
    file = folder / f"{part}-{count}-{size}-{channels}.safetensors"
    if not file.is_file():
        network = _namer(size, channels, folder)
        tensors = _draw(part, count, size)
        del tensors["things"]
        tensors["image"] = _features(network, tensors["picture"])
        with writing(file) as beside:
            beside.write_bytes(stored.save(tensors))
    loaded: dict[str, Tensor] = stored.load_file(file)
    return loaded


def _draw(part: str, count: int, size: int) -> dict[str, Tensor]:
    items = SceneQuestions(count, size, SEEDS[part])
    grid = size // STRIDE
    tensors = {
        "picture": torch.empty(count, 3, size, size, dtype=torch.uint8),
        "mask": torch.empty(count, 1, size, size, dtype=torch.bool),
        "things": torch.empty(count, len(COLORS) + len(SHAPES), grid, grid, dtype=torch.bool),
        "question": torch.empty(count, len(items[0].question), dtype=torch.long),
        "label": torch.empty(count, dtype=torch.long),
        "kind": torch.empty(count, dtype=torch.long),
    }
    for index in counted(range(count), f"Drawing scenes ({part})"):
        item = items[index]
        tensors["picture"][index] = (255 * item.image).round().byte()
        tensors["things"][index] = F.max_pool2d(item.things.float(), STRIDE) > 0
        for name in ("mask", "question", "label", "kind"):
            tensors[name][index] = torch.as_tensor(item[name])
    return tensors


def _namer(size: int, channels: int, folder: Path) -> SmallGrid:
    """The network that makes the features, trained where its file is not there."""
    stored = require("safetensors.torch")
    file, network = folder / f"features-{size}-{channels}.safetensors", SmallGrid(channels)
    if not file.is_file():
        _learn_to_name(network, _draw("features", SCENES, size), channels)
        with writing(file) as beside:
            beside.write_bytes(stored.save(network.state_dict()))
    network.load_state_dict(stored.load_file(file))
    return network.eval()


def _learn_to_name(network: SmallGrid, scenes: dict[str, Tensor], channels: int) -> None:
    torch.manual_seed(SEEDS["features"])
    device = _device()
    whole = nn.Sequential(network, nn.Conv2d(channels, scenes["things"].shape[1], 1)).to(device)
    optimizer = torch.optim.Adam(whole.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=STEPS)
    for _ in counted(range(STEPS), "Learning to name what is where"):
        chosen = torch.randint(len(scenes["picture"]), (BATCH,))
        logits = whole(scenes["picture"][chosen].to(device).float() / 255)
        loss = F.binary_cross_entropy_with_logits(logits, scenes["things"][chosen].to(device).float())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    network.cpu()


@torch.no_grad()
def _features(network: SmallGrid, pictures: Tensor) -> Tensor:
    device = _device()
    network.to(device)
    parts = (pictures[i : i + 256].to(device).float() / 255 for i in range(0, len(pictures), 256))
    return torch.cat([network(part).half().cpu() for part in parts])


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
