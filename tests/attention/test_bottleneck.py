"""The information bottleneck against the paper's equations, each written a second and naive way."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small import small_cnn
from torch import Tensor, nn

import foveate as fv
from foveate.attention.bottleneck import QUIET, BottleneckGaze, BottleneckLook, nearest_anchor
from foveate.attention.latent import Code, Encode
from foveate.geometry import similarity, warp
from foveate.training.objectives import penalties

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(7))
LAYER = "stages.1"


def features(batch: int = 3, channels: int = 6, size: tuple[int, int] = (5, 4), dtype=torch.float64) -> Tensor:
    return torch.randn(batch, channels, *size, dtype=dtype, generator=torch.Generator().manual_seed(3))


def look(**options) -> BottleneckLook:
    module = BottleneckLook(6, **options).double()
    with torch.no_grad():
        module.spread.bias.add_(QUIET)  # draws that differ
    return module


def network(anchors: int = 20, seed: int = 0) -> nn.Module:
    """A host with the whole objective, by the two lines that a user writes."""
    model = small_cnn(seed)
    fv.attach(model, LAYER, fv.BottleneckAttention, anchors=anchors)
    model.head = fv.BottleneckHead(12, 8, 5)
    return model


# --- the map: mean, deviation, draws ------------------------------------------------------------------------------


def test_the_mean_is_a_sigmoid_of_a_convolution_and_the_deviation_comes_from_the_mean() -> None:
    module, x = look(), features()
    gaze = module(x)
    (scores,) = module.scores
    assert (scores.kernel_size, scores.out_channels) == ((3, 3), 1)
    padded = F.pad(x, (1, 1, 1, 1))
    weight, bias = module.spread.weight.item(), module.spread.bias.item()
    for b in range(3):
        for i in range(5):
            for j in range(4):
                score = (padded[b, :, i : i + 3, j : j + 3] * scores.weight[0]).sum() + scores.bias[0]
                mean = 1 / (1 + math.exp(-score.item()))
                assert gaze.mean[b, 0, i, j].item() == pytest.approx(mean)
                deviation = math.log1p(math.exp(weight * mean + bias - QUIET))
                assert gaze.deviation[b, 0, i, j].item() == pytest.approx(deviation)


def test_draws_have_the_gaussian_that_they_are_drawn_from() -> None:
    gaze = look(samples=20_000)(features())
    count = gaze.samples.shape[1]
    error = (gaze.samples.mean(1, keepdim=True) - gaze.mean) / (gaze.deviation / math.sqrt(count))
    assert error.abs().max() < 5
    assert torch.allclose(gaze.samples.std(1, keepdim=True), gaze.deviation, rtol=0.05)
    standard = (gaze.samples - gaze.mean) / gaze.deviation
    neighbours = (standard[:, :, 0, 0] * standard[:, :, 0, 1]).mean(1)
    assert neighbours.abs().max() < 5 / math.sqrt(count)  # positions are drawn independently


def test_gradients_pass_through_draws_as_the_formula_says() -> None:
    module, x = look(), features()
    gaze = module(x)
    noise = ((gaze.samples - gaze.mean) / gaze.deviation).detach()
    gaze.mean.retain_grad(), gaze.deviation.retain_grad()
    gaze.samples.square().sum().backward()
    assert torch.allclose(gaze.deviation.grad, (2 * gaze.samples * noise).detach())  # ∂a/∂σ = ε
    slope = module.spread.weight.item() * torch.sigmoid(module.spread.weight * gaze.mean + module.spread.bias - QUIET)
    assert torch.allclose(gaze.mean.grad, (2 * gaze.samples * (1 + noise * slope)).detach())  # ∂a/∂μ = 1 + ε·∂σ/∂μ


def test_first_maps_are_nearly_their_means() -> None:
    gaze = BottleneckLook(6)(features(dtype=torch.float32))
    assert gaze.deviation.max() < math.log1p(math.exp(2 - QUIET))


def test_evaluation_is_the_mean_and_draws_nothing() -> None:
    for anchors in (0, 20):
        module = fv.BottleneckAttention(6, anchors, samples=3).eval()
        x = features(dtype=torch.float32)
        state = torch.get_rng_state()
        first, second = module(x), module(x)
        assert torch.equal(first, second)
        assert torch.equal(torch.get_rng_state(), state)
        gaze = module.look(x)
        assert torch.equal(gaze.samples, gaze.mean)
        assert torch.equal(gaze.map, gaze.quantised)


def test_the_seed_or_the_generator_decides_the_draws() -> None:
    module, x = fv.BottleneckAttention(6), features(dtype=torch.float32)
    torch.manual_seed(1)
    first = module(x)
    torch.manual_seed(1)
    assert torch.equal(module(x), first)
    assert not torch.equal(module(x), first)
    with_generator = [module.look(x, generator=torch.Generator().manual_seed(5)).samples for _ in range(2)]
    assert torch.equal(*with_generator)


def test_the_average_of_several_draws_is_applied() -> None:
    x = features()
    module = fv.BottleneckAttention(6, anchors=4, samples=3).double()
    torch.manual_seed(1)
    attended = module(x)
    torch.manual_seed(1)
    gaze = module.look(x)
    assert gaze.samples.shape == gaze.quantised.shape == (3, 3, 5, 4)
    assert torch.allclose(gaze.map, gaze.quantised.mean(1, keepdim=True))
    assert torch.allclose(attended, x + gaze.map * x)


# --- anchors ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-10, 10), min_size=2, max_size=12, unique=True).map(sorted),
    st.lists(st.floats(-20, 20), max_size=30),
)
@settings(deadline=None)
def test_the_nearest_anchor_against_all_distances(anchors: list[float], values: list[float]) -> None:
    found = nearest_anchor(torch.tensor(values, dtype=torch.float64), torch.tensor(anchors, dtype=torch.float64))
    for value, index in zip(values, found.tolist(), strict=True):
        best = min(abs(value - anchor) for anchor in anchors)
        assert abs(value - anchors[index]) <= best + 1e-12  # (9), up to rounding where two are as near


def test_the_gaze_is_rounded_to_anchors_in_whatever_order_they_are_learned() -> None:
    module, x = look(anchors=5, samples=2), features()
    with torch.no_grad():
        module.anchors.copy_(torch.tensor([0.9, 0.1, 0.55, -0.2, 0.4]))
    gaze = module(x)
    distances = (gaze.samples.detach()[..., None] - module.anchors).abs()  # the array that the module does without
    assert torch.equal(gaze.quantised, module.anchors[distances.argmin(-1)])
    ordered = module.anchors.sort().values
    shares = [(gaze.quantised[b] == anchor).double().mean() for b in range(3) for anchor in ordered]
    assert torch.allclose(gaze.usage, torch.stack(shares).reshape(3, 5))
    assert torch.allclose(gaze.usage.sum(1), torch.ones(3).double())


def test_anchors_start_even_over_the_unit_interval() -> None:
    assert torch.allclose(fv.BottleneckAttention(3, anchors=5).look.anchors, torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    assert fv.BottleneckAttention(3).look.anchors is None


def test_no_array_over_positions_and_anchors_is_made() -> None:
    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, Tensor):
                    Largest.numbers = max(Largest.numbers, tensor.numel())
            return out

    module, x = BottleneckLook(1, anchors=50), torch.rand(2, 1, 32, 32)
    with Largest():
        module(x).penalty.backward()
    assert Largest.numbers == x.numel()


# --- the objective (10), term by term -----------------------------------------------------------------------------


def test_quantisation_and_commitment_against_the_formula() -> None:
    module = look(anchors=4, samples=2, quantisation=0.3, commitment=0.7)
    gaze = module(features())
    moved = committed = 0.0
    for b in range(3):
        for s in range(2):
            for a, aq in zip(gaze.samples[b, s].flatten(), gaze.quantised[b, s].flatten(), strict=True):
                moved += (a.item() - aq.item()) ** 2 / (6 * 20)
                committed += (a.item() - aq.item()) ** 2 / (6 * 20)
    assert gaze.penalty.item() == pytest.approx(0.3 * moved + 0.7 * committed)
    assert gaze.penalty > 0
    assert look()(features()).penalty == 0


def test_the_weights_are_those_of_the_paper() -> None:
    gaze = fv.BottleneckAttention(6, anchors=4).look(features(dtype=torch.float32))
    assert (gaze.quantisation, gaze.commitment) == (0.4, 0.1)
    assert fv.BottleneckHead(3, 4, 5).encode.beta == 0.01


def test_quantisation_moves_anchors_alone_and_commitment_maps_alone() -> None:
    for weights, anchors_move, maps_move in (((1.0, 0.0), True, False), ((0.0, 1.0), False, True)):
        module = look(anchors=4, quantisation=weights[0], commitment=weights[1])
        gaze = module(features())
        gaze.penalty.backward()
        assert (module.anchors.grad.abs().sum() > 0) == anchors_move
        assert (module.scores[0].weight.grad.abs().sum() > 0) == maps_move
        assert (module.spread.weight.grad.abs().sum() > 0) == maps_move


def test_each_anchor_is_pulled_to_the_values_that_it_got() -> None:
    module = look(anchors=4, quantisation=1.0, commitment=0.0)
    gaze = module(features())
    gaze.penalty.backward()
    index = nearest_anchor(gaze.samples, module.anchors)
    for q in range(4):
        difference = (module.anchors[q] - gaze.samples)[index == q].sum() / 60  # a mean over positions and images
        assert module.anchors.grad[q].item() == pytest.approx(2 * difference.item(), abs=1e-12)


def test_the_task_reaches_the_map_straight_through_and_no_anchor() -> None:
    module = look(anchors=4)
    gaze = module(features())
    gaze.samples.retain_grad()
    upstream = torch.randn_like(gaze.map)
    (gaze.map * upstream).sum().backward()
    assert torch.equal(gaze.map.detach(), gaze.quantised.detach())  # forward: the anchors, to the last bit
    assert torch.equal(gaze.samples.grad, upstream)  # backward: unaltered
    assert module.anchors.grad is None


def test_the_divergence_against_torch_and_monte_carlo() -> None:
    torch.manual_seed(2)
    code = Encode(6, 3).double()(torch.randn(4, 6, dtype=torch.float64))
    posterior = torch.distributions.Normal(code.mean, code.deviation)
    prior = torch.distributions.Normal(torch.zeros(()).double(), torch.ones(()).double())
    exact = torch.distributions.kl_divergence(posterior, prior).sum(1)
    assert torch.allclose(code.divergence, exact)
    z = posterior.sample((200_000,))
    estimate = (posterior.log_prob(z) - prior.log_prob(z)).sum(-1)
    error = (estimate.mean(0) - exact).abs() / (estimate.std(0) / math.sqrt(len(z)))
    assert error.max() < 5
    assert code.penalty.item() == pytest.approx(0.01 * exact.mean().item())


def test_codes_have_the_gaussian_that_they_are_drawn_from() -> None:
    code = Encode(6, 3)(torch.randn(4, 6), samples=50_000)
    assert code.sample.shape == (50_000, 4, 3)
    assert ((code.sample.mean(0) - code.mean) / code.deviation).abs().max() < 5 / math.sqrt(50_000)
    assert torch.allclose(code.sample.std(0), code.deviation, rtol=0.03)


def test_the_whole_objective_against_the_formula() -> None:
    model, labels = network().train(), torch.tensor([0, 3, 1])
    torch.manual_seed(4)
    with fv.watch(model) as seen:
        logits = model(IMAGES)
    loss = F.cross_entropy(logits, labels) + penalties(seen)
    gaze, (code,) = seen[LAYER], seen.others.values()
    naive = 0.0
    for n, row in enumerate(logits.tolist()):
        probability = math.exp(row[labels[n]]) / sum(math.exp(value) for value in row)
        divergence = sum(
            (m**2 + s**2 - 1 - math.log(s**2)) / 2
            for m, s in zip(code.mean[n].tolist(), code.deviation[n].tolist(), strict=True)
        )
        rounding = (gaze.samples[n] - gaze.quantised[n]).square().mean().item()
        naive += (
            -math.log(probability) + 0.01 * divergence + 0.4 * rounding + 0.1 * rounding
        ) / 3  # (10), its signs put right
    assert loss.item() == pytest.approx(naive, rel=1e-5)


def test_who_learns_from_which_term() -> None:
    def learners(term: str) -> set[str]:
        model = network(anchors=4).train()
        with fv.watch(model) as seen:
            logits = model(IMAGES)
        value = {
            "cross-entropy": F.cross_entropy(logits, torch.tensor([0, 3, 1])),
            "divergence": next(iter(seen.others.values())).penalty,
            "rounding": seen[LAYER].penalty,
        }[term]
        value.backward()
        return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}

    everything = {name for name, _ in network().named_parameters() if not name.startswith("unused")}
    anchors = {"stages.1.1.foveate.look.anchors"}
    decoder = {name for name in everything if ".decode." in name}
    behind = {name for name in everything if name.startswith("head.")}
    assert anchors < everything
    assert len(decoder) == 4
    assert learners("cross-entropy") == everything - anchors
    assert learners("divergence") == everything - anchors - decoder
    assert learners("rounding") == everything - behind


def test_without_watch_there_is_no_state_and_no_penalty_is_kept() -> None:
    model = network().train()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    model(IMAGES)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


# --- several draws ------------------------------------------------------------------------------------------------


def noisy(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, BottleneckLook):
            nn.init.constant_(module.spread.bias, QUIET)
    return model


def test_every_draw_is_what_the_network_computes_from_that_map_and_that_code() -> None:
    model = noisy(network(anchors=4)).eval()
    drawn: dict[str, Tensor] = {}
    (encode,) = (m for m in model.modules() if isinstance(m, Encode))
    handle = encode.register_forward_hook(lambda _, __, code: drawn.update(code=code.sample))
    with torch.no_grad(), fv.watch(model) as seen:
        logits = fv.draws(model, IMAGES, attention=3, latent=4)
    handle.remove()
    assert logits.shape == (3, 4, 3, 5)
    maps = seen[LAYER].quantised
    before = fv.detach(copy.deepcopy(model))
    with torch.no_grad():
        f = before.stages(before.stem(IMAGES))
        for s in range(3):
            attended = (f + maps[:, s : s + 1] * f).mean(dim=(2, 3))
            code = before.head.encode(attended)
            for z in range(4):
                ours = drawn["code"][z].reshape(3, 3, 8)[s]  # (maps, images, K)
                assert ((ours - code.mean) / code.deviation).abs().max() < 6
                assert torch.allclose(logits[s, z], before.head.decode(ours), atol=1e-5)


def test_shared_work_is_done_once() -> None:
    model, batches = network().eval(), {}
    for name in ("stem", "stages.0", "nothing", "head.encode", "head.decode"):
        model.get_submodule(name).register_forward_hook(
            lambda _, inputs, output, name=name: batches.setdefault(name, []).append(inputs[0].shape[:-1].numel())
        )
    fv.draws(model, IMAGES, attention=4, latent=12)
    pixels = {"stem": 3 * 32, "stages.0": 8 * 16, "nothing": 12 * 8}
    runs = {name: [count // (3 * pixels.get(name, 1)) for count in counts] for name, counts in batches.items()}
    assert runs == {"stem": [1], "stages.0": [1], "nothing": [4], "head.encode": [4], "head.decode": [48]}


def test_draws_converge_to_the_expectations_of_the_objective() -> None:
    # one linear decoder behind a code: E[logits] has a closed form, the decoder of the mean
    model = nn.Sequential(nn.Flatten(), fv.BottleneckHead(12, 4, 5)).eval()
    model[1].decode = nn.Linear(4, 5)
    x = torch.randn(2, 3, 2, 2)
    with torch.no_grad():
        drawn = fv.draws(model, x, latent=40_000).flatten(0, 1)
        error = (drawn.mean(0) - model(x)) / (drawn.std(0) / math.sqrt(len(drawn)))
    assert error.abs().max() < 5


def test_averages_are_over_logits_or_probabilities() -> None:
    model = noisy(network(anchors=4)).eval()
    with torch.no_grad():
        drawn = fv.draws(model, IMAGES, 4, 12, torch.Generator().manual_seed(1)).flatten(0, 1)
        by_logits = fv.predict(model, IMAGES, generator=torch.Generator().manual_seed(1))
        by_shares = fv.predict(model, IMAGES, average="probabilities", generator=torch.Generator().manual_seed(1))
    assert torch.allclose(by_logits.logits, drawn.mean(0))
    assert torch.allclose(by_logits.logits.log_softmax(-1), drawn.log_softmax(-1).mean(0).log_softmax(-1), atol=1e-5)
    assert torch.allclose(by_shares.probabilities, drawn.softmax(-1).mean(0), atol=1e-6)
    assert torch.allclose(by_shares.spread, drawn.softmax(-1).std(0, correction=0))
    assert not torch.allclose(by_logits.probabilities, by_shares.probabilities, atol=1e-5)
    one = fv.predict(model, IMAGES, attention=1, latent=1)
    assert one.spread.abs().max() == 0


def test_draws_leave_the_network_as_it_was() -> None:
    model = network().eval()
    before, hooks = model(IMAGES), _hooks(model)
    fv.draws(model, IMAGES)
    assert _hooks(model) == hooks
    assert torch.equal(model(IMAGES), before)


def test_draws_have_gradients_for_a_loss_over_several_samples() -> None:
    model = network(anchors=4).train()
    logits = fv.draws(model, IMAGES, attention=2, latent=3)
    F.cross_entropy(logits.flatten(0, 2), torch.tensor([0, 3, 1]).repeat(6)).backward()
    assert model.stem[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("batch", [0, 1])
def test_predictions_for_any_batch(batch: int) -> None:
    assert fv.predict(network().eval(), IMAGES[:batch]).logits.shape == (batch, 5)


def test_several_attentions_are_drawn_together() -> None:
    model = small_cnn()
    fv.attach(model, ["stages.0", LAYER], fv.BottleneckAttention)
    assert fv.draws(model, IMAGES, attention=4).shape == (4, 1, 3, 5)


def test_errors_of_predictions_say_what_is_expected() -> None:
    with pytest.raises(ValueError, match="'logits' or 'probabilities'"):
        fv.predict(network(), IMAGES, average="median")
    with pytest.raises(ValueError, match="must be positive"):
        fv.draws(network(), IMAGES, attention=0)
    mixing = nn.Sequential(fv.BottleneckAttention(3), nn.Flatten(0), nn.Unflatten(0, (3, -1)), nn.Linear(4, 2))
    with pytest.raises((ValueError, RuntimeError)):
        fv.draws(mixing, torch.rand(3, 3, 2, 2))


def _hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# --- what holds for every attention -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3)])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("anchors", [0, 7])
def test_any_batch_and_size(anchors: int, batch: int, size: tuple[int, int]) -> None:
    module = fv.BottleneckAttention(4, anchors, samples=2)
    x = torch.rand(batch, 4, *size, requires_grad=True)
    with fv.watch(module) as seen:
        attended = module(x)
    (gaze,) = seen.values()
    assert attended.shape == x.shape
    assert (gaze.map.shape, gaze.usage.shape) == ((batch, 1, *size), (batch, anchors))
    (attended.sum() + gaze.penalty).backward()
    assert gaze.penalty.isfinite()


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=9, max_size=9), st.sampled_from([0, 5]))
@settings(deadline=None, max_examples=50)
def test_no_finite_features_give_nan(values: list[float], anchors: int) -> None:
    x = torch.tensor(values).reshape(1, 1, 3, 3).requires_grad_()
    gaze = BottleneckLook(1, anchors)(x)
    (gaze.map.sum() + gaze.penalty).backward()
    assert gaze.map.isfinite().all()
    assert not x.grad.isnan().any()


@given(st.lists(st.floats(-(2.0**50), 2.0**50, width=32), min_size=4, max_size=4))
@settings(deadline=None, max_examples=50)
def test_no_finite_features_give_a_code_without_a_price(values: list[float]) -> None:
    x = torch.tensor([values]).requires_grad_()
    code = Encode(4, 2)(x)
    code.penalty.backward()
    assert code.penalty.isfinite()
    assert not x.grad.isnan().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gaze_is_computed_in_float32_under_autocast(dtype: torch.dtype) -> None:
    model = network().train()
    with torch.autocast("cpu", dtype), fv.watch(model) as seen:
        logits = model(IMAGES)
    (code,) = seen.others.values()
    gaze = seen[LAYER]
    for tensor in (gaze.map, gaze.mean, gaze.deviation, gaze.usage, code.mean, code.deviation, seen.penalty):
        assert tensor.dtype == torch.float32
    assert logits.isfinite().all()


def test_channels_last_is_kept() -> None:
    x = torch.rand(2, 6, 5, 5).contiguous(memory_format=torch.channels_last)
    assert fv.BottleneckAttention(6, 5)(x).is_contiguous(memory_format=torch.channels_last)


def test_gradients_in_float64() -> None:
    module = look(samples=2)
    assert torch.autograd.gradcheck(
        lambda x: module(x, generator=torch.Generator().manual_seed(1)).map, features(2, size=(2, 3)).requires_grad_()
    )


def test_detach_brings_the_host_back() -> None:
    host = small_cnn()
    before = host(IMAGES)
    fv.attach(host, LAYER, fv.BottleneckAttention, anchors=5)
    assert not torch.equal(host(IMAGES), before)
    assert torch.equal(fv.detach(host)(IMAGES), before)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_one_graph_without_breaks(mode: str) -> None:
    model = network()
    getattr(model, mode)()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.manual_seed(1)
    expected = model(IMAGES)
    torch.manual_seed(1)
    assert torch.allclose(compiled(IMAGES), expected, atol=1e-5)
    torch.compiler.reset()


def test_export() -> None:
    model = network().eval()
    program = torch.export.export(model, (IMAGES,))
    assert torch.allclose(program.module()(IMAGES), model(IMAGES), atol=1e-5)


def test_a_moved_gaze_moves_with_all_its_maps() -> None:
    gaze = look(anchors=4, samples=2)(features(2, size=(8, 8))).apply(Tensor.detach)
    matrix = similarity(torch.tensor([0.3, 0.0]), torch.ones(2), torch.tensor([[0.1, 0.0], [0.0, 0.1]]))
    moved = gaze.move(matrix)
    assert isinstance(moved, BottleneckGaze)
    for name in ("map", "mean", "deviation", "samples", "quantised"):
        assert torch.equal(getattr(moved, name), warp(getattr(gaze, name), matrix))
    assert moved.usage is gaze.usage


def test_gazes_of_batches_join() -> None:
    module = look(anchors=4, samples=2)
    joined = fv.Gaze.join([module(features(2)), module(features(1))])
    assert (len(joined), joined.samples.shape, joined.usage.shape) == (3, (3, 2, 5, 4), (3, 4))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fv.BottleneckAttention(0), "channels must be positive"),
        (lambda: fv.BottleneckAttention(4, samples=0), "samples must be positive"),
        (lambda: fv.BottleneckAttention(4, anchors=1), "at least 2, not 1"),
        (lambda: fv.BottleneckAttention(4, anchors=-2), "at least 2, not -2"),
        (lambda: fv.BottleneckHead(4, 0, 5), "latent must be positive"),
    ],
)
def test_bad_arguments(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_cuda_device() -> None:
    model, images = network().cuda().train(), IMAGES.cuda()
    with fv.watch(model) as seen:
        loss = model(images).sum() + seen.penalty
    loss.backward()
    assert loss.is_cuda
    generator = torch.Generator("cuda").manual_seed(1)
    assert fv.predict(model.eval(), images, generator=generator).logits.is_cuda


def test_code_is_what_the_layer_says() -> None:
    encode = Encode(6, 3)
    x = torch.randn(2, 6)
    code = encode.eval()(x)
    numbers = x @ encode.numbers.weight.T + encode.numbers.bias
    assert isinstance(code, Code)
    assert torch.allclose(code.mean, numbers[:, :3])
    assert torch.allclose(code.deviation, torch.log1p(numbers[:, 3:].exp()))
    assert torch.equal(code.sample, code.mean)


def test_anchors_settle_at_the_papers_learning_rate_whatever_the_size_of_the_map() -> None:
    module = BottleneckLook(1, anchors=4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    x = torch.rand(2, 1, 64, 64)
    for _ in range(200):
        optimizer.zero_grad()
        module(x).penalty.backward()
        optimizer.step()
    assert module.anchors.min() > -0.1
    assert module.anchors.max() < 1.1
