import subprocess
import sys

from board import Board

from foveate.progress import Drawn, Relayed, bars, counted, doing, drawing_on


def test_what_is_counted_inside_of_something_is_drawn_on_the_same_bars() -> None:
    board = Board()
    with drawing_on(board), doing("all"), bars() as shown:
        assert shown is board
        assert list(counted("abc", "letters")) == ["a", "b", "c"]
        assert list(counted(iter("ab"), "some", total=2)) == ["a", "b"]
        assert list(counted(iter(""), "nobody knows how many")) == []
        assert board.totals == {1: None}
    assert board.said == ["all", "letters", "some", "nobody knows how many"]
    assert board.steps == {1: 0, 2: 3, 3: 2, 4: 0}
    assert not board.totals


def test_a_bar_is_taken_away_when_its_things_are_not_taken_to_the_end() -> None:
    board = Board()
    with drawing_on(board):
        letters = counted("abc", "letters")
        next(letters)
        letters.close()
    assert not board.totals
    with bars() as fresh:
        assert fresh is not board


def test_relayed_bars_say_the_same_in_fewer_words() -> None:
    for pause in (0.0, 1000.0):
        board, sent = Board(), []
        with drawing_on(Relayed(sent.append, pause)), bars() as shown:
            task = shown.add_task("steps", total=100, note="")
            for _ in range(100):
                shown.update(task, advance=1)
            shown.update(task, note="done")
        drawn = Drawn(board)
        for change in sent:
            drawn(change)
        assert board.steps == {1: 100 if pause == 0 else 0}
        assert len(sent) == (102 if pause == 0 else 1)


TALK = """
import os, sys
sys.stderr.isatty = lambda: True
os.environ.update(TERM="xterm", COLUMNS="100")
from foveate.progress import counted
for word in counted(["one", "two"], "Counting words"):
    print(word)
"""


def test_a_terminal_sees_bars_and_a_pipe_gets_its_lines() -> None:
    done = subprocess.run([sys.executable, "-c", TALK], capture_output=True, text=True)
    assert done.stdout == "one\ntwo\n"
    assert "Counting words" in done.stderr
    quiet = subprocess.run([sys.executable, "-c", TALK.replace("True", "False")], capture_output=True, text=True)
    assert (quiet.stdout, quiet.stderr) == ("one\ntwo\n", "")
