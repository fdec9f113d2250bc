"""Pictures of densities: contours where the density takes its levels, rims where its support ends."""

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from foveate.figures import save
from foveate.figures.densities import LEVELS, attend_to, attended, density_contours, prediction_maps, two_clumps
from foveate.pooling import ContinuousPool, DiscretePool


def gaze_of(alpha: int, **options):
    pool, x = ContinuousPool(1, alpha=alpha, **options), torch.zeros(2, 1, 14, 14)
    pool.look.score.last.weight.data.fill_(1.0)
    x[:, 0, 4:7, 7:11] = 6.0
    return pool.look(x).detach()


def contours(ax) -> dict[float, np.ndarray]:
    (lines,) = [c for c in ax.collections if hasattr(c, "levels")]
    return {level: path.vertices for level, path in zip(lines.levels, lines.get_paths(), strict=True)}


@pytest.mark.parametrize("alpha", [1, 2])
def test_contours_are_where_the_density_takes_the_levels(alpha: int) -> None:
    ax, gaze = Figure().add_subplot(), gaze_of(alpha)
    density_contours(ax, gaze, (100, 200), index=1)
    peak = gaze.density.pdf(gaze.means[:, 0])[1, 1]
    for level, xy in contours(ax).items():
        points = torch.as_tensor(xy[:, ::-1] / (100, 200)).float()
        shares = gaze.density.pdf(points)[1] / peak
        assert torch.allclose(shares, torch.full_like(shares, float(level)), atol=0.02)
    assert list(contours(ax)) == list(LEVELS)


def test_the_rim_of_a_sparse_density_is_drawn_thick() -> None:
    axes = Figure().subplots(1, 2)
    for ax, alpha in zip(axes, (1, 2), strict=True):
        density_contours(ax, gaze_of(alpha), (64, 64))
    assert not axes[0].patches
    (rim,) = [patch for patch in axes[1].patches if isinstance(patch, Polygon)]
    assert rim.get_linewidth() > 2
    points = torch.as_tensor(rim.get_xy()[:, ::-1].copy() / 64).float()
    assert gaze_of(2).density.pdf(points)[0].abs().max() < 1e-3
    inwards = 0.98 * points + 0.02 * points.mean(0)
    assert (gaze_of(2).density.pdf(inwards)[0] > 0).all()


def test_components_without_a_share_have_no_rim() -> None:
    gaze = gaze_of(2, modes=2, steps=2)
    gaze.share = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    for index, count in ((0, 1), (1, 2)):
        ax = Figure().add_subplot()
        density_contours(ax, gaze, (64, 64), index)
        assert len([p for p in ax.patches if isinstance(p, Polygon)]) == count


def test_discrete_weights_are_drawn_as_the_grid_they_are_on() -> None:
    x = torch.zeros(1, 1, 4, 5)
    x[0, 0, 1, 3] = 9.0
    pool = DiscretePool(1, "sparsemax")
    pool.look.score.last.weight.data.fill_(1.0)
    figure = Figure()
    ax = figure.add_subplot()
    attend_to(ax, torch.full((3, 40, 50), 0.5), pool.look(x).detach())
    FigureCanvasAgg(figure)
    picture = np.asarray(ax.images[0].get_array())
    lit = np.abs(picture - picture[0, 0]).sum(-1) > 0.05
    height, width = lit.shape
    rows, columns = np.nonzero(lit)
    assert (rows.min() / height, (rows.max() + 1) / height) == pytest.approx((1 / 4, 2 / 4), abs=0.02)
    assert (columns.min() / width, (columns.max() + 1) / width) == pytest.approx((3 / 5, 4 / 5), abs=0.02)
    assert len(ax.lines) == 3 + 4


def test_the_figure_of_answers() -> None:
    gazes = {"softmax-pool": DiscretePool(2).look(torch.rand(2, 2, 4, 4)), "continuous-softmax": gaze_of(1)}
    figure = attended(
        torch.rand(2, 3, 32, 32),
        gazes,
        ["what color is the star?", "how many?"],
        ["red", "2"],
        {"softmax-pool": ["red", "3"], "continuous-softmax": ["blue", "2"]},
        torch.rand(2, 1, 32, 32) > 0.7,
    )
    labels = [ax.get_xlabel() for ax in figure.axes]
    assert labels == ["red", "red", "blue", "2", "3", "2"]
    colors = [ax.xaxis.label.get_color() for ax in figure.axes]
    assert colors[1] == colors[5] != colors[2] == colors[4]


def test_the_figures_of_the_theory(tmp_path) -> None:
    for name, figure in (("3.1", prediction_maps()), ("5.1", two_clumps())):
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 20_000
