"""Section V and appendices C to F: formulas against brute force, theorems on examples, and where they are loose."""

import itertools
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foveate.attention.rectangular import rectangle_window
from foveate.metrics import functional
from foveate.metrics import theory as T


def signs(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randint(2, shape, generator=generator) - 1


def distributions(seed, count, size):
    """Random small distributions with many zeros, so that supports differ."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(4, (count, size), generator=generator).double()
    weights[weights.sum(1) == 0, 0] = 1
    return weights / weights.sum(1, keepdim=True)


# -- rates ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10_000))
def test_rates_against_sets_and_proposition_1(height, width, seed):
    a, b = signs(2, height, width, seed=seed)
    one, other = (set(map(tuple, (m > 0).nonzero().tolist())) for m in (a, b))
    pixels = height * width
    differ = len(one ^ other)
    assert T.catching_rate(a, b).item() == pytest.approx((pixels - 2 * differ) / pixels)
    assert T.missing_rate(a, b).item() == pytest.approx(differ / pixels)
    expected = len(one & other) / len(one | other) if one | other else 1.0
    assert T.fitting_rate(a, b).item() == pytest.approx(expected)
    assert (T.fitting_rate(a, b) == 1) == torch.equal(a, b)  # the paper's "if and only if"; it settles the empty union


def test_rates_broadcast_and_agree_with_the_metrics():
    a, b = signs(4, 1, 6, 5), signs(3, 6, 5, seed=1)
    for rate in (T.catching_rate, T.missing_rate, T.fitting_rate):
        found = rate(a, b)
        assert found.shape == (4, 3)
        assert found[2, 1] == rate(a[2, 0], b[1])
    maps, masks = (a + 1) / 2, (b[:1] + 1) / 2
    masks = masks.expand(4, 6, 5)
    for name in ("catching_rate", "fitting_rate"):
        expected = getattr(T, name)(a[:, 0], b[0])
        assert getattr(functional, name)(maps, masks).tolist() == pytest.approx(expected.tolist())


def test_fitting_rate_is_exact_on_one_pixel_of_a_large_plane():
    """1 − Ψ loses digits where the union is small; float32 would be off in the third."""
    a = -torch.ones(224, 224)
    b = a.clone()
    a[0, 0] = b[0, 0] = b[0, 1] = 1
    assert T.fitting_rate(a, b).item() == pytest.approx(0.5, rel=1e-9)


# -- relevance and generalisation --------------------------------------------------------------------------------------


def test_relevance_level_against_every_function():
    """(13) as it is printed: the infimum over all functions from three inputs to the set of maps, and all truths."""
    maps, truths = signs(4, 2, 3), signs(3, 2, 3, seed=1)
    functions = itertools.product(range(4), repeat=3)
    printed = min(T.catching_rate(maps[value], truth).item() for f in functions for value in f for truth in truths)
    assert T.relevance_level(maps, truths).item() == pytest.approx(printed)
    with pytest.raises(ValueError, match="at least one"):
        T.relevance_level(maps[:0], truths)


def test_fewer_maps_are_never_less_relevant():
    maps, truths = signs(9, 4, 4), signs(5, 4, 4, seed=1)
    levels = [T.relevance_level(maps[:n], truths).item() for n in range(1, 10)]
    assert levels == sorted(levels, reverse=True)  # (14)
    assert levels[0] > levels[-1]


def test_rectangles_are_not_more_relevant_where_objects_are_rectangles():
    """Remark 2 has rectangles raise ρ; where the objects are any rectangles it stays at −1, as for all maps.

    The left half is a rectangle, and so is its opposite, the right half. It takes knowledge about the objects.
    """
    rectangles = T.axis_rectangles((3, 4))
    everything = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=12))).view(-1, 3, 4)
    small = rectangles[(rectangles > 0).sum((1, 2)) <= 2]
    assert T.relevance_level(rectangles, rectangles) == T.relevance_level(everything, rectangles) == -1
    assert T.relevance_level(small, small) > T.relevance_level(everything, small) == -1


def test_axis_rectangles_are_all_of_them():
    found = {tuple(m.flatten().tolist()) for m in T.axis_rectangles((3, 2))}
    expected = set()
    for top, bottom in itertools.combinations(range(4), 2):
        for left, right in itertools.combinations(range(3), 2):
            map = -torch.ones(3, 2)
            map[top:bottom, left:right] = 1
            expected.add(tuple(map.flatten().tolist()))
    assert found == expected
    assert len(T.axis_rectangles((3, 2))) == len(expected)


def test_rademacher_complexity_against_a_loop():
    values = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for sigma in itertools.product([-1, 1], repeat=6):
        total += max(sum(s * v for s, v in zip(sigma, row, strict=True)) / 6 for row in values.tolist())
    exact = T.rademacher_complexity(values).item()
    assert exact == pytest.approx(total / 2**6, abs=1e-6)
    drawn = [T.rademacher_complexity(values, 20_000, torch.Generator().manual_seed(1)).item() for _ in range(2)]
    assert drawn[0] == drawn[1] == pytest.approx(exact, abs=0.01)
    with pytest.raises(ValueError, match="pass draws="):
        T.rademacher_complexity(torch.rand(2, 21))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 10_000))
def test_proposition_2(map_count, sample, seed):
    """The complexity of every function from the sample to the maps: by brute force, in closed form, and its bound."""
    maps, truths = signs(map_count, 2, 3, seed=seed), signs(sample, 2, 3, seed=seed + 1)
    functions = torch.tensor(list(itertools.product(range(map_count), repeat=sample)))
    losses = T.missing_rate(maps[functions], truths)
    brute = T.rademacher_complexity(losses).item()
    assert brute == pytest.approx(T.all_functions_complexity(maps, truths).item())
    assert brute <= (1 - T.relevance_level(maps, truths).item()) / 4 + 1e-12


def test_proposition_2_is_an_equality_for_position_wise_maps():
    everything = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=6))).view(-1, 2, 3)
    truths = signs(5, 2, 3)
    level = T.relevance_level(everything, truths)
    assert T.all_functions_complexity(everything, truths).item() == pytest.approx((1 - level.item()) / 4) == 0.5


def test_theorem_1_on_samples():
    """Four inputs, each with its rectangle, and all functions from them to eight maps: no sample breaks the bound."""
    rectangles = T.axis_rectangles((3, 3))
    maps, truths = rectangles[::5][:6], rectangles[[3, 11, 20, 30]]
    functions = torch.tensor(list(itertools.product(range(len(maps)), repeat=4)))
    losses = T.missing_rate(maps[functions], truths)  # (F, 4)
    chances = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    expected = losses @ chances
    level, failures = T.relevance_level(maps, truths), 0
    generator = torch.Generator().manual_seed(0)
    sharper_fails = 0
    for _ in range(200):
        sample = chances.multinomial(200, replacement=True, generator=generator)
        empirical = losses[:, sample].mean(1)
        failures += bool((expected > T.generalization_bound(empirical, level, 200, delta=0.1)).any())
        complexity = T.rademacher_complexity(losses[:, sample], 50, generator)
        sharper = T.rademacher_bound(empirical, complexity, 200, delta=0.1)
        sharper_fails += bool((expected > sharper).any())
    assert failures == 0
    assert sharper_fails <= 20
    assert sharper.max() < T.generalization_bound(empirical, level, 200, delta=0.1).max() - 0.1


@given(st.integers(0, 10_000), st.integers(1, 10**6), st.floats(1e-6, 1 - 1e-6), st.floats(0, 1))
def test_theorem_1_never_says_more_than_the_definition_of_relevance(seed, count, delta, empirical):
    """Ψ ≥ ρ by definition, so every missing rate is at most (1 − ρ)/2, with no sample and for certain."""
    maps, truths = signs(3, 2, 3, seed=seed), signs(2, 2, 3, seed=seed + 1)
    level = T.relevance_level(maps, truths)
    certain = T.missing_rate(maps[:, None], truths).max()
    assert certain.item() == pytest.approx((1 - level.item()) / 2)
    assert T.generalization_bound(empirical, level, count, delta) >= certain


def test_bounds_by_hand_and_their_domain():
    found = T.generalization_bound(0.2, 0.4, 50, 0.1).item()
    assert found == pytest.approx(0.2 + 0.3 + 3 * math.sqrt(math.log(20) / 100))
    assert T.rademacher_bound(0.2, 0.15, 50, 0.1).item() == pytest.approx(found)
    for count, delta in [(0, 0.1), (10, 0.0), (10, 2.5)]:  # "for any δ > 0": above 2 the root is not real
        with pytest.raises(ValueError, match="delta"):
            T.generalization_bound(0.2, 0.4, count, delta)


# -- contaminated classes ----------------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.integers(0, 10_000))
def test_total_variation_is_the_largest_difference_of_an_event(size, seed):
    p, q = distributions(seed, 2, size)
    events = torch.tensor(list(itertools.product([0.0, 1.0], repeat=size)), dtype=torch.float64)
    assert T.total_variation(p, q).item() == pytest.approx((events @ (p - q)).abs().max().item(), abs=1e-12)


def classes_and_rates(size, seed):
    """Two classes, a background, and fitting rates of random maps, as (17) has them."""
    a, f = signs(2, size, 2, 2, seed=seed + 1)
    *pure, background = distributions(seed, 3, size)
    return torch.stack(pure), background, T.fitting_rate(a, f)


def separation(pure, background, fitting):
    return T.total_variation(*T.contaminated_density(pure, background, fitting)).item()


@given(st.integers(2, 7), st.integers(0, 100_000))
def test_contaminated_density_is_a_distribution(size, seed):
    pure, background, fitting = classes_and_rates(size, seed)
    assume(((1 - fitting) * background).sum() > 0)
    weight = T.background_weight(pure, background, fitting)
    printed = (1 - pure @ fitting) / (1 - background @ fitting)  # the paper's formula of η
    assert weight.tolist() == pytest.approx(printed.tolist(), abs=1e-12)
    assert (weight >= 0).all()
    density = T.contaminated_density(pure, background, fitting)
    assert density.sum(-1).tolist() == pytest.approx([1, 1])
    assert (density >= 0).all()
    for c, k in itertools.product(range(2), range(size)):
        expected = fitting[k] * pure[c, k] + weight[c] * (1 - fitting[k]) * background[k]
        assert density[c, k].item() == pytest.approx(expected.item())


def test_background_weight_at_perfect_attention():
    """The best case of the paper, λ = 1 everywhere, is 0/0 in its η; next to it there is no η at all."""
    pure, background, _ = classes_and_rates(4, 3)
    perfect = torch.ones(4)
    assert T.background_weight(pure, background, perfect).tolist() == [0, 0]
    assert torch.equal(T.contaminated_density(pure, background, perfect), pure)
    background, fitting = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0])
    with pytest.raises(ValueError, match="no weight"):
        T.contaminated_density(torch.tensor([1.0, 0.0]), background, fitting)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        T.background_weight(torch.tensor([1.0, 0.0]), background, fitting + 1)


@settings(max_examples=300)
@given(st.integers(2, 7), st.integers(0, 100_000))
def test_theorem_2_part_1(size, seed):
    pure, background, fitting = classes_and_rates(size, seed)
    assume(((1 - fitting) * background).sum() > 0)
    bounds = T.theorem2_bounds(pure, fitting)
    assert bounds.by_worst.item() == pytest.approx(min(fitting.tolist()) * T.total_variation(*pure).item())
    assert separation(pure, background, fitting) >= bounds.by_worst.item() - 1e-12


@settings(max_examples=300)
@given(st.integers(2, 7), st.integers(1, 6), st.integers(0, 100_000))
def test_theorem_2_part_2(size, cut, seed):
    pure, background, fitting = classes_and_rates(size, seed)
    pure[0, cut:] = 0  # one class before the cut, the other from it on
    pure[1, :cut] = 0
    assume(pure.sum(1).min() > 0)
    assume(((1 - fitting) * background).sum() > 0)
    pure = pure / pure.sum(1, keepdim=True)
    bounds = T.theorem2_bounds(pure, fitting)
    means = [sum(p * r for p, r in zip(row.tolist(), fitting.tolist(), strict=True)) for row in pure]
    assert bounds.by_mean.item() == pytest.approx(min(means))
    assert bounds.by_mean >= bounds.by_worst - 1e-12  # remark 3: the second statement is the stronger
    assert separation(pure, background, fitting) >= bounds.by_mean.item() - 1e-12


def test_theorem_2_part_2_needs_disjoint_supports():
    """Supports that are distinct but overlap are not enough: perfect attention, means of 1, and a distance of ½."""
    pure = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]])
    background, fitting = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert (pure.double() @ fitting.double()).tolist() == [1, 1]
    assert separation(pure, background, fitting) == 0.5
    assert T.theorem2_bounds(pure, fitting).by_mean is None


def test_better_fitting_can_bring_classes_closer():
    """Remark 3 has the accuracy rise with the fitting rate; only its lower bound does.

    The rate rises at one output and falls nowhere; the classes come closer, down to the bound, which is tight there.
    """
    pure = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    background = torch.tensor([2 / 3, 0.0, 1 / 3], dtype=torch.float64)
    worse, better = torch.tensor([0.0, 0.25, 0.5]), torch.tensor([1.0, 0.25, 0.5])
    assert separation(pure, background, worse) == pytest.approx(0.45)
    assert separation(pure, background, better) == pytest.approx(0.25)
    assert T.theorem2_bounds(pure, worse).by_mean == T.theorem2_bounds(pure, better).by_mean == 0.25


# -- injectivity -------------------------------------------------------------------------------------------------------


def batch(count, seed=0, channels=3, height=4, width=5):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, channels, height, width, generator=generator)
    return x, torch.rand(count, 1, height, width, generator=generator)


def naive_pairs(x, map):
    for i, j in itertools.combinations(range(len(x)), 2):
        if not torch.equal(x[i], x[j]):
            yield i, j, (x[i] - x[j]).double(), map[i].double() * x[i] - map[j].double() * x[j]


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (8, 1, 7)])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_injectivity_margin_against_a_loop(count, shape):
    for scale in (0.2, 1.0, 3.0):
        x, map = batch(count, count, *shape)
        if count > 2:
            x[1], map[1] = x[0], map[0]  # the same input twice is no pair of different inputs
        ratios = [
            (after.square().sum() / before.square().sum()).item() for _, _, before, after in naive_pairs(x, scale * map)
        ]
        expected = 1 - max(ratios) if ratios else 1.0
        assert T.injectivity_margin(x, scale * map).item() == pytest.approx(expected, rel=1e-6)


def test_near_pairs_far_from_the_origin_keep_their_margin():
    """Where a Gram matrix gives noise: two inputs at 1e8 that differ by 1."""
    x = torch.tensor([1e8, 1e8 + 8]).view(2, 1, 1, 1)
    assert T.injectivity_margin(x, torch.full((2, 1, 1, 1), 0.5)).item() == pytest.approx(0.75)
    assert T.is_injective_on(x, torch.full((2, 1, 1, 1), 0.5))


@given(st.integers(2, 5), st.integers(0, 10_000), st.sampled_from([0.5, 1.0, 2.0]))
def test_propositions_3_and_4(count, seed, scale):
    """Whenever a condition holds the batch stays apart. Few values, so that both outcomes occur; x = 0 repeats."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, (count, 1, 1, 2), generator=generator).float()
    map = torch.randint(3, (count, 1, 1, 2), generator=generator) * scale / 2
    for i, j in itertools.combinations(range(count), 2):
        if torch.equal(x[i], x[j]):
            map[j] = map[i]  # the attention is a function of x
    naive = len({tuple(row.tolist()) for row in (x + map * x).flatten(1)}) == len(
        {tuple(row.tolist()) for row in x.flatten(1)}
    )
    assert T.is_injective_on(x, map) == naive
    common = all(
        any(x[i, 0, 0, k] != x[j, 0, 0, k] and map[i, 0, 0, k] == map[j, 0, 0, k] for k in range(2))
        for i, j, _, _ in naive_pairs(x, map)
    )
    assert T.has_common_attention(x, map) == common
    if common or T.injectivity_margin(x, map) > 0:
        assert naive


def test_both_conditions_are_sufficient_only():
    x, _ = batch(4)
    full = torch.ones(4, 1, 4, 5)  # x ↦ 2x is injective, and a contraction by no means
    assert T.injectivity_margin(x, full).item() == pytest.approx(0, abs=1e-6)
    assert T.is_injective_on(x, full)
    flat = torch.full((4, 1, 4, 5), 0.9) - 0.1 * torch.arange(4).view(4, 1, 1, 1)
    assert not T.has_common_attention(x, flat)  # no two attentions are equal anywhere
    assert T.is_injective_on(x, flat)


def test_rescaling_takes_proposition_4_away():
    """A rectangle of half the plane is rescaled to about 2, and then f(x)⊙x stretches differences: no contraction."""
    x, _ = batch(6, height=16, width=16)
    window = rectangle_window(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.35, 0.35]]), torch.zeros(1), (16, 16))
    window = window.expand(6, 1, 16, 16)
    assert T.injectivity_margin(x, window) > 0
    assert T.injectivity_margin(x, window / window.mean()) < 0
    assert T.is_injective_on(x, window / window.mean())


def test_two_inputs_that_become_one():
    x, map = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1), torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    assert not T.is_injective_on(x, map)
    assert not T.has_common_attention(x, map)
    assert T.injectivity_margin(x, map) <= 0


def test_theory_needs_torch_alone():
    code = "import sys, foveate.metrics.theory; sys.exit('torchmetrics' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
