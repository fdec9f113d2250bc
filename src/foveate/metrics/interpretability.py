"""Does the attention stay where it was when a modification leaves the decision as it was? Bottleneck 4.4."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foveate.attach import undisturbed
from foveate.gaze import Gaze, watch
from foveate.metrics import functional
from foveate.metrics.functional import COSINE
from foveate.metrics.mean import ImageMean
from foveate.metrics.modifications import Modification

CURVE = tuple(step / 100 for step in range(101))  # the thresholds of a curve


class InterpretabilityScore(ImageMean):
    """Of the images whose class survives a modification, the share whose map does, bottleneck 4.4; 0 if none survives.

    Args:
        threshold: a map survives with a cosine of at least this. With several, `compute` gives the curve: a score for
            each. A score is worth only as much as its curve, for the cosine of two maps that look everywhere is near 1.
        centred: ask for the correlation of the maps in place of their cosine, see `foveate.metrics.functional`: what
            maps have in common by being high everywhere does not count.

    >>> import torch
    >>> metric = InterpretabilityScore(threshold=[0.7, 0.9])
    >>> map, seen = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[1.0, 0.8]]]])
    >>> metric.update(map, seen, torch.tensor([[0.2, 0.8]]), torch.tensor([[0.4, 0.6]]))
    >>> metric.compute()
    tensor([1., 0.])
    """

    higher_is_better = True

    def __init__(self, threshold: float | Sequence[float] = COSINE, centred: bool = False) -> None:
        levels = threshold if isinstance(threshold, Sequence) else [threshold]
        if not levels or not all(-1 <= level <= 1 for level in levels):
            raise ValueError(f"a threshold is a cosine, in [-1, 1], not {threshold}")
        super().__init__(len(levels) if isinstance(threshold, Sequence) else None)
        self.threshold, self.centred = threshold, centred

    def update(self, map: Tensor | Gaze, seen: Tensor | Gaze, before: Tensor, after: Tensor) -> None:
        """Take in the maps, or gazes, of images and of modified images, and the logits (B, K) or classes of both."""
        self.add(*functional.consistency(map, seen, before, after, self.threshold, self.centred))


@dataclass(frozen=True)
class Outcome:
    """What one modification did to one attention.

    Attributes:
        score: the interpretability score at the threshold that was asked for.
        curve: (101,), the score at each of `CURVE`.
        centred_curve: (101,), that of the correlation, which maps do not have by being high everywhere.
        survived: the share of the images whose class survived.
        images: how many there were.
    """

    score: float
    curve: Tensor
    centred_curve: Tensor
    survived: float
    images: int


@torch.no_grad()
def interpretability_scores(
    model: nn.Module,
    batches: Iterable[Tensor | Mapping[str, Any]],
    modifications: Mapping[str, Modification],
    threshold: float = COSINE,
    seed: int = 0,
) -> dict[str, dict[str, Outcome]]:
    """The scores of each attention of a network under each modification: name of the gaze -> modification -> outcome.

    Each attention of a network with several is judged by its own map, for they look at different things.

    Args:
        model: any network with attention; it is run in evaluation mode.
        batches: images (B, C, H, W) as the network takes them, or mappings that have them as `image`.
        modifications: see `foveate.metrics.modifications`.
        threshold: see `InterpretabilityScore`.
        seed: of the modifications, and of networks that draw their attention at random.

    >>> from foveate.attention import CBAMAttention
    >>> from foveate.metrics.modifications import paper_modifications
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), CBAMAttention(8), nn.Flatten())
    >>> interpretability_scores(model, [torch.rand(4, 3, 32, 32)], paper_modifications())["1"]["r > 4"].images
    4
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    scores: dict[str, dict[str, list[InterpretabilityScore]]] = {}
    count = 0
    with undisturbed(model):
        torch.manual_seed(seed)
        for batch in batches:
            images = (batch["image"] if isinstance(batch, Mapping) else batch).to(device)
            count += len(images)
            logits, gazes = _see(model, images)
            for name, modify in modifications.items():
                modified_logits, seen = _see(model, modify(images, generator))
                for at, gaze in gazes.items():
                    of = scores.setdefault(at, {})
                    if name not in of:
                        of[name] = [InterpretabilityScore((threshold, *CURVE), centred) for centred in (False, True)]
                    for metric in of[name]:
                        metric.to(device).update(gaze, seen[at], logits, modified_logits)
    if count and not scores:
        raise ValueError("this network has no attention, so there is nothing whose consistency could be measured")
    return {at: {name: _outcome(metrics, count) for name, metrics in of.items()} for at, of in scores.items()}


def _see(model: nn.Module, images: Tensor) -> tuple[Tensor, dict[str, Gaze]]:
    with watch(model) as gazes:
        logits = model(images)
    return logits, gazes


def _outcome(metrics: Sequence[InterpretabilityScore], images: int) -> Outcome:
    plain, centred = metrics
    score, *curve = plain.compute().tolist()
    centred_curve = centred.compute().cpu()[1:]
    return Outcome(score, torch.tensor(curve), centred_curve, float(plain.count) / images, images)
