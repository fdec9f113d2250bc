"""Figures to files, whole or not at all."""

import io
import os
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from foveate.figures.style import DPI, styled
from foveate.files import writing


def write(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file whole or not at all; its folder is made if it is not there."""
    with writing(path) as beside:
        beside.write_bytes(data)
    return Path(path)


def encode(figure: Figure, format: str = "png", dpi: float = DPI, tight: bool = True) -> bytes:
    """A figure as the bytes of a PNG, SVG or PDF; `tight` trims the margins."""
    buffer = io.BytesIO()
    with styled():
        if figure.canvas.__class__ is not FigureCanvasAgg:
            FigureCanvasAgg(figure)
        metadata = {"Date": None} if format == "svg" else None
        box = "tight" if tight else None
        figure.savefig(buffer, format=format, dpi=dpi, bbox_inches=box, pad_inches=0.08, metadata=metadata)
    return buffer.getvalue()


def save(figure: Figure, path: str | os.PathLike[str], dpi: float = DPI) -> Path:
    """Write a figure; the ending of `path` says how: .png, .svg or .pdf.

    >>> from tempfile import mkdtemp
    >>> save(Figure(figsize=(1, 1)), Path(mkdtemp()) / "empty.png").stat().st_size > 0
    True
    """
    format = Path(path).suffix.lstrip(".").lower()
    if format not in ("png", "svg", "pdf"):
        raise ValueError(f"a figure is written as .png, .svg or .pdf, not {Path(path).name!r}")
    return write(path, encode(figure, format, dpi))
