"""VQA-v2's files, written here as they are published, and read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from foveate.data.folders import DataError
from foveate.data.vqa import VQA, answer_vocabulary, glove, read_features, read_questions, soft_scores, words_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    def answers(*counts: tuple[str, int]) -> list[dict]:
        given = [answer for answer, count in counts for _ in range(count)]
        return [{"answer": a, "answer_confidence": "yes", "answer_id": n + 1} for n, a in enumerate(given)]

    questions = [
        {"image_id": 9, "question": "Is it a dog-collar?", "question_id": 9000},
        {"image_id": 9, "question": "How many dogs are there?", "question_id": 9001},
        {"image_id": 25, "question": "What color is it?", "question_id": 25000},
    ]
    notes = [
        {"question_id": 9000, "image_id": 9, "answer_type": "yes/no", "answers": answers(("yes", 10))},
        {
            "question_id": 9001,
            "image_id": 9,
            "answer_type": "number",
            "answers": answers(("two", 6), ("2", 2), ("3", 2)),
        },
        {"question_id": 25000, "image_id": 25, "answer_type": "other", "answers": answers(("Yes", 1), ("red", 9))},
    ]
    for note in notes:
        note |= {"question_type": "what", "multiple_choice_answer": "x"}
    for split in ("train2014",):
        (tmp_path / f"v2_OpenEnded_mscoco_{split}_questions.json").write_text(json.dumps({"questions": questions}))
        (tmp_path / f"v2_mscoco_{split}_annotations.json").write_text(json.dumps({"annotations": notes}))
    folder = tmp_path / "features" / "train2014"
    folder.mkdir(parents=True)
    save_file({"x": torch.arange(4 * 6.0).reshape(4, 2, 3).half()}, folder / "COCO_train2014_000000000009.safetensors")
    np.savez(folder / "COCO_train2014_000000000025.jpg.npz", x=np.arange(24, dtype=np.float32).reshape(4, 2, 3))
    return tmp_path


def test_questions_with_their_answers(root: Path) -> None:
    first, second, _ = read_questions(
        root / "v2_OpenEnded_mscoco_train2014_questions.json", root / "v2_mscoco_train2014_annotations.json"
    )
    assert (first.id, first.image, first.words, first.type) == (9000, 9, "Is it a dog-collar?", "yes/no")
    assert second.answers == ("two",) * 6 + ("2",) * 2 + ("3",) * 2
    assert words_of(first.words) == ["is", "it", "a", "dog", "collar"]


def test_vocabulary_and_soft_scores(root: Path) -> None:
    asked = VQA(root, "train2014", answers=["yes", "2", "red", "3"]).questions
    assert answer_vocabulary(asked, at_least=1) == ("yes", "2", "red")
    numbers = {"yes": 0, "2": 1, "red": 2, "3": 3}
    assert soft_scores(asked[1].answers, numbers).tolist() == pytest.approx([0, 1, 0, 0.6])  # two and 2 are one answer
    assert soft_scores(asked[2].answers, numbers).tolist() == pytest.approx([0.3, 0, 1, 0])
    with pytest.raises(DataError, match="given often enough"):
        VQA(root, "train2014")


def test_items(root: Path) -> None:
    data = VQA(root, "train2014", answers=["yes", "2", "red"])
    assert len(data) == 3
    item = data[1]
    assert item.image.shape == (4, 2, 3)
    assert (item.label, item.kind, len(item.people), item.name) == (1, "number", 10, "9001")
    assert [data.words[n] for n in item.question.tolist() if n] == ["how", "many", "dogs", "are", "there"]
    assert torch.equal(data[2].image, torch.arange(24.0).reshape(4, 2, 3))
    assert data.labels == [0, 1, 2]


def test_features_as_a_list_of_positions_are_a_square(root: Path) -> None:
    grid = np.arange(18, dtype=np.float32).reshape(9, 2)
    np.save(root / "a.npy", grid)
    features = read_features(root, "a")
    assert features.shape == (2, 3, 3)
    assert features[1, 2, 0] == grid[6, 1]
    with pytest.raises(DataError, match="no features of b"):
        read_features(root, "b")
    np.savez(root / "c.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):  # nothing from a file is executed
        read_features(root, "c")


def test_glove(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 0.1 0.2\nred 1 -1\nunused 5 5\n")
    vectors = glove(tmp_path / "glove.txt", ["", "red", "what"])
    assert vectors.shape == (3, 2)
    assert vectors[1].tolist() == [1, -1]
    assert vectors[2].abs().max() < 1
    with pytest.raises(DataError, match="none of the words"):
        glove(tmp_path / "glove.txt", ["blue"])


def test_errors_teach(root: Path) -> None:
    with pytest.raises(DataError, match=r"come from visualqa\.org"):
        VQA(root, "val2014")
    (root / "bad.json").write_text('{"questions": [{"question_id": 1}]}')
    with pytest.raises(DataError, match="has no 'image_id'"):
        read_questions(root / "bad.json")
    (root / "bad.json").write_text("[]")
    with pytest.raises(DataError, match="not a VQA-v2 file"):
        read_questions(root / "bad.json")
