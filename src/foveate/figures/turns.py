"""look --turns: images turned and mirrored before trained networks; what they see is drawn, and measured."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from foveate.data.folders import BadFiles, ImageFiles
from foveate.data.transforms import Preprocess
from foveate.figures.files import save
from foveate.figures.look import Onlooker
from foveate.figures.rounds import Round, Strip, animate_rounds
from foveate.figures.turning import Panel, spread, turning
from foveate.groups import GROUPS, P4, Group, InexactStride
from foveate.metrics.turning import Sight, exact_size, group_of, inexact_strides, turn
from foveate.progress import counted

GAZES = 2  # drawn of each network where nothing is said


@dataclass(frozen=True)
class Case:
    """A network, and a size at which it takes images."""

    title: str
    model: Any
    preprocess: Preprocess

    def panel(self, image: Tensor, group: Group, where: Sequence[str]) -> Panel:
        """What it sees of an image, prepared for it."""
        turned = turn(self.model, image[None], group)
        names = [name for name in where if name in turned.sight.gazes] or spread(turned.sight, GAZES)
        sure, labels = turned.sight.logits.softmax(1).max(1)
        says = [
            f"{self.model.class_names[k]}, {share:.0%}" for k, share in zip(labels.tolist(), sure.tolist(), strict=True)
        ]
        return Panel(self.title, self.preprocess.unnormalise(image), turned, names, says)

    def strip(self, panel: Panel, way: Round) -> Strip:
        """The same panel, moving."""
        return Strip(panel, self.preprocess.unnormalise(way.images), Sight.of(self.model, way.images))


class Turns:
    """Networks before images that are turned and, for a group that mirrors, mirrored.

    A network whose strides make it equivariant only roughly at the size of its images (equivariant, Appendix C) is
    seen at the next larger size as well at which they do not.

    Args:
        onlookers: the networks.
        group: the name of the symmetries; None takes the largest that the networks' layers have, p4 where none has any.
        where: layers whose gazes are drawn; empty for some from the first to the last.

    Attributes:
        errors: by network, then by gaze and "logits": the largest error so far, in parts of what these span.
    """

    def __init__(self, onlookers: Sequence[Onlooker], group: str | None = None, where: Sequence[str] = ()) -> None:
        if group is not None and group not in GROUPS:
            raise ValueError(f"no group is named {group!r}; there are: {', '.join(GROUPS)}")
        own = [own for onlooker in onlookers if (own := group_of(onlooker.model))]
        self.group = GROUPS[group] if group else max(own, key=len, default=P4)
        self.where = tuple(where)
        self.cases = [case for onlooker in onlookers for case in _cases(onlooker.name, onlooker.model)]
        self.errors: dict[str, dict[str, float]] = {case.title: {} for case in self.cases}

    def draw(self, files: ImageFiles, out: Path) -> Iterator[Path]:
        """Write a still and an animation of each image, and give their paths."""
        for index in counted(range(len(files)), "Turning"):
            item = files[index]
            panels, stem = self.panels(item.image), Path(item.name).stem
            yield save(turning(panels), out / f"{stem}-turns.png")
            ways = [Round.of(case.preprocess(item.image), self.group) for case in self.cases]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InexactStride)
                strips = [case.strip(panel, way) for case, panel, way in zip(self.cases, panels, ways, strict=True)]
            yield animate_rounds(out / f"{stem}-turns-animated.png", strips, ways[0].elements)
        if files.problems:
            warnings.warn(files.report(limit=5), BadFiles, stacklevel=2)

    def lines(self) -> list[str]:
        """The errors, a line for each."""
        rows = [(title, name, error) for title, errors in self.errors.items() for name, error in errors.items()]
        first = max((len(title) for title, _, _ in rows), default=0)
        second = max((len(name) for _, name, _ in rows), default=0)
        return [f"{title:{first}}  {name:{second}}  {100 * error:10.5f} %" for title, name, error in rows]

    def panels(self, picture: Tensor) -> list[Panel]:
        """What each network sees of an image (3, H, W) of any size, moved by every element; errors are noted."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InexactStride)  # the figure says it
            panels = [case.panel(case.preprocess(picture), self.group, self.where) for case in self.cases]
        self._check_names(panels)
        for panel in panels:
            self._measure(panel)
        return panels

    def _measure(self, panel: Panel) -> None:
        turned = panel.turned
        errors = {name: float(turned.errors(name).max()) for name in turned.sight.gazes}
        errors["logits"] = float(turned.logit_errors().max())
        so_far = self.errors[panel.title]
        so_far.update({name: max(error, so_far.get(name, 0.0)) for name, error in errors.items()})

    def _check_names(self, panels: Sequence[Panel]) -> None:
        there = [name for panel in panels for name in panel.turned.sight.gazes]
        unknown = [name for name in self.where if name not in there]
        if unknown:
            raise ValueError(f"no gaze is at {', '.join(unknown)}; there are: {', '.join(dict.fromkeys(there))}")


def _cases(name: str, model: Any) -> list[Case]:
    """A network at its own size and, where its strides are exact only at another, at that as well."""
    prepare: Preprocess = model.preprocess
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactStride)
        if not inexact_strides(model, len(prepare.mean), prepare.size):
            return [Case(name, model, prepare)]
        exact = exact_size(model, len(prepare.mean), prepare.size)
    sizes = {prepare.size: "approximate"} | ({exact: "exact"} if exact else {})
    return [
        Case(f"{name}, {size} × {size}: {regime}", model, replace(prepare, size=size)) for size, regime in sizes.items()
    ]
