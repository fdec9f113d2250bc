"""What captum brings: a map for networks that have no attention of their own, and how far a small nudge moves a map."""

from typing import Any

import torch
from torch import Tensor, nn

from foveate.attach import undisturbed
from foveate.extras import require
from foveate.gaze import Gaze, watch


def grad_cam(model: nn.Module, layer: str, images: Tensor, labels: Tensor | None = None) -> Gaze:
    """Grad-CAM at a layer as a gaze, so that it is drawn and measured beside attentions; by captum.

    Args:
        model: images to logits.
        layer: the name of one that returns a feature map.
        images: (B, C, H, W), as the model takes them.
        labels: (B,), the classes that are explained; nothing means those that the model says.

    Returns:
        a gaze with maps (B, 1, h, w) from 0 to 1 at the size of the layer's output.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    >>> grad_cam(model, "1", torch.rand(2, 3, 9, 9)).map.shape
    torch.Size([2, 1, 7, 7])
    """
    explain = require("captum.attr").LayerGradCam(model, model.get_submodule(layer))
    if labels is None:
        with undisturbed(model):
            labels = model(images).argmax(1)
    map: Tensor = explain.attribute(images, target=labels, relu_attributions=True).detach()
    return Gaze(map / map.amax((2, 3), keepdim=True).clamp_min(torch.finfo(map.dtype).tiny))


@torch.no_grad()
def sensitivity(
    model: nn.Module, images: Tensor, at: str | None = None, radius: float = 0.02, samples: int = 10, seed: int = 0
) -> Tensor:
    """How far a map moves at most when each value of the image is nudged by up to `radius`, (B,); by captum.

    It is the largest ‖map(nudged) − map‖ / ‖map‖ over the nudges (Yeh et al. 2019). Less is steadier; a map that never
    changes has 0, so read it beside a measure that asks the map to say something.

    Args:
        model: any network with attention.
        images: (B, C, H, W), as the network takes them.
        at: which gaze; nothing means the last.
        radius: of the nudges.
        samples: how many nudges.
        seed: of the nudges.

    >>> from foveate.attention import CBAMAttention
    >>> sensitivity(nn.Sequential(nn.Conv2d(3, 8, 3), CBAMAttention(8)), torch.rand(2, 3, 9, 9)).shape
    torch.Size([2])
    """

    def look(inputs: Any) -> Any:
        with watch(model) as gazes:
            model(inputs[0] if isinstance(inputs, tuple) else inputs)
        gaze = gazes[at] if at is not None else list(gazes.values())[-1]
        return (gaze.map.float(),)

    measure = require("captum.metrics").sensitivity_max
    if not len(images):
        return images.new_zeros(0)
    with undisturbed(model):
        torch.manual_seed(seed)
        values: Tensor = measure(
            look, images, perturb_radius=radius, n_perturb_samples=samples, max_examples_per_batch=len(images)
        )
    return values
