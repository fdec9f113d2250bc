"""Pool: look, then apply, where the result is one vector per image. What every pooling is an instance of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foveate.gaze import Gaze, Look


@dataclass(eq=False)
class PoolGaze(Gaze):
    """Where a pooling looks.

    Attributes:
        map: (B, 1, H, W), the attention over its largest value. A signal (B, C, L) has H = 1.
        weights: (B, 1, H, W), what each position counts in the context vector.
    """

    weights: Tensor


class PoolLook(Look):
    """The half of a pooling that decides: features, and a query where it is told one, to a `PoolGaze`."""

    def forward(self, x: Tensor, query: Tensor | None = None) -> PoolGaze:
        """Features (B, C, H, W) or (B, C, L), query (B, Q)."""
        raise NotImplementedError

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, query: Tensor | None = None) -> PoolGaze:
            """Call `forward` and the hooks."""
            ...


class Pool(nn.Module):
    """Look where to look, then average: c = Σ over positions of weight · features.

    `foveate.attach` puts it in the place of a network's global average pooling.

    Args:
        look: the half that decides; its output is what `foveate.watch` shows.
    """

    pools = True

    def __init__(self, look: PoolLook) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: Tensor, query: Tensor | None = None) -> Tensor:
        """Features (B, C, H, W) or (B, C, L), and a query (B, Q) where the look takes one, to contexts (B, C)."""
        weights = self.look(x, query).weights.flatten(1).to(x.dtype)
        return (x.flatten(2) @ weights[:, :, None]).squeeze(2)


class Score(nn.Module):
    """A score for each position: affine(x) (continuous 6.2.2), or through a hidden layer, which a query may enter.

    Training starts from equal scores, so from a look at everything: a sparse transform of other ones would look at few
    positions and have a gradient at these alone.

    Args:
        channels: of the features.
        hidden: width of the hidden layer; 0 for none, unless there is a query, when it is `channels`.
        query: width of the query; 0 for none.
        dropout: of the hidden layer.

    >>> import torch
    >>> Score(8, query=5)(torch.rand(2, 8, 3, 4), torch.rand(2, 5)).shape
    torch.Size([2, 12])
    """

    def __init__(self, channels: int, hidden: int = 0, query: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        if channels < 1 or hidden < 0 or query < 0:
            raise ValueError(f"channels must be positive, hidden and query not negative: {channels}, {hidden}, {query}")
        hidden = hidden or (channels if query else 0)
        self.query = nn.Linear(query, hidden, bias=False) if query else None
        self.hidden = nn.Linear(channels, hidden) if hidden else None
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(hidden or channels, 1)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor, query: Tensor | None = None) -> Tensor:
        """Features (B, C, …) and query (B, Q) to scores (B, positions), in float32 at least."""
        if (query is None) != (self.query is None):
            raise ValueError(
                "this look was built with a query and needs one" if self.query else "no query was built in"
            )
        x = x.flatten(2).mT
        if self.hidden is not None:
            x = self.hidden(x)
            if self.query is not None:
                x = x + self.query(query)[:, None]
            x = self.dropout(x.relu())
        scores: Tensor = self.last(x).squeeze(2)
        return scores if scores.dtype == torch.float64 else scores.float()


def plane(x: Tensor) -> tuple[int, int]:
    """The size (H, W) of the map of features (B, C, H, W), or of a signal (B, C, L), whose H is 1."""
    if x.ndim not in (3, 4) or 0 in x.shape[1:]:
        raise ValueError(f"what is pooled has shape (B, C, H, W) or (B, C, L), with no side of 0, not {tuple(x.shape)}")
    return (1, x.shape[2]) if x.ndim == 3 else (x.shape[2], x.shape[3])


def peak_one(values: Tensor) -> Tensor:
    """Maps (B, 1, H, W) over their largest value."""
    return values / values.amax(dim=(2, 3), keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
