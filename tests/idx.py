"""Files in MNIST's format."""

import struct
from pathlib import Path

import numpy as np


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write uint8 values of any shape."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + shape + values.tobytes())
