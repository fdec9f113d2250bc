"""Theorem 1 as a check: how far an attention operator is from the condition that makes its convolution equivariant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from foveate.groups.symmetries import Group


def theorem1_violation(
    operator: Callable[[Tensor], Tensor], group: Group, x: Tensor, poses: Sequence[int] = (2,), space: bool = True
) -> Tensor:
    """The largest |𝒜[L_ḡ f](g, g̃) − 𝒜[f](ḡ⁻¹g, ḡ⁻¹g̃)| over a batch and all ḡ in H, equivariant (15).

    Args:
        operator: features (or planes) to an attention map α, any tensor.
        group: H.
        x: features (B, C, |H|, H, W) or planes (B, C, H, W).
        poses: which dimensions of α are poses: h and h̃, or one of them where it attends to one domain only.
        space: whether the last two dimensions of α are positions.

    Returns:
        a scalar, 0 for a perfect operator.

    >>> from foveate.groups import P4
    >>> f = torch.rand(2, 3, 4, 5, 5)
    >>> theorem1_violation(torch.relu, P4, f)  # a nonlinearity of the features is one
    tensor(0.)
    >>> theorem1_violation(lambda f: f.cumsum(2), P4, f) > 1  # a first and a last pose are not
    tensor(True)
    """
    alpha = operator(x)
    worst = alpha.new_zeros(())
    for h in range(1, len(group)):
        expected = group.move(alpha, h) if space else alpha
        for dim in poses:
            expected = group.permute(expected, h, dim)
        worst = torch.maximum(worst, (operator(group.transform(x, h)) - expected).abs().amax())
    return worst
