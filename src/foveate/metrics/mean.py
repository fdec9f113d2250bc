"""The one state that every metric here keeps: a sum over images and how many there were, added up across processes."""

from torch import Tensor, tensor, zeros
from torchmetrics import Metric


class ImageMean(Metric):
    """The mean over images of a number that each image has, or of `many` numbers; 0 where no image has been seen."""

    is_differentiable = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, many: int | None = None) -> None:
        super().__init__()
        self.add_state("total", tensor(0.0) if many is None else zeros(many), dist_reduce_fx="sum")
        self.add_state("count", tensor(0.0), dist_reduce_fx="sum")

    def add(self, values: Tensor, counted: Tensor | None = None) -> None:
        """Take in the images' numbers (B,) or (B, many), or those of them that are `counted` (B,), boolean."""
        if counted is not None:
            values = values[counted]
        self.total += values.sum(0)
        self.count += len(values)

    def compute(self) -> Tensor:
        """The mean over all images seen, a scalar or (many,)."""
        return self.total / self.count.clamp_min(1)
