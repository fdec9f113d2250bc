import numpy as np
import pytest
from matplotlib.colors import to_hex

from foveate.figures import colors, learning_curves, metric_dots, split_accuracies
from foveate.figures.curves import _apart


def test_mean_and_band_over_seeds() -> None:
    curves = {"none": {0: {1: 0.2, 2: 0.4, 3: 0.9}, 1: {1: 0.4, 2: 0.8}}, "cbam": {0: {1: 0.3}}, "later": {0: {}}}
    ax = learning_curves(curves).axes[0]
    assert len(ax.lines) == 2
    assert ax.lines[0].get_xydata() == pytest.approx(np.array([[1, 0.3], [2, 0.6], [3, 0.9]]))
    band = ax.collections[0].get_paths()[0].vertices
    assert set(band[band[:, 0] == 2][:, 1].round(6)) == {0.4, 0.8}
    assert [to_hex(line.get_color()) for line in ax.lines] == [colors(["none"])["none"], colors(["cbam"])["cbam"]]
    assert {text.get_text() for text in ax.texts} == {"none", "cbam"}


def test_band_of_one_deviation() -> None:
    ax = learning_curves({"none": {0: {1: 0.2}, 1: {1: 0.4}, 2: {1: 0.9}}}, band="deviation").axes[0]
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() - band.min() == pytest.approx(2 * np.std([0.2, 0.4, 0.9], ddof=1))


@pytest.mark.parametrize("curves", [{}, {"none": {}}, {"none": {0: {}}}])
def test_no_curves(curves: dict[str, dict[int, dict[int, float]]]) -> None:
    with pytest.raises(ValueError, match="no curves"):
        learning_curves(curves)


def test_names_are_moved_apart_and_no_further() -> None:
    places = _apart([0.0, 0.0, 0.1, 5.0], 1.0)
    assert np.diff(places).min() >= 1 - 1e-9
    assert places[3] == 5.0
    assert sum(places[:3]) == pytest.approx(0.1)  # as much up as down
    assert _apart([0.0, 2.0], 1.0) == [0.0, 2.0]


def test_splits_are_joined() -> None:
    accuracies = {"6 : 4": {"none": [1.0, 2.0], "cbam": [2.0, 4.0]}, "8 : 2": {"cbam": [5.0]}}
    first, second = split_accuracies(accuracies).axes
    joined = [line.get_ydata() for line in first.lines]
    assert [1.0, 2.0] in [list(y) for y in joined]
    assert [2.0, 4.0] in [list(y) for y in joined]
    assert [1.5, 1.5] in [list(y) for y in joined]  # the mean of none
    assert [list(p) for c in second.collections for p in c.get_offsets()] == [[1.0, 5.0]]
    with pytest.raises(ValueError, match="cannot be joined"):
        split_accuracies({"6 : 4": {"none": [1.0, 2.0], "cbam": [2.0]}})
    with pytest.raises(ValueError, match="no accuracies"):
        split_accuracies({})


def test_metric_dots_show_mean_deviation_and_seeds() -> None:
    (ax,) = metric_dots({"fitting rate": {"none": [0.2, 0.4], "cbam": [0.7]}}).axes
    assert list(ax.lines[0].get_xdata()) == pytest.approx([0.3 - 0.02**0.5, 0.3 + 0.02**0.5])
    dots = np.concatenate([np.asarray(collection.get_offsets()) for collection in ax.collections])
    assert dots == pytest.approx(np.array([[0.2, 0], [0.4, 0], [0.3, 0], [0.7, 1], [0.7, 1]]))
    with pytest.raises(ValueError, match="no metrics"):
        metric_dots({"fitting rate": {}})
