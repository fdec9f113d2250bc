"""The official accuracy of visual question answering: ten people answered, and their answers are compared loosely.

An answer's accuracy is min(1, how many of nine others gave it / 3), averaged over the ten ways to choose nine. Before,
answers are brought to one form: numbers as digits, no articles, no punctuation, apostrophes where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor
from torchmetrics import Metric

ANSWER_TYPES = ("yes/no", "number", "other")
_DIGITS = "zero one two three four five six seven eight nine ten"
_NUMBERS = {"none": "0", **{word: str(n) for n, word in enumerate(_DIGITS.split())}}
_ARTICLES = ("a", "an", "the")
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_CONTRACTED = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's I'd've I'm I've isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've
    needn't not've o'clock oughtn't shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll
    somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd
    there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll
    what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't
    would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""


def _without_some(word: str) -> set[str]:
    """A word with one or more of its apostrophes left out."""
    places = [i for i, letter in enumerate(word) if letter == "'"]
    left_out = (c for n in range(1, len(places) + 1) for c in combinations(places, n))
    return {"".join(letter for i, letter in enumerate(word) if i not in gone) for gone in left_out}


_APOSTROPHES = {form: word for word in _CONTRACTED.split() for form in _without_some(word)}


def normalized(answer: str) -> str:
    """An answer in the form in which answers are compared.

    >>> normalized("The two, dont-know!")
    "2 don't know"
    """
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    glued = re.search(r"\d,\d", text) is not None  # "1,000" is 1000
    cleaned = text
    for mark in _MARKS:
        beside_space = f"{mark} " in text or f" {mark}" in text
        cleaned = cleaned.replace(mark, "" if beside_space or glued else " ")
    cleaned = re.sub(r"\.(?!\d)", "", cleaned)
    words = (_NUMBERS.get(word, word) for word in cleaned.lower().split())
    return " ".join(_APOSTROPHES.get(word, word) for word in words if word not in _ARTICLES)


def answer_accuracy(answer: str, given: Sequence[str]) -> float:
    """The accuracy of an answer where ten people (or another number of them) gave theirs.

    As the official code does, forms are brought together only where the people did not all give one answer.

    >>> answer_accuracy("two", ["2"] * 3 + ["3"] * 7)
    0.9
    """
    if len(set(given)) > 1:
        answer, given = normalized(answer), [normalized(one) for one in given]
    same = sum(one == answer for one in given)
    if len(given) < 2:
        return float(same)
    # left out is one who gave it, `same` times of all, or one who did not
    accuracy = (same * min(1, (same - 1) / 3) + (len(given) - same) * min(1, same / 3)) / len(given)
    return round(accuracy, 9)


class AnswerAccuracy(Metric):
    """The official accuracy of VQA-v2 in all and by answer type, from 0 to 1.

    >>> metric = AnswerAccuracy()
    >>> metric.update(["yes", "3"], [["yes"] * 10, ["2"] * 10], ["yes/no", "number"])
    >>> {name: float(value) for name, value in metric.compute().items()}
    {'overall': 0.5, 'yes/no': 1.0, 'number': 0.0}
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, types: Sequence[str] = ANSWER_TYPES) -> None:
        super().__init__()
        self.types = tuple(types)
        for name in ("total", "count"):
            self.add_state(name, torch.zeros(len(self.types), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, answers: Sequence[str], given: Sequence[Sequence[str]], types: Sequence[str]) -> None:
        """Take in answers, what people answered to each question, and the type of each."""
        for answer, people, kind in zip(answers, given, types, strict=True):
            if kind not in self.types:
                raise ValueError(f"no answer is of the type {kind!r}; there are: {', '.join(self.types)}")
            self.total[self.types.index(kind)] += answer_accuracy(answer, people)
            self.count[self.types.index(kind)] += 1

    def compute(self) -> dict[str, Tensor]:
        """The accuracy by type, of those types that there were, and `overall`."""
        values = {"overall": self.total.sum() / self.count.sum().clamp_min(1)}
        for name, total, count in zip(self.types, self.total, self.count, strict=True):
            if count > 0:
                values[name] = total / count
        return values
