import multiprocessing
import time
from functools import partial
from pathlib import Path

import pytest
from board import Board

from foveate.progress import counted, drawing_on
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


def count(piece: int) -> None:
    for _ in counted(range(3), f"piece {piece}"):
        time.sleep(0.15)


def test_progress_in_the_processes_is_drawn_here() -> None:
    board = Board()
    with drawing_on(board):
        list(side_by_side(count, [1, 2], jobs=2))
    assert sorted(board.said) == ["piece 1", "piece 2"]
    assert all(steps >= 2 for steps in board.steps.values())
