"""VQA-v2 as it is published: questions and annotations in JSON, features in a file for each image, GloVe's vectors.

Under one folder: `v2_OpenEnded_mscoco_train2014_questions.json`, `v2_mscoco_train2014_annotations.json`, the same for
val2014, and the features as `features/train2014/COCO_train2014_000000000009.safetensors` (of `foveate features`), or
the same name as .npz (array "x") or .npy, for an image's name with or without its ".jpg".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveate.data.folders import DataError
from foveate.data.item import ImageSet, Item
from foveate.extras import require
from foveate.metrics.answers import answer_accuracy, normalized

LENGTH = 14  # words of a question; what is longer is cut
PADDING, UNKNOWN = "", "<unk>"


@dataclass(frozen=True)
class Question:
    """A question with what people answered; a test split has no answers."""

    id: int
    image: int
    words: str
    answers: tuple[str, ...] = ()
    type: str = "other"


def read_questions(questions: Path, annotations: Path | None = None) -> list[Question]:
    """The questions of a published file, with the answers of the annotations where they are given."""
    rows = _entries(questions, "questions", ("question_id", "image_id", "question"))
    answered: dict[int, Mapping[str, Any]] = {}
    if annotations is not None:
        fields = ("question_id", "answer_type", "answers")
        answered = {row["question_id"]: row for row in _entries(annotations, "annotations", fields)}
        if missing := [row["question_id"] for row in rows if row["question_id"] not in answered]:
            raise DataError(f"{annotations.name} has no answers to question {missing[0]} of {questions.name}")
    found = []
    for row in rows:
        note = answered.get(row["question_id"], {})
        people = tuple(answer["answer"] for answer in note.get("answers", ()))
        words = row["question"]
        found.append(Question(row["question_id"], row["image_id"], words, people, note.get("answer_type", "other")))
    return found


def _entries(path: Path, name: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"there is no {path}; the files of VQA-v2 come from visualqa.org")
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())[name]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{path.name} is not a VQA-v2 file with a list of {name!r} ({error})") from error
    for row in rows:
        if lacking := [field for field in fields if field not in row]:
            raise DataError(f"{path.name}: one of its {name} has no {lacking[0]!r}")
    return rows


def words_of(question: str) -> list[str]:
    """A question in lower-case words, without marks.

    >>> words_of("What's the man's dog-collar made of?")
    ["what's", 'the', "man's", 'dog', 'collar', 'made', 'of']
    """
    return re.sub(r"[-/]", " ", re.sub(r"[.,\"!?*#()]", "", question.lower())).split()


def word_vocabulary(questions: Iterable[Question]) -> tuple[str, ...]:
    """Every word of the questions, after the empty word that fills a question up and the one for unknown words.

    >>> word_vocabulary([Question(1, 1, "What is it?")])
    ('', '<unk>', 'is', 'it', 'what')
    """
    return PADDING, UNKNOWN, *sorted({word for question in questions for word in words_of(question.words)})


def answer_vocabulary(questions: Iterable[Question], at_least: int = 9) -> tuple[str, ...]:
    """The answers that most people of a question gave at least so many times, the most frequent first.

    >>> asked = [Question(n, 1, "is it?", ("Yes",) * 6 + ("no",) * 4) for n in range(9)]
    >>> answer_vocabulary(asked)
    ('yes',)
    """
    counts = Counter(Counter(map(normalized, q.answers)).most_common(1)[0][0] for q in questions if q.answers)
    return tuple(answer for answer, count in counts.most_common() if count >= at_least)


def soft_scores(given: Sequence[str], vocabulary: Mapping[str, int]) -> Tensor:
    """What each answer of the vocabulary would be worth: 0, 0.3, 0.6, 0.9 or 1 for 0, 1, 2, 3 or more of ten people.

    >>> soft_scores(["yes"] * 2 + ["no"] * 8, {"yes": 0, "no": 1, "red": 2})
    tensor([0.6000, 1.0000, 0.0000])
    """
    scores = torch.zeros(len(vocabulary))
    people = [normalized(answer) for answer in given]
    for answer in set(people) & set(vocabulary):
        scores[vocabulary[answer]] = answer_accuracy(answer, people)
    return scores


def glove(path: Path, words: Sequence[str]) -> Tensor:
    """The vectors (words, width) of words in GloVe's text file, `word 0.1 -0.2 …`; small random ones for others."""
    wanted = {word: number for number, word in enumerate(words)}
    found: dict[int, Tensor] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            word, _, numbers = line.rstrip().partition(" ")
            if word in wanted:
                found[wanted[word]] = torch.tensor([float(number) for number in numbers.split()])
    widths = {len(vector) for vector in found.values()}
    if len(widths) != 1:
        raise DataError(
            f"{path.name} has vectors for none of the words, or vectors of several widths: {sorted(widths)}"
        )
    vectors = 0.1 * torch.randn(len(words), widths.pop(), generator=torch.Generator().manual_seed(0))
    for number, vector in found.items():
        vectors[number] = vector
    return vectors


