"""Make a trained network one that comes with the package, under a name for `foveate.load`.

python tools/ship.py runs/rot-mnist/runs/alpha-p4-seed0/network.safetensors rotmnist-alpha-p4

What the run found out about it, in its `result.json`, goes into the notes of the network. Whoever installs the package
downloads the file, so it may have 400 KB at most; --half keeps 16 bits of each number.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveate import models
from foveate.models.files import PACKAGED
from foveate.training.keep import BEST
from foveate.training.runs import RESULT

MOST = 400_000  # bytes


def ship(network: Path, name: str, folder: Path, half: bool) -> Path:
    """The file of a network under its name in a folder; an error where it is too large."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"a name is made of small letters and digits with hyphens between, not {name!r}")
    model: Any = models.load(network)
    result = network.parent / RESULT
    found = json.loads(result.read_text()) if result.is_file() else {}
    best = found.pop("error_best", None)
    notes = {**model.notes, **found, **({"error": best} if network.name == BEST and best is not None else {})}
    path = folder / f"{name}.safetensors"
    models.save(model.half() if half else model, model.recipe, model.preprocess, path, notes)
    if (size := path.stat().st_size) > MOST:
        path.unlink()
        raise ValueError(
            f"{network} takes {size:,} bytes, and {MOST:,} are the most" + ("" if half else "; try --half")
        )
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path, help="network.safetensors or best.safetensors of a run")
    parser.add_argument("name", help="for foveate.load")
    parser.add_argument("--half", action="store_true", help="16 bits for each number")
    parser.add_argument("--folder", type=Path, default=PACKAGED, help="where it goes: among the package's own")
    options = parser.parse_args(arguments)
    try:
        path = ship(options.network, options.name, options.folder, options.half)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
