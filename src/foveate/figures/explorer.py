"""explore: a page on which a person drops an image, moves and modifies it, and sees each gaze follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from foveate.data import Preprocess, Scenes
from foveate.data.decode import to_tensor
from foveate.extras import require
from foveate.figures.consistency import modified_examples
from foveate.figures.grids import frame, grid
from foveate.figures.look import Onlooker, caption, load_onlookers
from foveate.figures.turning import turning
from foveate.figures.turns import Turns
from foveate.gaze import Gaze
from foveate.geometry import similarity, warp
from foveate.metrics.functional import COSINE, equivariance_error, map_cosine
from foveate.metrics.modifications import Modification, paper_modifications

NOTHING = "nothing"
WAYS = ("overlay+outline", "overlay", "outline", "spotlight", "contour")
COLUMNS = ("attention", "it says", "same map (cosine)", "off the moved map")
SEED = 0  # of blocks and patches, so that only what a person moves moves


class Explorer:
    """What the page shows, without the page.

    Args:
        onlookers: the networks.
    """

    def __init__(self, onlookers: Sequence[Onlooker]) -> None:
        self.onlookers = onlookers
        self._turns = Turns(onlookers)

    def look(
        self, picture: Image.Image | None, turn: float, scale: float, right: float, down: float, modify: str, how: str
    ) -> tuple[Image.Image | None, list[list[str]]]:
        """The gazes on a picture that is moved, then modified, and what has become of them.

        Args:
            picture: of any size; None shows nothing.
            turn: in degrees, counter-clockwise.
            scale: its factor.
            right, down: in shares of the picture.
            modify: a name of `modifications`, or "nothing".
            how: a way of drawing, see `foveate.figures.draw`.

        Returns:
            the picture and each gaze side by side, and a row for each gaze: its name, the class, the cosine with the
            map before the modification, and how far that map is from the first one moved.
        """
        if picture is None:
            return None, []
        matrix = similarity(torch.tensor([math.radians(turn)]), torch.tensor([scale]), torch.tensor([[down, right]]))
        gazes: dict[str, Gaze] = {}
        rows: list[list[str]] = []
        shown: Tensor | None = None
        for onlooker in self.onlookers:
            plain = onlooker.model.preprocess.resize(picture).float() / 255
            moved = warp(plain[None], matrix, padding="border")
            changed = _modified(moved, modify, onlooker.model.preprocess)
            first, before, after = (onlooker.see(list(images)) for images in (plain[None], moved, changed))
            shown = changed if shown is None else shown
            for name, gaze in after[1].items():
                gazes[name] = gaze
                cosine = float(map_cosine(before[1][name], gaze))
                error = float(equivariance_error(first[1][name], before[1][name], matrix))
                rows.append([name, caption(after[0]), f"{cosine:.2f}", f"{error:.3f}"])
        assert shown is not None
        return frame(grid(shown.clamp(0, 1), gazes, how, images_along="rows", first="what it sees")), rows

    def trials(self, picture: Image.Image | None) -> Image.Image | None:
        """The picture under every modification, a figure for each network, one above the other."""
        if picture is None:
            return None
        figures = []
        for onlooker in self.onlookers:
            prepare = onlooker.model.preprocess
            images = prepare(to_tensor(picture))[None]
            shown = {k: m for k, m in modifications(prepare.size, prepare.levels).items() if k != NOTHING}
            figures.append(modified_examples(onlooker.model, images, shown, COSINE, SEED))
        return _stacked(figures)

    def turns(self, picture: Image.Image | None) -> Image.Image | None:
        """The picture turned by every element of the networks' symmetries, a figure for each, one above the other."""
        if picture is None:
            return None
        return _stacked([turning([panel]) for panel in self._turns.panels(to_tensor(picture))])


def _stacked(figures: Sequence[Figure]) -> Image.Image:
    """Figures as one picture, one above the other."""
    frames = [frame(figure) for figure in figures]
    whole = Image.new("RGB", (max(f.width for f in frames), sum(f.height for f in frames)), "white")
    for place, one in enumerate(frames):
        whole.paste(one, (0, sum(f.height for f in frames[:place])))
    return whole


