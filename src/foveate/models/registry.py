"""Every attention that has a name: what takes part in `foveate compare` and what a checkpoint may ask for.

A new mechanism takes part by one `register` below.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from foveate.attach import attach
from foveate.attention import CBAMAttention, PositionwiseAttention, RectangularAttention
from foveate.groups import P4, P4M, Group, convert
from foveate.models.ends import put_activation, put_bottleneck, put_branch, put_head
from foveate.pooling import ContinuousPool, DiscretePool, Pool

Put = Callable[[nn.Module, Sequence[str], Mapping[str, Any]], nn.Module]


@dataclass(frozen=True)
class Entry:
    """A named attention.

    Attributes:
        name: as on the command line and in tables.
        summary: half a line for help texts and reports.
        put: takes a backbone, the layers to attend after and options, and returns the attended network.
        equivariance: the default weight λ of the equivariance term when it is trained.
        pools: whether it takes the place of the global pooling, rather than modulating the last feature map.
        anew: whether it makes the backbone's layers anew, so that this cannot start from weights.
    """

    name: str
    summary: str
    put: Put
    equivariance: float = 0.0
    pools: bool = False
    anew: bool = False


_ENTRIES: dict[str, Entry] = {}


def register(entry: Entry) -> Entry:
    """Give an attention its name; a name is given once.

    >>> register(Entry("mine", "an attention of my own", attaching(PositionwiseAttention))).name   # doctest: +SKIP
    'mine'
    """
    if entry.name in _ENTRIES:
        raise ValueError(f"an attention named {entry.name!r} is registered already")
    _ENTRIES[entry.name] = entry
    return entry


def entry(name: str) -> Entry:
    """The attention of that name; an unknown name says the near ones.

    >>> entry("rectangular").summary
    'one soft rotated rectangle'
    """
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(_ENTRIES)}"
        raise ValueError(f"no attention is named {name!r}; {hint}")
    return _ENTRIES[name]


def names() -> list[str]:
    """All names, in the order of tables."""
    return list(_ENTRIES)


def attaching(attention: type[nn.Module], **defaults: Any) -> Put:
    """The way most attentions are put into a backbone: `foveate.attach`, with these options unless others are given."""
    return partial(_attach, attention, defaults)


def _attach(
    attention: type[nn.Module],
    defaults: Mapping[str, Any],
    model: nn.Module,
    where: Sequence[str],
    options: Mapping[str, Any],
) -> nn.Module:
    return attach(model, where, attention, **{**defaults, **options})


def _nothing(model: nn.Module, where: Sequence[str], options: Mapping[str, Any]) -> nn.Module:
    return model


def _convert(
    group: Group, defaults: Mapping[str, Any], model: nn.Module, where: Sequence[str], options: Mapping[str, Any]
) -> nn.Module:
    return convert(model, group, **{**defaults, **options})


register(Entry("none", "the backbone as it is", _nothing))
register(Entry("positionwise", "a value for each position by itself", attaching(PositionwiseAttention)))
register(Entry("cbam", "CBAM's spatial attention", attaching(CBAMAttention)))
register(Entry("rectangular", "one soft rotated rectangle", attaching(RectangularAttention, coordinates=True)))
register(
    Entry(
        "rectangular-equivariant",
        "one rectangle, trained to move with the image",
        attaching(RectangularAttention, coordinates=True),
        equivariance=0.1,
    )
)
register(
    Entry("ellipse", "one soft rotated ellipse", attaching(RectangularAttention, coordinates=True, shape="ellipse"))
)
register(Entry("rectangles-3", "three rectangles united", attaching(RectangularAttention, coordinates=True, count=3)))
register(Entry("bottleneck", "a drawn map, starved of information", put_bottleneck))
register(Entry("bottleneck-quantised", "one rounded to learned anchors", partial(put_bottleneck, anchors=20)))
register(Entry("dvib", "no attention, but a code starved of information", put_head))
register(
    Entry(
        "progressive",
        "a filter of positions by their surroundings",
        attaching(PositionwiseAttention, widths=(64,), combine="multiply"),
    )
)
register(Entry("attention-branch", "what a side classifier goes by", put_branch))
register(Entry("class-activation", "none, and what its class goes by", put_activation, pools=True))
for _group, _moved in ((P4, "turned"), (P4M, "turned or mirrored")):
    _summary = f"no attention; a counterpart, as large, that sees a {_moved} image alike"
    register(Entry(f"equivariant-{_group.name}", _summary, partial(_convert, _group, {}), anew=True))
    _put = partial(_convert, _group, {"attention": "input"})
    register(
        Entry(
            f"equivariant-{_group.name}-attentive", "that with α_F in every convolution, turning too", _put, anew=True
        )
    )


@dataclass(frozen=True)
class Pooling:
    """A named pooling: `kind(channels, **options)`, and half a line for help texts."""

    kind: type[Pool]
    options: Mapping[str, Any]
    summary: str


POOLINGS = {
    "softmax-pool": Pooling(DiscretePool, {}, "an average of positions, weighted by softmax"),
    "sparsemax-pool": Pooling(DiscretePool, {"transform": "sparsemax"}, "one with exact zeros"),
    "entmax-pool": Pooling(DiscretePool, {"transform": "entmax"}, "one between the two, its α learned"),
    "tvmax-pool": Pooling(DiscretePool, {"transform": "tvmax"}, "one with exact zeros and connected regions"),
    "continuous-softmax": Pooling(ContinuousPool, {}, "an expectation under a Gaussian"),
    "continuous-sparsemax": Pooling(ContinuousPool, {"alpha": 2}, "one under a truncated paraboloid"),
    "mixture-2": Pooling(ContinuousPool, {"modes": 2, "steps": 2}, "one under a mixture of two Gaussians"),
    "mixture-4": Pooling(ContinuousPool, {"modes": 4, "steps": 5}, "one under a mixture of four Gaussians"),
    "mixture-selected": Pooling(ContinuousPool, {"most": 5}, "one under as many as an image needs"),
}


def pooling(name: str, channels: int, **options: Any) -> Pool:
    """A pooling by its name, for features of so many channels.

    >>> pooling("sparsemax-pool", 16)(torch.rand(2, 16, 7, 5)).shape
    torch.Size([2, 16])
    """
    if name not in POOLINGS:
        near = difflib.get_close_matches(name, POOLINGS, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(POOLINGS)}"
        raise ValueError(f"no pooling is named {name!r}; {hint}")
    kind: Callable[..., Pool] = POOLINGS[name].kind
    return kind(channels, **{**POOLINGS[name].options, **options})


for _name, _pooling in POOLINGS.items():
    register(Entry(_name, _pooling.summary, partial(_attach, _pooling.kind, _pooling.options), pools=True))
