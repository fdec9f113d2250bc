"""Grid features of images, one file each: what networks that answer questions look at."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from foveate.data.decode import BadImage, read_image
from foveate.data.folders import BadFiles, DataError
from foveate.data.transforms import Preprocess
from foveate.extras import require
from foveate.files import writing
from foveate.models.backbones import backbone, load_weights
from foveate.progress import counted

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}


def extract_features(
    folder: Path,
    out: Path,
    name: str = "resnet152",
    size: int = 448,
    weights: str | None = "pretrained",
    batch_size: int = 16,
) -> tuple[int, dict[str, str]]:
    """Write the last feature map of every image under a folder, as `x` (C, H, W) float16 in a safetensors file.

    `a/b.jpg` becomes `out/a/b.safetensors`. Files that are there are kept, so an interrupted run goes on. A file that
    is no usable image is left out and reported. `out/features.parquet` lists what there is.

    Args:
        folder: of images.
        out: for the features.
        name: of one of the project's own networks, or of any timm model; "resnet152" at 448 gives (2048, 14, 14).
        size: side of the square that images are resized to.
        weights: "pretrained", the path of a safetensors file, or None for random ones.
        batch_size: images in a batch.

    Returns:
        how many files were written, and the bad files with what is wrong with each.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise DataError(f"{folder} has no images" if folder.is_dir() else f"there is no folder {folder}")
    targets = {path: out / path.relative_to(folder).with_suffix(".safetensors") for path in paths}
    if len(set(targets.values())) < len(paths):
        raise DataError(f"{folder} has images that differ in their ending alone, whose features would share a file")
    missing = [path for path, target in targets.items() if not target.is_file()]
    problems: dict[str, str] = {}
    if missing:
        network, layer, preprocess = _network(name, size, weights)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        network.to(device)
        for read, images in _batches(missing, preprocess, batch_size, folder, problems):
            for path, features in zip(read, _last_map(network, layer, images.to(device)), strict=True):
                with writing(targets[path]) as beside:
                    beside.write_bytes(require("safetensors.torch").save({"x": features.half().cpu().contiguous()}))
    _write_index(out, {path.relative_to(folder): target for path, target in targets.items() if target.is_file()})
    if problems:
        listed = "; ".join(f"{file} {reason}" for file, reason in list(problems.items())[:5])
        warnings.warn(f"{len(problems)} bad files are left out: {listed}", BadFiles, stacklevel=2)
    return len(missing) - len(problems), problems


def _network(name: str, size: int, weights: str | None) -> tuple[nn.Module, str, Preprocess]:
    kind = backbone(name)
    model = kind.build(1, **({"pretrained": True} if weights == "pretrained" else {}))
    if weights not in (None, "pretrained"):
        load_weights(model, kind, Path(weights))
    layers = kind.last_feature_map(model)
    if not layers:
        raise ValueError(f"{name} does not say which layer returns its last feature map")
    return model.eval(), layers[0], Preprocess(size, kind.mean, kind.std)


def _batches(
    paths: Sequence[Path], preprocess: Preprocess, batch_size: int, folder: Path, problems: dict[str, str]
) -> Iterator[tuple[list[Path], Tensor]]:
    """Batches of images that can be read, prepared; what cannot is noted in `problems`."""
    read: list[Path] = []
    images: list[Tensor] = []
    for path in counted(paths, "Extracting features"):
        try:
            images.append(preprocess(read_image(path)))
            read.append(path)
        except BadImage as error:
            problems[path.relative_to(folder).as_posix()] = str(error)
        if len(images) == batch_size:
            yield read, torch.stack(images)
            read, images = [], []
    if images:
        yield read, torch.stack(images)


class _Seen(Exception):
    """Ends a forward pass where the last feature map is there."""


@torch.no_grad()
def _last_map(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    """What a layer returns, (B, C, H, W); the layers behind it do not run."""
    seen: list[Tensor] = []

    def see(_: nn.Module, __: object, output: Tensor) -> None:
        seen.append(output)
        raise _Seen

    handle = network.get_submodule(layer).register_forward_hook(see)
    try:
        network(images)
    except _Seen:
        pass
    finally:
        handle.remove()
    return seen[0]


def _write_index(out: Path, files: dict[Path, Path]) -> None:
    pandas = require("pandas")
    rows = [{"image": image.as_posix(), "file": file.relative_to(out).as_posix()} for image, file in files.items()]
    with writing(out / "features.parquet") as beside:
        pandas.DataFrame(rows, columns=["image", "file"]).to_parquet(beside, index=False)