def modifications(side: int, levels: Any = (0.0, 1.0)) -> dict[str, Modification]:
    """The modifications that the page offers, by name.

    >>> list(modifications(64))
    ['nothing', 'color p=8', 'patch p=8', 'r > 4', 'r < 12']
    """
    others = torch.stack([scene.image for scene in _scenes(side)])
    dark, light = (torch.as_tensor(level).reshape(-1, 1, 1) for level in levels)
    donors = dark + (light - dark) * others
    return {NOTHING: lambda images, _: images, **paper_modifications(side, donors=donors, levels=levels, windows=[8])}


def page(explorer: Explorer) -> Any:
    """The page itself, not yet served."""
    gr = require("gradio")
    examples = [[_picture(scene.image)] for scene in _scenes(128)]
    plain = {"show_label": False, "buttons": ["download", "fullscreen"]}
    with gr.Blocks(title="foveate explore", analytics_enabled=False) as blocks:
        gr.Markdown("## Where does it look?\nDrop an image. Turn, shift, scale or modify it, and see each gaze follow.")
        with gr.Row():
            with gr.Column(scale=2, min_width=260):
                picture = gr.Image(examples[0][0], type="pil", label="image", height=220)
                gr.Examples(examples, picture, label="scenes")
            with gr.Column(scale=2, min_width=260):
                turn = gr.Slider(-180, 180, 0, step=1, label="turn (degrees)")
                scale = gr.Slider(0.5, 2, 1, step=0.01, label="scale")
                right = gr.Slider(-0.5, 0.5, 0, step=0.01, label="shift right")
                down = gr.Slider(-0.5, 0.5, 0, step=0.01, label="shift down")
                modify = gr.Radio(list(modifications(16)), value=NOTHING, label="modify")
                how = gr.Dropdown(list(WAYS), value=WAYS[0], label="draw as")
            with gr.Column(scale=5, min_width=420):
                shown = gr.Image(label="gazes", interactive=False, height=300, **plain)
                table = gr.Dataframe(headers=list(COLUMNS), interactive=False, label="what became of them")
                gr.Markdown("**under every modification**")
                figures = gr.Image(label="under every modification", interactive=False, **plain)
                gr.Markdown("**turned by the symmetries of the networks, or by quarters**")
                turns = gr.Image(label="turned", interactive=False, **plain)
        inputs = [picture, turn, scale, right, down, modify, how]
        triggers = [blocks.load, *(part.change for part in inputs)]
        in_turn = {"trigger_mode": "always_last", "concurrency_id": "figures", "concurrency_limit": 1}  # matplotlib's
        gr.on(triggers, explorer.look, inputs, [shown, table], show_progress="hidden", **in_turn)
        gr.on([blocks.load, picture.change], explorer.trials, picture, figures, **in_turn)
        gr.on([blocks.load, picture.change], explorer.turns, picture, turns, **in_turn)
    return blocks


def serve(checkpoints: Sequence[str | Path], port: int | None = None, open_browser: bool = False) -> None:
    """Serve the page on this machine until Ctrl-C.

    Args:
        checkpoints: files of networks that foveate saved, or names of packaged ones.
        port: of the page; None takes the first free one from 7860 on.
        open_browser: show it at once.
    """
    gr = require("gradio")
    theme = gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"])  # nothing comes from the network
    page(Explorer(load_onlookers(checkpoints))).launch(server_port=port, inbrowser=open_browser, theme=theme)


def _modified(images: Tensor, name: str, prepare: Preprocess) -> Tensor:
    """Images in [0, 1] modified, so that the network gets what it would get if its input had been modified."""
    changed = modifications(images.shape[-1])[name](images, torch.Generator().manual_seed(SEED))
    if name == "r > 4":  # which has no mean: in normalised images it is that of the data
        changed = changed + torch.tensor(prepare.mean).reshape(-1, 1, 1)
    return changed


def _scenes(side: int) -> list[Any]:
    scenes = Scenes(40, side, seed=1)
    return [scenes[index] for index in (3, 11, 20, 34)]


def _picture(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())
