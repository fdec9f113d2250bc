"""The official accuracy, against the ten ways to choose nine, and the normalisation, against the rules in words."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.metrics import AnswerAccuracy
from foveate.metrics.answers import answer_accuracy, normalized


@given(st.lists(st.sampled_from(["yes", "no", "red"]), min_size=10, max_size=10), st.sampled_from(["yes", "red"]))
def test_ten_choose_nine(people: list[str], answer: str) -> None:
    nines = list(combinations(people, 9))
    assert len(nines) == 10
    mean = sum(min(1, sum(one == answer for one in nine) / 3) for nine in nines) / 10
    assert answer_accuracy(answer, people) == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize(("count", "accuracy"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1)])
def test_the_well_known_values(count: int, accuracy: float) -> None:
    assert answer_accuracy("a b", ["a b"] * count + ["c"] * (10 - count)) == accuracy


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("The Dog", "dog"),
        ("two", "2"),
        ("None", "0"),
        ("dont know", "don't know"),
        ("couldnt've", "couldn't've"),
        ("it is, a cat!", "it is cat"),
        ("black-and-white", "black and white"),
        ("1,000 people", "1000 people"),
        ("3.5", "3.5"),
        ("u.s.a.", "usa"),
        ("  a  ", ""),
        ("red\nblue", "red blue"),
        ("yes/no", "yes no"),
    ],
)
def test_forms(answer: str, form: str) -> None:
    assert normalized(answer) == form
    assert normalized(form) == form


def test_forms_count_only_where_people_differ() -> None:
    assert answer_accuracy("2", ["two"] * 10) == 0  # as in the official code
    assert answer_accuracy("2", ["two"] * 9 + ["3"]) == 1


def test_the_metric_by_type_over_several_batches() -> None:
    metric = AnswerAccuracy()
    metric.update(["yes", "no"], [["yes"] * 10, ["yes"] * 8 + ["no"] * 2], ["yes/no", "yes/no"])
    metric.update(["red"], [["red"] * 3 + ["blue"] * 7], ["other"])
    values = metric.compute()
    assert float(values["yes/no"]) == pytest.approx((1 + 0.6) / 2)
    assert float(values["other"]) == pytest.approx(0.9)
    assert float(values["overall"]) == pytest.approx(2.5 / 3)
    assert "number" not in values
    with pytest.raises(ValueError, match="no answer is of the type 'maybe'"):
        metric.update(["x"], [["x"]], ["maybe"])
