"""Attention branch: a side classifier whose evidence, before it is averaged, is the map (Fukui et al. 2019)."""

from dataclasses import dataclass

from torch import Tensor, nn

from foveate.attention.base import CombineName, SpatialAttention, check_positive
from foveate.gaze import Gaze, Look


@dataclass(eq=False)
class BranchGaze(Gaze):
    """The map of an attention branch, and the logits of its side classifier.

    Attributes:
        map: (B, 1, H, W).
        branch_logits: (B, classes), to be trained on the labels as well; the training objective does.
    """

    branch_logits: Tensor

    @property
    def penalty(self) -> Tensor:
        """Zero, though it has a price: what the side classifier asks for depends on the labels, and is added there."""
        return self.map.new_zeros(())


class Evidence(nn.Sequential):
    """A value for each class at every position: a trunk, batch norm, Conv 1×1 to the classes, batch norm, ReLU."""

    def __init__(self, channels: int, classes: int, trunk: nn.Module | None = None) -> None:
        convolve = nn.Conv2d(channels, classes, 1, bias=False)
        layers = nn.BatchNorm2d(channels), convolve, nn.BatchNorm2d(classes), nn.ReLU()
        super().__init__(trunk if trunk is not None else nn.Identity(), *layers)


class MapOfEvidence(nn.Sequential):
    """Conv 3×3 over the evidence of all classes, and batch norm: the scores of a map."""

    def __init__(self, classes: int) -> None:
        super().__init__(nn.Conv2d(classes, 1, 3, padding=1, bias=False), nn.BatchNorm2d(1))


class BranchLook(Look):
    """Evidence for each class; from it a map, and the logits of a side classifier.

    Args: those of `BranchAttention`.
    """

    def __init__(self, channels: int, classes: int, trunk: nn.Module | None = None) -> None:
        super().__init__()
        check_positive(channels=channels, classes=classes)
        self.evidence = Evidence(channels, classes, trunk)
        self.scores = MapOfEvidence(classes)
        self.vote = nn.Conv2d(classes, classes, 1, bias=False)

    def forward(self, x: Tensor) -> BranchGaze:
        """Features (B, C, H, W) to a gaze."""
        evidence = self.evidence(x)
        return BranchGaze(self.scores(evidence).float().sigmoid(), self.vote(evidence).mean(dim=(2, 3)))


class BranchAttention(SpatialAttention):
    """An attention branch, x + f(x)·x, trained by a classifier of its own beside the network's.

    Args:
        channels: that the trunk returns; without a trunk, of the features it is put behind.
        classes: of the side classifier.
        trunk: layers of the branch before its evidence.
        combine: "residual" (its paper's), "multiply" or "suppress".

    >>> BranchAttention(16, classes=5)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16, 7, 5])
    """

    def __init__(
        self, channels: int, classes: int, trunk: nn.Module | None = None, combine: CombineName = "residual"
    ) -> None:
        super().__init__(BranchLook(channels, classes, trunk), combine)
