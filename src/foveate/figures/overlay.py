"""One gaze on one image: heat, rim, contour, spotlight.

Axes are in pixels of the image, so that the point (row, column) of the unit square is drawn at (column·W, row·H).
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from foveate.figures.style import RIM, TRUTH, heat_colormap
from foveate.gaze import Gaze
from foveate.geometry import pixel_centers, rotation

Array = NDArray[np.float32]
Images = Tensor | Sequence[Tensor]

_HALO = "#00000080"
_LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_SHORT_SIDE, _LONG_SIDE = 192, 720  # what is drawn lies between: maps stay smooth on thumbnails, files stay small


def image_list(images: Images) -> list[Tensor]:
    """Images (3, H, W), (1, H, W), (B, 3, H, W) or a sequence of them, of sizes that may differ, as float (3, H, W).

    >>> [tuple(image.shape) for image in image_list(torch.rand(2, 1, 4, 5))]
    [(3, 4, 5), (3, 4, 5)]
    """
    if isinstance(images, Tensor):
        images = list(images) if images.ndim == 4 else [images]
    if len(images) == 0:
        raise ValueError("there are no images to draw: give at least one")
    return [_check(image) for image in images]


def _check(image: Tensor) -> Tensor:
    if image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
        raise ValueError(f"an image to draw has shape (3, H, W) or (1, H, W), not {tuple(image.shape)}")
    image = image.detach().cpu()
    image = image.float() if image.is_floating_point() else image.float() / 255
    if not (image.min() >= -0.1 and image.max() <= 1.1):  # written so that NaN is caught
        low, high = float(image.min()), float(image.max())
        raise ValueError(f"an image to draw has values in [0, 1], not [{low:.2f}, {high:.2f}]: undo its normalisation")
    return image.clamp(0, 1).expand(3, -1, -1)


def scaled_map(gaze: Gaze, size: tuple[int, int], index: int = 0) -> Array:
    """The map of one image at `size` (H, W), divided by its largest value: the eye compares where, not how much."""
    if not 0 <= index < len(gaze):
        raise ValueError(f"image {index} has no gaze: the gaze is of {len(gaze)} images")
    values = gaze.apply(lambda t: t[index : index + 1]).detach().render(size)[0, 0].clamp_min(0)
    array: Array = (values / values.max().clamp_min(1e-12)).numpy()
    return array


def heat(image: Array, map: Array, strength: float = 0.75) -> Array:
    """Blend the colours of attention over an image (H, W, 3) that is half drained of its own, by the map (H, W).

    The colours take on the lights and shadows of the image, so that what was looked at is still seen.
    """
    grey = (image @ _LUMINANCE)[..., None]
    base = 0.5 * image + 0.5 * grey
    colored = heat_colormap()(map)[..., :3].astype(np.float32) * (0.5 + 0.5 * grey) + 0.15 * grey
    alpha = strength * map[..., None]
    blended: Array = ((1 - alpha) * base + alpha * colored).clip(0, 1)
    return blended


def spotlight(image: Array, map: Array, floor: float = 0.25) -> Array:
    """Darken an image (H, W, 3) where the map (H, W) is low; `floor` is the light that is left there."""
    grey = (image @ _LUMINANCE)[..., None]
    light = map[..., None]
    lit: Array = light * image + (1 - light) * floor * (0.35 * image + 0.65 * grey)
    return lit


def rims(gaze: Gaze, index: int = 0, points: int = 96) -> list[Array]:
    """The rims of a gaze that has a centre, extents and an angle, as polygons (N, 2) of the unit square; else none.

    A rectangle has four corners, an ellipse or a superellipse `points`. They are the lines u = ±1 of rectangular (2).

    >>> from foveate.attention.rectangular import RectangleGaze
    >>> gaze = RectangleGaze.draw(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.125]]), torch.zeros(1), (8, 8))
    >>> rims(gaze)[0].tolist()
    [[0.25, 0.375], [0.25, 0.625], [0.75, 0.625], [0.75, 0.375]]
    """
    if not all(isinstance(getattr(gaze, field, None), Tensor) for field in ("center", "extent", "angle")):
        return []
    center, extent, angle = (
        getattr(gaze, field)[index].detach().cpu().float() for field in ("center", "extent", "angle")
    )
    unit = _unit_rim(getattr(gaze, "shape", "rectangle"), points)
    center, extent, angle = center.reshape(-1, 2), extent.reshape(-1, 2), angle.reshape(-1)
    corners = (unit * extent[:, None]) @ rotation(angle).mT + center[:, None]
    return [polygon.numpy() for polygon in corners]


def _unit_rim(shape: str, points: int) -> Tensor:
    if shape == "rectangle":
        return torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    turn = torch.arange(points) * (2 * torch.pi / points)
    circle = torch.stack([turn.sin(), turn.cos()], dim=1)
    return circle if shape == "ellipse" else circle.sign() * circle.abs().sqrt()  # u1⁴ + u2⁴ = 1


def _array(image: Tensor) -> Array:
    """An image (3, H, W) at the size it is drawn in, (H, W, 3)."""
    height, width = image.shape[1:]
    if min(height, width) < _SHORT_SIDE:
        times = -(-_SHORT_SIDE // min(height, width))
        image = image.repeat_interleave(times, 1).repeat_interleave(times, 2)
    elif max(height, width) > _LONG_SIDE:
        factor = _LONG_SIDE / max(height, width)
        size = (max(1, round(height * factor)), max(1, round(width * factor)))
        image = F.interpolate(image[None], size, mode="bilinear", antialias=True)[0].clamp(0, 1)
    array: Array = image.permute(1, 2, 0).numpy()
    return array


def _show(ax: Axes, image: Tensor, change: Callable[[Array], Array] | None = None) -> None:
    """Draw an image (3, H, W), its colours changed by `change`, in axes without ticks."""
    array = _array(image)
    height, width = image.shape[1:]
    ax.imshow(change(array) if change else array, extent=(0, width, height, 0), interpolation="antialiased")
    ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def outline(ax: Axes, gaze: Gaze, size: tuple[int, int], index: int = 0, color: str = RIM, width: float = 1.4) -> None:
    """Draw the rims of a gaze and their centres; nothing where the gaze has none. `size` is (H, W) of the image."""
    halo = [withStroke(linewidth=width + 1.2, foreground=_HALO)]
    frame = Rectangle((0, 0), size[1], size[0], transform=ax.transData)
    for rim in rims(gaze, index):
        xy = rim[:, ::-1] * (size[1], size[0])
        patch = Polygon(xy, fill=False, edgecolor=color, linewidth=width, joinstyle="round", path_effects=halo)
        ax.add_patch(patch).set_clip_path(frame)
        x, y = xy.mean(0)
        (mark,) = ax.plot(x, y, "+", color=color, markersize=4 * width, markeredgewidth=0.7 * width, path_effects=halo)
        mark.set_clip_path(frame)


def contour(
    ax: Axes,
    values: Tensor,
    size: tuple[int, int],
    levels: Sequence[float] = (0.25, 0.5, 0.75),
    color: str = RIM,
    width: float = 1.2,
) -> None:
    """Draw the lines where values (H', W') cross the levels, on an image of `size` (H, W)."""
    values = values.detach().cpu().float()
    framed = F.pad(values, (1, 1, 1, 1))  # so that what runs over the edge of the image is closed there
    rows, columns = (_framed(pixel_centers(n, values)) * length for n, length in zip(values.shape, size, strict=True))
    reached = [level for level in levels if level < framed.max()]
    if reached:
        lines = ax.contour(columns, rows, framed, levels=reached, colors=[color], linewidths=width)
        lines.set_path_effects([withStroke(linewidth=width + 1.0, foreground=_HALO)])


def _framed(centers: Tensor) -> Array:
    edge = centers[0] / 1000
    framed: Array = torch.cat([edge[None], centers, 1 - edge[None]]).numpy()
    return framed


HOW = ("overlay", "spotlight", "outline", "contour", "image")


def parse_how(how: str) -> list[str]:
    """The parts of a way of drawing, "overlay+outline"; an unknown one is an error that names them."""
    parts = how.split("+")
    for part in parts:
        if part not in HOW:
            raise ValueError(f"a gaze is drawn as one of {', '.join(HOW)}, or several joined by '+', not {part!r}")
    return parts


def draw(
    ax: Axes,
    image: Tensor,
    gaze: Gaze | None = None,
    how: str = "overlay",
    index: int = 0,
    mask: Tensor | None = None,
    truth: Gaze | None = None,
) -> None:
    """Draw an image (3, H, W) and the gaze of it.

    Args:
        ax: where.
        image: values in [0, 1].
        gaze: of a batch of images; None draws the image alone.
        how: "overlay" (heat), "spotlight", "outline", "contour", "image", or several joined by "+".
        index: which image of the gaze's batch this is.
        mask: (H', W') or (1, H', W'), what is known to be there, drawn as a line.
        truth: a gaze known to be right, of the same batch as `gaze`; its rim is drawn in the colour of the mask.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> draw(ax, torch.rand(3, 8, 8), Gaze(torch.rand(1, 1, 2, 2)), how="spotlight+contour")
    """
    image, parts = _check(image), parse_how(how)
    size = (image.shape[1], image.shape[2])
    change: Callable[[Array], Array] | None = None
    if gaze is not None and {"overlay", "spotlight"} & set(parts):
        blend = heat if "overlay" in parts else spotlight
        change = lambda array: blend(array, scaled_map(gaze, array.shape[:2], index))  # noqa: E731
    _show(ax, image, change)
    if mask is not None:
        contour(ax, mask.reshape(mask.shape[-2:]), size, (0.5,), TRUTH, width=1.0)
    if truth is not None:
        outline(ax, truth, size, index, TRUTH, width=1.0)
    if gaze is not None and "contour" in parts:
        contour(ax, torch.from_numpy(scaled_map(gaze, _map_size(size), index)), size)
    if gaze is not None and "outline" in parts:
        outline(ax, gaze, size, index)


def _map_size(size: tuple[int, int]) -> tuple[int, int]:
    factor = _SHORT_SIDE / min(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
