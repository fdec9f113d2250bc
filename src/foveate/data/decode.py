"""Decode: an image file to (3, H, W) uint8, whatever kind of pixels it holds; a file that cannot be is a `BadImage`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

ENDINGS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}  # how a whole file of a format ends


class BadImage(ValueError):
    """A file is not an image that can be used; the text says why."""


def read_image(path: str | Path) -> Tensor:
    """The image (3, H, W) uint8 in a file: upright, in colour, on white where it is transparent."""
    with open_image(path) as image:
        try:
            return to_tensor(image)
        except BadImage:
            raise
        except Exception as error:  # Pillow's plugins fail in many ways on broken files
            raise BadImage(f"cannot be decoded: {error}") from error


def check_image(path: str | Path) -> None:
    """Raise `BadImage` if a file is no image that can be used, from its first and last bytes where these suffice."""
    with open_image(path) as image:
        ending = ENDINGS.get(image.format or "")
    with open(path, "rb") as file:
        file.seek(-min(64, os.path.getsize(path)), os.SEEK_END)
        cut_short = ending is not None and ending not in file.read()
    if cut_short:  # or there is something behind the image, so only decoding it tells
        read_image(path)


def open_image(path: str | Path) -> Image.Image:
    """The image in a file, its pixels not read yet; one of more than PIL.Image.MAX_IMAGE_PIXELS is refused."""
    try:
        if os.path.getsize(path) == 0:
            raise BadImage("is empty (zero bytes)")
        image = Image.open(path)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("is not an image, or of an unknown format") from None
    except Image.DecompressionBombError as error:
        raise BadImage(f"is huge: {error}") from None
    except Exception as error:  # Pillow's plugins fail in many ways on broken files
        raise BadImage(f"cannot be opened: {error}") from error
    limit, (width, height) = Image.MAX_IMAGE_PIXELS, image.size
    if limit is not None and width * height > limit:  # up to twice that, Pillow warns only
        image.close()
        raise BadImage(f"is huge: {width} x {height} pixels, more than PIL.Image.MAX_IMAGE_PIXELS = {limit:,}")
    return image


def to_tensor(image: Image.Image) -> Tensor:
    """A Pillow image of any mode to (3, H, W) uint8: upright as its EXIF says, on white where it is transparent.

    >>> to_tensor(Image.new("RGBA", (2, 1), (255, 0, 0, 0)))[:, 0, 0]
    tensor([255, 255, 255], dtype=torch.uint8)
    """
    image = to_rgb(ImageOps.exif_transpose(image))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def to_rgb(image: Image.Image) -> Image.Image:
    """A Pillow image of any mode in RGB. Sixteen bits become eight, and what is transparent becomes white."""
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        pixels = np.asarray(image).astype(np.int64)
        if pixels.max(initial=0) > 255:  # Pillow would clip these, not scale them
            pixels = pixels >> 8
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise BadImage("has floating-point pixels, whose range is not known; convert it to 8 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
