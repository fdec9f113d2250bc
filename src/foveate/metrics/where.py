"""Does it look at the object? Metrics of a map against a ground-truth mask, for evaluation only."""

from torch import Tensor
from torchmetrics import MetricCollection

from foveate.gaze import Gaze
from foveate.metrics import functional
from foveate.metrics.functional import Threshold
from foveate.metrics.mean import ImageMean


class FittingRate(ImageMean):
    """Mean over images of the intersection over union of attended pixels and mask, rectangular (19).

    Args:
        threshold: a number, "mean" or "area", see `foveate.metrics.functional.attended`.

    >>> import torch
    >>> metric = FittingRate()
    >>> metric.update(torch.tensor([[[[0.9, 0.8], [0.1, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    >>> metric.compute()
    tensor(0.5000)
    """

    higher_is_better = True

    def __init__(self, threshold: Threshold = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def update(self, map: Tensor | Gaze, mask: Tensor) -> None:
        """Take in maps (B, 1, h, w) or a gaze, and masks (B, 1, H, W) or (B, H, W)."""
        self.add(functional.fitting_rate(map, mask, self.threshold))


class CatchingRate(ImageMean):
    """Mean over images of the catching rate of attended pixels and mask, rectangular (10), in [−1, 1].

    Args:
        threshold: a number, "mean" or "area", see `foveate.metrics.functional.attended`.

    >>> import torch
    >>> metric = CatchingRate()
    >>> metric.update(torch.tensor([[[[0.9, 0.8], [0.1, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    >>> metric.compute()
    tensor(0.5000)
    """

    higher_is_better = True

    def __init__(self, threshold: Threshold = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def update(self, map: Tensor | Gaze, mask: Tensor) -> None:
        """Take in maps (B, 1, h, w) or a gaze, and masks (B, 1, H, W) or (B, H, W)."""
        self.add(functional.catching_rate(map, mask, self.threshold))


class PointingAccuracy(ImageMean):
    """Share of the images whose map has its maximum on the mask; images without an object are left out.

    >>> import torch
    >>> metric = PointingAccuracy()
    >>> metric.update(torch.tensor([[[[0.9, 0.8], [0.1, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    >>> metric.compute()
    tensor(1.)
    """

    higher_is_better = True

    def update(self, map: Tensor | Gaze, mask: Tensor) -> None:
        """Take in maps (B, 1, h, w) or a gaze, and masks (B, 1, H, W) or (B, H, W)."""
        map, mask = functional.aligned(map, mask)
        self.add(functional.pointing_accuracy(map, mask), mask.flatten(1).any(1))


class AttentionInside(ImageMean):
    """Mean over images of the share of attention inside the mask; images without an object are left out.

    >>> import torch
    >>> metric = AttentionInside()
    >>> metric.update(torch.tensor([[[[0.6, 0.2], [0.0, 0.0]]]]), torch.tensor([[[1, 0], [0, 0]]]))
    >>> metric.compute()
    tensor(0.7500)
    """

    higher_is_better = True

    def update(self, map: Tensor | Gaze, mask: Tensor) -> None:
        """Take in maps (B, 1, h, w) or a gaze, and masks (B, 1, H, W) or (B, H, W)."""
        map, mask = functional.aligned(map, mask)
        self.add(functional.attention_inside(map, mask), mask.flatten(1).any(1))


def where_metrics(threshold: Threshold = 0.5) -> MetricCollection:
    """The columns of a comparison that need masks: fitting_rate, catching_rate, pointing_accuracy, attention_inside.

    >>> list(where_metrics())
    ['fitting_rate', 'catching_rate', 'pointing_accuracy', 'attention_inside']
    """
    return in_order(
        fitting_rate=FittingRate(threshold),
        catching_rate=CatchingRate(threshold),
        pointing_accuracy=PointingAccuracy(),
        attention_inside=AttentionInside(),
    )


def in_order(**metrics: ImageMean) -> MetricCollection:
    """A collection that keeps the order of its metrics."""
    # Compute groups would take two metrics for one whenever they agree on the first batch, and these well may.
    collection = MetricCollection({}, compute_groups=False)
    for name, metric in metrics.items():  # one at a time, for a collection sorts the names that it gets at once
        collection.add_metrics({name: metric})
    return collection
