"""Is the map well made? Metrics of the map alone, without any ground truth."""

from typing import Literal

from torch import Tensor
from torchmetrics import MetricCollection

from foveate.gaze import Gaze
from foveate.metrics import functional
from foveate.metrics.mean import ImageMean
from foveate.metrics.where import in_order


class MapSmoothness(ImageMean):
    """Mean over images of the map's total variation over the unit square; smaller is smoother.

    >>> import torch
    >>> metric = MapSmoothness()
    >>> metric.update(torch.eye(2)[None, None])
    >>> metric.compute()
    tensor(1.7071)
    """

    higher_is_better = False

    def update(self, map: Tensor | Gaze) -> None:
        """Take in maps (B, 1, H, W) or a gaze, whose map is taken as it is."""
        self.add(functional.map_smoothness(map))


class MapEntropy(ImageMean):
    """Mean over images of the map's entropy over that of a uniform map: 1 looks everywhere alike, 0 at one pixel.

    >>> import torch
    >>> metric = MapEntropy()
    >>> metric.update(torch.tensor([[[[0.5, 0.5], [0.0, 0.0]]]]))
    >>> metric.compute()
    tensor(0.5000)
    """

    higher_is_better = None

    def update(self, map: Tensor | Gaze) -> None:
        """Take in maps (B, 1, H, W) or a gaze, whose map is taken as it is."""
        self.add(functional.map_entropy(map))


class EquivarianceError(ImageMean):
    """Mean over images of how far the gaze on a moved image is from the moved gaze; 0 is exactly equivariant.

    Args:
        of: "map" compares the maps over the pixels whose preimage the image shows, see
            `foveate.metrics.functional.equivariance_error`, and leaves out images moved wholly out of sight. "gaze"
            compares what defines them, `gaze.move(matrix).distance(seen)`, and needs gazes.

    >>> import torch
    >>> map = torch.rand(2, 1, 8, 8)
    >>> shift = torch.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]).expand(2, 2, 3)
    >>> metric = EquivarianceError()
    >>> metric.update(map, map.roll(4, dims=2), shift)
    >>> metric.compute().round(decimals=4)
    tensor(0.)
    """

    higher_is_better = False

    def __init__(self, of: Literal["map", "gaze"] = "map") -> None:
        super().__init__()
        if of not in ("map", "gaze"):
            raise ValueError(f"of must be 'map' or 'gaze', not {of!r}")
        self.of = of

    def update(self, gaze: Tensor | Gaze, seen: Tensor | Gaze, matrix: Tensor) -> None:
        """Take in the gaze of images, the gaze seen on the images moved by `matrix` (B, 2, 3), and that matrix."""
        if self.of == "gaze":
            if not (isinstance(gaze, Gaze) and isinstance(seen, Gaze)):
                raise TypeError("EquivarianceError(of='gaze') compares gazes; for maps use of='map'")
            self.add(gaze.move(matrix).distance(seen))
        else:
            map = gaze.map if isinstance(gaze, Gaze) else gaze
            known = functional.known_pixels(matrix.float(), (map.shape[2], map.shape[3]))
            self.add(functional.equivariance_error(gaze, seen, matrix), known.flatten(1).any(1).to(map.device))


def shape_metrics() -> MetricCollection:
    """The columns of a comparison that need no masks: smoothness, entropy.

    >>> list(shape_metrics())
    ['smoothness', 'entropy']
    """
    return in_order(smoothness=MapSmoothness(), entropy=MapEntropy())
