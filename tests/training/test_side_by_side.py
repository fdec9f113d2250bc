import multiprocessing
import time
from functools import partial
from pathlib import Path

import pytest

from foveate.training.side_by_side import side_by_side


def touch(folder: Path, piece: int) -> None:
    if piece < 0:
        raise ValueError("no such piece")
    if piece > 9:
        time.sleep(60)
    (folder / str(piece)).touch()


def test_every_piece_is_done_once_and_given_back(tmp_path: Path) -> None:
    assert sorted(side_by_side(partial(touch, tmp_path), [1, 2, 3], jobs=2)) == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3"]
    assert list(side_by_side(partial(touch, tmp_path), [], jobs=2)) == []


def test_a_failure_is_raised_and_ends_the_others(tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="no such piece"):
        list(side_by_side(partial(touch, tmp_path), [99, -1], jobs=2))
    assert time.perf_counter() - start < 50
    assert not multiprocessing.active_children()
