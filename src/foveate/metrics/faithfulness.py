"""Does the network need what its attention looked at? Deletion and insertion curves (Petsiuk et al. 2018).

Deletion takes the pixels away, those with the most attention first: the sooner the class is lost, the more the network
needed them. Insertion gives them back to an image that has none: the sooner the class is found, the better. The area
under the mean curve is the mean area; it is low for a good deletion and high for a good insertion.
"""

from typing import Literal

import torch
from torch import Generator, Tensor, nn

from foveate.gaze import Gaze
from foveate.metrics.functional import in_steps
from foveate.metrics.mean import ImageMean

Fill = Literal["blur", "mean"] | float
STEPS = 20


@torch.no_grad()
def deletion_curve(
    model: nn.Module,
    images: Tensor,
    map: Tensor | Gaze,
    labels: Tensor | None = None,
    steps: int = STEPS,
    fill: Fill = "mean",
    generator: Generator | None = None,
) -> Tensor:
    """The probability of each image's class while its pixels go, the most attended first: (B, steps + 1).

    Args:
        model: images to logits (B, K), in the mode that it is in.
        images: (B, C, H, W), as the model takes them.
        map: (B, 1, h, w), or a gaze, rendered at the size of the images.
        labels: (B,), the classes that are followed; nothing means what the model says of the whole images.
        steps: from the whole image to none of it; in each, as good as the same number of pixels goes.
        fill: what takes a pixel's place: "mean", the image's own colour on average; "blur", the image without what is
            finer than an eighth of it; or a number.
        generator: of the order among pixels with equal attention; a flat map takes all of them at random.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> deletion_curve(model, torch.rand(3, 3, 2, 2), torch.rand(3, 1, 2, 2), steps=4).shape
    torch.Size([3, 5])
    """
    return _curve(model, filled(images, fill), images, map, labels, steps, generator)


@torch.no_grad()
def insertion_curve(
    model: nn.Module,
    images: Tensor,
    map: Tensor | Gaze,
    labels: Tensor | None = None,
    steps: int = STEPS,
    fill: Fill = "blur",
    generator: Generator | None = None,
) -> Tensor:
    """The probability of each image's class while its pixels come, the most attended first: (B, steps + 1).

    Arguments as those of `deletion_curve`; `fill` is what there is before.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> insertion_curve(model, torch.rand(3, 3, 2, 2), torch.rand(3, 1, 2, 2), steps=4).shape
    torch.Size([3, 5])
    """
    if labels is None:
        labels = model(images).argmax(1)
    return _curve(model, images, filled(images, fill), map, labels, steps, generator)


def area_under(curve: Tensor) -> Tensor:
    """The area (...) under curves (..., steps + 1) over [0, 1], by trapezia.

    >>> area_under(torch.tensor([[1.0, 0.5, 0.0], [1.0, 1.0, 1.0]]))
    tensor([0.5000, 1.0000])
    """
    area: Tensor = torch.trapezoid(curve, dim=-1) / (curve.shape[-1] - 1)
    return area


def filled(images: Tensor, fill: Fill) -> Tensor:
    """What is left of images (B, C, H, W) when no pixel of theirs is: see `deletion_curve`.

    >>> filled(torch.tensor([[[[1.0, 3.0]]]]), "mean")
    tensor([[[[2., 2.]]]])
    """
    if fill == "mean":
        return images.mean((2, 3), keepdim=True).expand_as(images)
    if fill == "blur":
        height, width = images.shape[2:]
        coarse = (max(1, height // 8), max(1, width // 8))
        small = nn.functional.interpolate(images.float(), coarse, mode="bilinear", antialias=True)
        return nn.functional.interpolate(small, (height, width), mode="bilinear").to(images.dtype)
    if isinstance(fill, str):
        raise ValueError(f"fill must be 'mean', 'blur' or a number, not {fill!r}")
    return torch.full_like(images, fill)


def attention_rank(map: Tensor, generator: Generator | None = None) -> Tensor:
    """The place (B, H, W) of each pixel of a map (B, 1, H, W) from the most attended, 0, down; ties fall at random.

    >>> attention_rank(torch.tensor([[[[0.1, 0.9], [0.5, 0.0]]]]))
    tensor([[[2, 0],
             [1, 3]]])
    """
    values = in_steps(map.flatten(1).float())
    device = generator.device if generator is not None else None
    shuffled = torch.rand(values.shape, generator=generator, device=device).argsort(1).to(values.device)
    order = shuffled.gather(1, values.gather(1, shuffled).argsort(dim=1, descending=True, stable=True))
    return order.argsort(1).view(len(map), *map.shape[2:])


def _curve(
    model: nn.Module,
    taken: Tensor,
    left: Tensor,
    map: Tensor | Gaze,
    labels: Tensor | None,
    steps: int,
    generator: Generator | None,
) -> Tensor:
    """Probabilities while the pixels of `left` give way to those of `taken`."""
    if steps < 1:
        raise ValueError(f"a curve has at least one step, not {steps}")
    height, width = left.shape[2:]
    gaze = map if isinstance(map, Gaze) else Gaze(map)
    rank = attention_rank(gaze.render((height, width)), generator).to(left.device)[:, None]
    points: list[Tensor] = []
    for step in range(steps + 1):
        shares = model(torch.where(rank < round(step * height * width / steps), taken, left)).float().softmax(1)
        labels = shares.argmax(1) if labels is None else labels
        points.append(shares.gather(1, labels[:, None])[:, 0])
    return torch.stack(points, dim=1)


class DeletionCurve(ImageMean):
    """The mean of `deletion_curve` over images, (steps + 1,); `area_under` it says how good it is: less is better.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> metric = DeletionCurve(steps=4)
    >>> metric.update(model, torch.rand(3, 3, 2, 2), torch.rand(3, 1, 2, 2))
    >>> metric.compute().shape
    torch.Size([5])
    """

    higher_is_better = False

    def __init__(self, steps: int = STEPS, fill: Fill = "mean") -> None:
        super().__init__(steps + 1)
        self.steps, self.fill = steps, fill

    def update(
        self,
        model: nn.Module,
        images: Tensor,
        map: Tensor | Gaze,
        labels: Tensor | None = None,
        generator: Generator | None = None,
    ) -> None:
        """Take in images and their maps or gazes; arguments as those of `deletion_curve`."""
        self.add(deletion_curve(model, images, map, labels, self.steps, self.fill, generator))


class InsertionCurve(DeletionCurve):
    """The mean of `insertion_curve` over images, (steps + 1,); `area_under` it says how good it is: more is better."""

    higher_is_better = True

    def __init__(self, steps: int = STEPS, fill: Fill = "blur") -> None:
        super().__init__(steps, fill)

    def update(
        self,
        model: nn.Module,
        images: Tensor,
        map: Tensor | Gaze,
        labels: Tensor | None = None,
        generator: Generator | None = None,
    ) -> None:
        """Take in images and their maps or gazes; arguments as those of `deletion_curve`."""
        self.add(insertion_curve(model, images, map, labels, self.steps, self.fill, generator))
