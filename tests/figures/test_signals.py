"""Pictures of attention over time."""

import numpy as np
import pytest
import torch

from foveate.figures.signals import attended_signals
from foveate.pooling import ContinuousPool, DiscretePool


def test_each_attention_is_drawn_where_it_is() -> None:
    features = torch.zeros(2, 1, 50)
    features[0, 0, 10:13] = 9.0
    features[1, 0, 40:43] = 9.0
    pools = {
        "sparsemax": DiscretePool(1, "sparsemax"),
        "continuous": ContinuousPool(1, alpha=2, dimensions=1, basis=20),
    }
    for pool in pools.values():
        pool.look.score.last.weight.data.fill_(1.0)
    gazes = {name: pool.look(features) for name, pool in pools.items()}
    figure = attended_signals(torch.randn(2, 50), gazes, ["early", "late"])
    axes = np.array(figure.axes).reshape(3, 2)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in axes[0]] == ["early", "late"]
    for row in axes[1:]:
        for ax, (start, end) in zip(row, ((0.2, 0.26), (0.8, 0.86)), strict=True):
            points, values = ax.lines[0].get_data()
            high = np.asarray(points)[np.asarray(values) > 0]
            assert start - 0.05 < high.min() < high.max() < end + 0.05


def test_as_many_gazes_as_signals() -> None:
    gaze = ContinuousPool(1, dimensions=1, basis=20).look(torch.rand(3, 1, 20))
    with pytest.raises(ValueError, match="2 signals want gazes of as many"):
        attended_signals(torch.rand(2, 20), {"one": gaze})
