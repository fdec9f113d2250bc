"""SpatialAttention: look, then apply. The module that every modulating mechanism is an instance of."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from foveate.gaze import Look

CombineName = Literal["multiply", "residual", "suppress"]


class Combine(nn.Module):
    """Apply a map (B, 1, H, W) to features (B, C, H, W).

    Args:
        mode: "multiply" gives f·x, "residual" x + f·x, "suppress" x − f·x.
        rescale: first divide the map by its mean over the plane, so that what the map takes away is given back in
            scale (rectangular, "Rescaling").
    """

    def __init__(self, mode: CombineName = "residual", rescale: bool = False) -> None:
        super().__init__()
        if mode not in ("multiply", "residual", "suppress"):
            raise ValueError(f"combine must be 'multiply', 'residual' or 'suppress', not {mode!r}")
        self.mode = mode
        self.rescale = rescale

    def forward(self, x: Tensor, map: Tensor) -> Tensor:
        """Combine x (B, C, H, W) with the map (B, 1, H, W)."""
        if self.rescale:
            map = map / map.mean(dim=(2, 3), keepdim=True).clamp_min(1e-6)  # f·HW/Σf
        if self.mode == "residual":
            map = 1 + map  # rectangular (5)
        elif self.mode == "suppress":
            map = 1 - map
        return x * map.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return f"{self.mode!r}, rescale={self.rescale}"


class SpatialAttention(nn.Module):
    """Look where to look, then apply: `combine(x, look(x).map)`.

    Args:
        look: the half that decides; its output is what `foveate.watch` shows.
        combine: how the map meets the features, see `Combine`.
        rescale: see `Combine`.
    """

    def __init__(self, look: Look, combine: CombineName = "residual", rescale: bool = False) -> None:
        super().__init__()
        self.look = look
        self.combine = Combine(combine, rescale)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, H, W) to features of the same shape."""
        gaze = self.look(x)
        attended: Tensor = self.combine(x, gaze.map)
        return attended


def check_positive(**numbers: float | Sequence[float]) -> None:
    """A short error for constructor arguments, or lists of them, that must be positive."""
    for name, given in numbers.items():
        several = given if isinstance(given, Sequence) else [given]
        if not several:
            raise ValueError(f"{name} must name at least one number, not {given}")
        if not all(number > 0 for number in several):
            raise ValueError(f"{name} must be positive, not {given}")


def check_kernel(size: int) -> None:
    """A short error for a kernel that would change the size of what it looks at."""
    if size < 1 or size % 2 == 0:
        raise ValueError(f"kernel_size must be odd, not {size}")
