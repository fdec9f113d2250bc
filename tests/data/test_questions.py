"""Questions about scenes: what is asked is true of the picture, and everything follows from seed and index."""

import numpy as np
import pytest
import torch

from foveate.data.questions import COLORS, KINDS, LENGTH, RELATIONS, SHAPES, WORDS, SceneQuestions
from foveate.data.shapes import NAMES

QUESTIONS = SceneQuestions(300, size=56, seed=3)


def named(word: str, shapes: list) -> list[int]:
    """The shapes that "star", "red thing" or their plurals mean."""
    first = word.split()[0]
    singular = {f"{s}es" if s == "cross" else f"{s}s": s for s in SHAPES}
    if first in COLORS:
        return [i for i, s in enumerate(shapes) if list(COLORS)[s.color] == first]
    return [i for i, s in enumerate(shapes) if NAMES[s.shape] == singular.get(first, first)]


def answer(words: str, shapes: list) -> tuple[str, list[int]]:
    """The answer, by reading the question and looking at the list of shapes."""
    if words.startswith("what color is the "):
        (i,) = named(words.removeprefix("what color is the "), shapes)
        return list(COLORS)[shapes[i].color], [i]
    if words.startswith("what shape is the "):
        (i,) = named(words.removeprefix("what shape is the "), shapes)
        return NAMES[shapes[i].shape], [i]
    if words.startswith("how many "):
        found = named(words.removeprefix("how many ").removesuffix(" are there"), shapes)
        return str(len(found)), found
    relation = next(r for r in RELATIONS if f" {r} the " in words)
    a, b = words.removeprefix("is the ").split(f" {relation} the ")
    (i,), (j,) = named(a, shapes), named(b, shapes)
    axis, sign = {"left of": (1, 1), "right of": (1, -1), "above": (0, 1), "below": (0, -1)}[relation]
    return "yes" if sign * (shapes[j].center[axis] - shapes[i].center[axis]) > 0 else "no", [i, j]


def test_every_question_is_answered_rightly_and_by_one_reading() -> None:
    for index in range(len(QUESTIONS)):
        shapes, asked, _ = QUESTIONS._ask(index)
        found, about = answer(asked.words, shapes)
        assert found == asked.answer, asked.words
        assert sorted(about) == sorted(asked.about)


def test_kinds_and_answers_are_balanced() -> None:
    many = SceneQuestions(2000)
    kinds = [many._ask(i)[1] for i in range(2000)]
    for kind in KINDS:
        assert sum(a.kind == kind for a in kinds) == pytest.approx(500, abs=90)
    yes = [a.answer == "yes" for a in kinds if a.kind == "position"]
    assert 0.42 < sum(yes) / len(yes) < 0.58


def test_masks_are_of_the_shapes_that_are_asked_about() -> None:
    for index in range(60):
        item, (shapes, asked, _) = QUESTIONS[index], QUESTIONS._ask(index)
        pixels = [tuple(min(55, int(56 * c)) for c in s.center) for s in shapes]
        for number, (row, column) in enumerate(pixels):
            around = item.mask[0, max(0, row - 5) : row + 6, max(0, column - 5) : column + 6]
            assert bool(around.any()) == (number in asked.about), asked.words
        assert bool(item.mask.any()) == bool(asked.about)
        assert (item.things.any(0) | ~item.mask[0]).all()  # what is asked about is one of the things


def test_shapes_do_not_overlap_and_are_inside() -> None:
    for index in range(100):
        item, (shapes, _, _) = QUESTIONS[index], QUESTIONS._ask(index)
        for s in shapes:
            assert min(s.center) > 0.1
            assert max(s.center) < 0.9
        colors, kinds = item.things[: len(COLORS)].sum(0), item.things[len(COLORS) :].sum(0)
        assert colors.max() == kinds.max() == 1


def test_items_depend_on_seed_and_index_alone() -> None:
    a, b = SceneQuestions(10, seed=5)[7], SceneQuestions(100, seed=5)[7]
    assert a.words == b.words
    assert torch.equal(a.image, b.image)
    assert not torch.equal(a.image, SceneQuestions(10, seed=6)[7].image)
    assert SceneQuestions(20, seed=5).labels[7] == a.label


def test_words_are_numbered_and_fill_up() -> None:
    item = QUESTIONS[0]
    assert item.question.shape == (LENGTH,)
    assert " ".join(WORDS[n] for n in item.question.tolist() if n) == item.words
    assert max(len(QUESTIONS._ask(i)[1].words.split()) for i in range(300)) <= LENGTH
    assert item.image.dtype == torch.float32
    assert 0 <= item.image.min() <= item.image.max() <= 1
    assert np.isfinite(item.image.numpy()).all()


def test_errors_teach() -> None:
    with pytest.raises(ValueError, match="size >= 16"):
        SceneQuestions(3, size=8)
    with pytest.raises(IndexError, match="question 3 of 3"):
        SceneQuestions(3)[3]
