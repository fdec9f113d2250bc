"""The groups are groups, and what they do to planes and poses is what their matrices say."""

from itertools import product

import pytest
import torch

from foveate.groups import C2, GROUPS, MIRROR, P4, P4M, TRIVIAL, Group

ALL = list(GROUPS.values())
ROWS = Group("flip-rows", [((1, 0), (0, 1)), ((-1, 0), (0, 1))])  # groups that a user might add: no layer knows them
DIAGONAL = Group("diagonal", [((1, 0), (0, 1)), ((0, 1), (1, 0))])
FLIPS = Group("flips", [((a, 0), (0, b)) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))])
EVERY = [*ALL, ROWS, DIAGONAL, FLIPS]


@pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)
def test_the_axioms_by_exhaustion(group: Group) -> None:
    elements = range(len(group))
    for a, b in product(elements, elements):
        assert group.product(a, b) in elements
    for a, b, c in product(elements, elements, elements):
        assert group.product(group.product(a, b), c) == group.product(a, group.product(b, c))
    for a in elements:
        assert group.product(a, 0) == group.product(0, a) == a
        assert group.product(a, group.inverse(a)) == group.product(group.inverse(a), a) == 0


@pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)
@pytest.mark.parametrize("size", [(4, 4), (5, 5), (3, 6)])
def test_the_group_acts_on_planes_and_features(group: Group, size: tuple[int, int]) -> None:
    # equivariant (5): L_a L_b = L_ab, and the identity changes nothing
    planes, features = torch.randn(2, 3, *size), torch.randn(2, 3, len(group), *size)
    for x in (planes, features):
        assert torch.equal(group.transform(x, 0), x)
        for a, b in product(range(len(group)), repeat=2):
            both = group.transform(group.transform(x, b), a)
            assert torch.equal(both, group.transform(x, group.product(a, b)))


@pytest.mark.parametrize("group", EVERY, ids=lambda group: group.name)
@pytest.mark.parametrize("size", [(3, 3), (2, 5)])
def test_moved_features_against_a_loop(group: Group, size: tuple[int, int]) -> None:
    # equivariant (6): L_h[f](x, k) = f(h⁻¹x, h⁻¹k), positions about the centre
    f = torch.randn(1, 1, len(group), *size)
    for h in range(len(group)):
        moved = group.transform(f, h)
        inverse = torch.tensor(group.elements[group.inverse(h)], dtype=torch.float64)
        height, width = moved.shape[-2:]
        for k, i, j in product(range(len(group)), range(height), range(width)):
            at = torch.tensor([i - (height - 1) / 2, j - (width - 1) / 2], dtype=torch.float64)
            row, column = (inverse @ at + torch.tensor([(size[0] - 1) / 2, (size[1] - 1) / 2])).round().int().tolist()
            source = group.product(group.inverse(h), k)
            assert moved[0, 0, k, i, j] == f[0, 0, source, row, column]


def test_poses_are_the_published_ones() -> None:
    # pose i is rot90 by i; on poses, roll by i
    x = torch.randn(2, 3, 4, 5, 5)
    for i in range(4):
        assert torch.equal(P4.transform(x[:, :, 0], i), torch.rot90(x[:, :, 0], i, (-2, -1)))
        assert torch.equal(P4.transform(x, i), torch.rot90(x, i, (-2, -1)).roll(i, 2))


def test_the_named_groups() -> None:
    assert [len(group) for group in (TRIVIAL, C2, MIRROR, P4, P4M)] == [1, 2, 2, 4, 8]
    assert set(P4.elements) < set(P4M.elements)
    x = torch.randn(1, 1, 3, 4)
    assert torch.equal(MIRROR.transform(x, 1), x.flip(-1))
    assert torch.equal(C2.transform(x, 1), x.flip(-1, -2))


def test_what_a_group_flips_and_transposes() -> None:
    assert [group.flips for group in (TRIVIAL, MIRROR, ROWS, DIAGONAL)] == [
        (False, False), (False, True), (True, False), (False, False),
    ]  # fmt: skip
    assert all(group.flips == (True, True) for group in (P4, P4M, C2))
    assert [group.transposes for group in (P4, P4M, DIAGONAL, C2, MIRROR)] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([((1, 0), (0, 1)), ((0, -1), (1, 0))], "not a group: .* is missing"),
        ([((0, -1), (1, 0))], "the first is the identity"),
        ([((1, 0), (0, 1)), ((1, 0), (0, 1))], "elements of a group differ"),
        ([((1, 0), (0, 1)), ((1, 1), (0, 1))], "does not map the square grid to itself"),
        ([((1, 0), (0, 1)), ((1, 0), (1, 0))], "does not map the square grid to itself"),
        ([], "the first is the identity"),
    ],
)
def test_what_is_no_group_says_why(elements: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Group("mine", elements)


def test_what_cannot_be_moved_says_why() -> None:
    with pytest.raises(ValueError, match="p4 has the elements 0 to 3, not 4"):
        P4.transform(torch.zeros(1, 1, 2, 2), 4)
    with pytest.raises(ValueError, match=r"features \(B, C, 4, H, W\), not \(1, 1, 3, 2, 2\)"):
        P4.transform(torch.zeros(1, 1, 3, 2, 2), 1)
