"""PoseGaze: where an attention over a group looks, for each pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from foveate.gaze import Gaze
from foveate.geometry import warp
from foveate.groups.symmetries import Group


@dataclass(eq=False)
class PoseGaze(Gaze):
    """Where an attention looks in each pose.

    The paper's α is subtracted: x − α·x, so α says what is taken away. A gaze says what is looked at, the share that
    comes through: 1 − α, the α⁺ of equivariant 3.3, and α itself where a layer multiplies or adds.

    Attributes:
        map: that share, the mean over poses, (B, 1, H, W).
        poses: that share for each pose, (B, |H|, H, W): the mean over everything else that α depends on.
        group: whose poses they are.
        attention: α itself. Of an attention on features, (B, C, |H|, H, W) or what broadcasts to it. Of one inside a
            convolution (B, out, |H|, |H̃|, H, W), the mean over input channels, and only where its look is asked to
            `keep_attention`, for it is large.
    """

    poses: Tensor
    group: Group
    attention: Tensor | None = None

    @classmethod
    def of(cls, poses: Tensor, group: Group, attention: Tensor | None = None) -> Self:
        """The gaze whose map is the mean over the poses."""
        return cls(poses.mean(1, keepdim=True), poses, group, attention)

    def turn(self, h: int) -> Self:
        """The gaze on images moved by an element of the group, exactly: positions move, poses change places."""
        attention = self.attention
        if attention is not None:
            attention = self.group.move(attention, h)
            for dim in range(2, attention.ndim - 2):
                attention = self.group.permute(attention, h, dim) if attention.shape[dim] > 1 else attention
        poses = self.group.permute(self.group.move(self.poses, h), h, dim=1)
        return replace(self, map=self.group.move(self.map, h), poses=poses, attention=attention)

    def move(self, matrix: Tensor) -> Self:
        """The gaze on images moved by `matrix` (B, 2, 3): positions move, poses as by the nearest element.

        Quarter turns and mirrorings of the group come out as from `turn`; between them, poses have no exact answer.
        The large `attention` is left out.
        """
        poses = range(len(self.group))
        elements = _filled([n for element in self.group.elements for row in element for n in row], matrix)
        nearest = torch.einsum("hij,bij->bh", elements.reshape(-1, 2, 2), matrix[:, :, :2]).argmax(1)
        sources = _filled([k for h in poses for k in self.group.sources(h)], nearest).reshape(len(poses), -1)
        moved = warp(self.poses, matrix)
        where = sources[nearest][:, :, None, None].expand_as(moved)
        return replace(self, map=warp(self.map, matrix), poses=moved.gather(1, where), attention=None)


def _filled(numbers: Sequence[int], like: Tensor) -> Tensor:
    """A few numbers in the type and on the device of `like`, made there: a copy from the CPU would be waited for."""
    return torch.stack([like.new_full((), number) for number in numbers])
