"""Compatibility with the global feature: local features weighted by what the whole image is (Jetley et al. 2018)."""

from torch import Tensor, nn

from foveate.attention.base import check_positive
from foveate.gaze import Gaze, Look


class CompatibilityLook(Look):
    """A softmax over the plane of ⟨u, l + g⟩, l the local and g the global feature: the parametrised compatibility."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.compatibility = nn.Conv2d(channels, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Gaze:
        """Sums l + g, (B, C, H, W), to a gaze whose map sums to one."""
        scores = self.compatibility(x).float()
        return Gaze(scores.flatten(2).softmax(dim=2).reshape(scores.shape))


class CompatibilityAttention(nn.Module):
    """Local features, averaged by their compatibility with a global one.

    Args:
        channels: of the local features.
        width: of the global feature; local features of another width are projected to it.

    >>> CompatibilityAttention(16, 32)(torch.rand(2, 16, 7, 5), torch.rand(2, 32)).shape
    torch.Size([2, 32])
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        check_positive(channels=channels, width=width)
        self.project = nn.Conv2d(channels, width, 1, bias=False) if channels != width else nn.Identity()
        self.look = CompatibilityLook(width)

    def forward(self, x: Tensor, whole: Tensor) -> Tensor:
        """Local features (B, C, H, W) and a global one (B, width) to a vector (B, width)."""
        local: Tensor = self.project(x)
        gaze = self.look(local + whole[:, :, None, None])
        return (gaze.map.to(local.dtype) * local).sum(dim=(2, 3))
