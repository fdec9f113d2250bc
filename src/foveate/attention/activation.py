"""Class activation maps: where the features speak for the class that a network chose (Zhou et al. 2016)."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from foveate.attention.base import check_positive
from foveate.gaze import Gaze, Look


@dataclass(eq=False)
class ActivationGaze(Gaze):
    """A class activation map, brought to [0, 1] on each image, and the logits that chose its class.

    Attributes:
        map: (B, 1, H, W).
        logits: (B, classes).
    """

    logits: Tensor


class ActivationLook(Look):
    """Logits from averaged features; the map is what each position adds to the largest of them."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        check_positive(channels=channels, classes=classes)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> ActivationGaze:
        """Features (B, C, H, W) to a gaze."""
        return class_activation(x, self.classifier)


def class_activation(x: Tensor, classifier: nn.Linear) -> ActivationGaze:
    """What each position of features (B, C, H, W) adds to the largest logit of a classifier of their average.

    >>> class_activation(torch.rand(2, 16, 7, 5), nn.Linear(16, 3)).map.shape
    torch.Size([2, 1, 7, 5])
    """
    logits = classifier(x.mean(dim=(2, 3)))
    weights = classifier.weight[logits.detach().argmax(dim=1)]  # (B, C)
    scores = (weights[:, :, None, None] * x).sum(dim=1, keepdim=True).float()
    low, high = scores.amin(dim=(2, 3), keepdim=True), scores.amax(dim=(2, 3), keepdim=True)
    return ActivationGaze((scores - low) / (high - low).clamp_min(1e-12), logits)


class ActivationHead(nn.Module):
    """A global average and a linear classifier, whose class activation maps `watch` sees.

    >>> ActivationHead(16, classes=5)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 5])
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.look = ActivationLook(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, H, W) to logits (B, classes)."""
        return cast(ActivationGaze, self.look(x)).logits


class BorrowedActivationLook(Look):
    """A look through a classifier that is the network's own."""

    def __init__(self, classifier: nn.Linear) -> None:
        super().__init__()
        self._lent = (classifier,)  # in a tuple it is no child: its names and its training stay the network's

    def forward(self, x: Tensor) -> ActivationGaze:
        """Features (B, C, H, W) to a gaze."""
        return class_activation(x, *self._lent)


class ActivationPool(nn.Module):
    """A network's global average as it was, with the class activation map that `watch` sees.

    Args:
        channels: of the features.
        classifier: that the network has behind its global average.

    >>> ActivationPool(16, nn.Linear(16, 3))(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16])
    """

    pools = True

    def __init__(self, channels: int, classifier: nn.Linear) -> None:
        super().__init__()
        if classifier.in_features != channels:
            raise ValueError(
                f"class activation maps need a classifier of the averaged features alone, but it takes "
                f"{classifier.in_features} numbers of {channels} channels"
            )
        self.look = BorrowedActivationLook(classifier)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, H, W) to their average (B, C)."""
        self.look(x)
        return x.mean(dim=(2, 3))
