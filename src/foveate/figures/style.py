"""One look for every figure of the project: fonts, colours, the colour map of attention."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from zlib import crc32

from matplotlib import colormaps, font_manager, rc_context
from matplotlib.colors import Colormap, ListedColormap

INK = "#1f2430"  # text and axes; no other element has this colour, so a page may replace it by its own
MUTED = "#858b98"
RIM = "#ffffff"  # rims and centres of gazes, on a dark halo that keeps them visible on any photograph
TRUTH = "#7df9c4"  # outlines of what is known to be there
DPI = 160

# From the palettes of Okabe & Ito and of Tol, told apart by readers with any of the common colour deficiencies.
_OF_NAME = {"none": "#8b95a5", "positionwise": "#e69f00", "rectangular": "#0072b2", "cbam": "#cc79a7"}
_OTHERS = ("#009e73", "#d55e00", "#56b4e9", "#882255", "#8a8a24", "#332288", "#7c4f2a", "#44aa99")
_FONTS = ("Inter", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")
_FONTS_OF_OTHER_SCRIPTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Noto Sans Arabic",
)


def heat_colormap() -> Colormap:
    """The perceptually uniform colour map of attention: inferno without its darkest and lightest ends."""
    return ListedColormap([colormaps["inferno"](0.2 + 0.66 * i / 255) for i in range(256)], name="attention")


def colors(names: Iterable[str]) -> dict[str, str]:
    """A colour for each attention, the same one in every figure and whatever the order of the names.

    Names that no one has given a colour take one by their spelling; two such names in one figure never share one while
    there are colours left.

    >>> colors(["rectangular", "none"])
    {'rectangular': '#0072b2', 'none': '#8b95a5'}
    """
    names = list(names)
    chosen: dict[str, str] = {}
    for name in sorted(set(names) - set(_OF_NAME)):
        start = crc32(name.encode()) % len(_OTHERS)
        turns = [_OTHERS[(start + i) % len(_OTHERS)] for i in range(len(_OTHERS))]
        chosen[name] = next((color for color in turns if color not in chosen.values()), turns[0])
    return {name: _OF_NAME.get(name) or chosen[name] for name in names}


@cache
def _fonts() -> list[str]:
    installed = {font.name for font in font_manager.fontManager.ttflist}
    there = [name for name in _FONTS if name in installed][:1]
    return [*there, "DejaVu Sans", *(name for name in _FONTS_OF_OTHER_SCRIPTS if name in installed)]


@contextmanager
def styled() -> Iterator[None]:
    """The settings of matplotlib in which figures are made and written: a context, or a decorator."""
    with rc_context(
        {
            "font.family": _fonts(),
            "font.size": 9.0,
            "text.color": INK,
            "text.parse_math": False,  # a dollar sign in the name of a class is a dollar sign
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.titlesize": 10.0,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": False,
            "grid.color": "#8b95a5",
            "grid.alpha": 0.25,
            "grid.linewidth": 0.6,
            "xtick.color": INK,
            "ytick.color": INK,
            "xtick.major.width": 0.7,
            "ytick.major.width": 0.7,
            "lines.linewidth": 1.8,
            "lines.solid_capstyle": "round",
            "legend.frameon": False,
            "figure.dpi": DPI,
            "figure.facecolor": "white",
            "savefig.facecolor": "auto",
            "svg.fonttype": "none",
            "svg.hashsalt": "foveate",
        }
    ):
        yield