def read_features(folder: Path, name: str) -> Tensor:
    """The features (C, H, W) of an image, from the one file of its name that there is; (L, C) is a square of L."""
    for stem in (name, f"{name}.jpg"):
        if (path := folder / f"{stem}.safetensors").is_file():
            features: Tensor = require("safetensors.torch").load_file(path)["x"]
            return _square(features, path)
        if (path := folder / f"{stem}.npz").is_file():
            with np.load(path, allow_pickle=False) as arrays:
                return _square(torch.from_numpy(arrays["x"]), path)
        if (path := folder / f"{stem}.npy").is_file():
            return _square(torch.from_numpy(np.load(path, allow_pickle=False)), path)
    raise DataError(f"{folder} has no features of {name}: make them by `foveate features`")


def _square(features: Tensor, path: Path) -> Tensor:
    if features.ndim == 2:
        side = round(features.shape[0] ** 0.5)
        if side * side == features.shape[0]:
            return features.mT.reshape(-1, side, side)
    if features.ndim != 3:
        raise DataError(f"{path.name} has features of shape {tuple(features.shape)}, not (C, H, W) or (H·W, C)")
    return features


class VQA(ImageSet):
    """Questions on photographs, with their images' features.

    Args:
        root: the folder with the published files.
        split: "train2014", "val2014" or "test2015".
        words, answers: vocabularies; nothing means those of this split.

    Each item has `image` (C, H, W) features, `question` (LENGTH,) word numbers, `scores` (answers,), `label` (the best
    answer), `kind` (of its answer), `people` (what people answered) and `name` (the question's number).
    """

    def __init__(
        self, root: Path, split: str, words: Sequence[str] | None = None, answers: Sequence[str] | None = None
    ) -> None:
        self.folder, self.split = root / "features" / split, split
        annotations = None if split.startswith("test") else root / f"v2_mscoco_{split}_annotations.json"
        self.questions = read_questions(root / f"v2_OpenEnded_mscoco_{split}_questions.json", annotations)
        self.words = tuple(words if words is not None else word_vocabulary(self.questions))
        self.classes = tuple(answers if answers is not None else answer_vocabulary(self.questions))
        if not self.classes:
            raise DataError(f"no answer of {split} is given often enough to be learned")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def _answers(self) -> dict[str, int]:
        return {answer: number for number, answer in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def labels(self) -> list[int]:
        """The best answer to each question."""
        return [int(soft_scores(question.answers, self._answers).argmax()) for question in self.questions]

    def encode(self, question: str) -> Tensor:
        """A question as word numbers (LENGTH,)."""
        numbers = [self._numbers.get(word, 1) for word in words_of(question)][:LENGTH]
        return torch.tensor(numbers + [0] * (LENGTH - len(numbers)))

    def __getitem__(self, index: int) -> Item:
        question = self.questions[index]
        scores = soft_scores(question.answers, self._answers)
        return Item(
            image=read_features(self.folder, f"COCO_{self.split}_{question.image:012d}").float(),
            label=int(scores.argmax()),
            question=self.encode(question.words),
            words=question.words,
            scores=scores,
            kind=question.type,
            people=list(question.answers),
            name=str(question.id),
        )
