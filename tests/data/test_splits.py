from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.data import Joined, Part, Scenes, stratified_split


@given(st.lists(st.integers(-1, 6), max_size=120), st.floats(0.01, 0.99), st.integers(0, 10))
def test_a_split_is_a_partition_with_the_ratio_in_every_class(labels: list[int], ratio: float, seed: int) -> None:
    train, val = stratified_split(labels, ratio, seed)
    assert sorted(train + val) == list(range(len(labels)))
    assert (train, val) == stratified_split(labels, ratio, seed)
    assert train == sorted(train)
    for label, count in Counter(labels).items():
        mine = sum(labels[i] == label for i in train)
        assert abs(mine - ratio * count) <= 1
        assert mine >= 1
        assert count - mine >= (count >= 2)


def test_another_seed_is_another_split() -> None:
    labels = [0] * 50 + [1] * 50
    splits = {tuple(stratified_split(labels, 0.6, seed)[0]) for seed in range(5)}
    assert len(splits) == 5


def test_classes_are_split_independently_of_each_other() -> None:
    first = stratified_split([0] * 30, 0.5)[0]
    both = stratified_split([0] * 30 + [1] * 30, 0.5)[0]
    assert [i for i in both if i < 30] == first
    assert [i - 30 for i in both if i >= 30] != first


@pytest.mark.parametrize("ratio", [0, 1, -0.5, 8])
def test_a_ratio_is_a_share(ratio: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        stratified_split([0, 1], ratio)


def test_parts_and_joined_sets_keep_their_labels() -> None:
    scenes, more = Scenes(20, 16), Scenes(5, 16, seed=1)
    part = Part(scenes, [3, 11])
    assert part.labels == [scenes.labels[3], scenes.labels[11]]
    assert part[1].name == "scene-0-11"
    joined = Joined([part, more])
    assert [joined[i].name for i in (0, 2, 6)] == ["scene-0-3", "scene-1-0", "scene-1-4"]
    assert [joined[i].label for i in range(7)] == joined.labels
    with pytest.raises(IndexError):
        joined[7]
