import subprocess
import sys
from itertools import pairwise

import numpy as np

from foveate.figures.style import colors, heat_colormap


def test_a_name_has_one_colour() -> None:
    names = ["none", "rectangular", "mine", "yours", "theirs", "cbam"]
    forward, backward = colors(names), colors(reversed(names))
    assert forward == backward
    assert len(set(forward.values())) == len(names)
    assert colors(["rectangular"])["rectangular"] == forward["rectangular"]
    assert len(colors(map(str, range(40)))) == 40  # more names than colours


def test_the_colour_map_gets_lighter_all_the_way() -> None:
    lightness = heat_colormap()(np.linspace(0, 1, 64))[:, :3] @ [0.299, 0.587, 0.114]
    assert all(a < b for a, b in pairwise(lightness))


def test_figures_need_matplotlib_alone_and_leave_its_state() -> None:
    code = """
import sys, matplotlib
def settings():  # but not the backend, for asking for it imports pyplot
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if "backend" not in name}
before = settings()
import foveate.figures, torch
foveate.figures.grid(torch.rand(1, 3, 8, 8), {})
assert settings() == before
print(*(m for m in ("pandas", "torchvision", "lightning", "timm", "matplotlib.pyplot") if m in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
