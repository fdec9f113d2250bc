"""attach in the place of a network's global pooling: what it promises about the host."""

import copy
import io
import pickle

import pytest
import torch
from scored import scored
from torch import nn

import foveate as fv
from foveate.attach import AttachError
from foveate.models import TinyCNN
from foveate.pooling import ContinuousPool, DiscretePool

timm = pytest.importorskip("timm")

HOSTS = {
    "resnet18": "global_pool",
    "mobilenetv3_small_100": "global_pool",
    "convnext_atto": "head.global_pool",
    "tiny": "global_pool",
}
POOLS = {
    "discrete": (DiscretePool, {"transform": "sparsemax"}),
    "continuous softmax": (ContinuousPool, {}),
    "continuous sparsemax": (ContinuousPool, {"alpha": 2}),
    "mixture": (ContinuousPool, {"modes": 2, "steps": 2}),
}
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def host_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    host = TinyCNN(5) if name == "tiny" else timm.create_model(name, num_classes=5)
    return host.eval()


def attached(name: str, pool: str) -> nn.Module:
    kind, options = POOLS[pool]
    return scored(fv.attach(host_of(name), HOSTS[name], kind, example=IMAGES, **options))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", HOSTS)
def test_it_takes_the_place_of_the_global_pooling(name: str, pool: str) -> None:
    host = host_of(name)
    with torch.no_grad():
        before, names = host(IMAGES), list(host.state_dict())
        model = attached(name, pool)
        layer = model.get_submodule(HOSTS[name])
        passed: list = []
        layer.register_forward_hook(lambda _, given, output: passed.append((given[0], output)))
        with fv.watch(model) as gazes:
            during = model(IMAGES)
    assert [n for n in model.state_dict() if ".foveate." not in n] == names
    outcome = model.load_state_dict(host.state_dict(), strict=False)
    assert outcome.unexpected_keys == []
    assert all(".foveate." in n for n in outcome.missing_keys)
    assert list(gazes) == [HOSTS[name]]
    gaze = gazes[HOSTS[name]]
    features, output = passed[0]
    assert gaze.map.shape == (2, 1, *features.shape[2:])
    context = (features * gaze.weights).sum(dim=(2, 3))  # what the classifier goes on with is the average under it
    assert torch.allclose(output.flatten(1), context, atol=1e-5)
    assert not torch.allclose(during, before)
    with torch.no_grad():
        assert torch.equal(fv.detach(model)(IMAGES), before)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ["mobilenetv3_small_100"])
def test_copies_files_and_gradients(name: str, pool: str) -> None:
    model = attached(name, pool)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(IMAGES), model(IMAGES))
    assert torch.equal(pickle.loads(pickle.dumps(model))(IMAGES), model(IMAGES))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = attached(name, pool)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(IMAGES), model(IMAGES))
    twin.train()(IMAGES).square().sum().backward()
    added = {n: p.grad for n, p in twin.named_parameters() if ".foveate." in n}
    assert added
    assert all(g is not None and g.isfinite().all() for g in added.values())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("pool", POOLS)
def test_compile_export_autocast_channels_last(pool: str) -> None:
    model = attached("tiny", pool)
    with torch.no_grad():
        exact = model(IMAGES)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(IMAGES), exact, atol=1e-5)
        program = torch.export.export(model, (IMAGES,))
        assert torch.allclose(program.module()(IMAGES), exact, atol=1e-5)
        assert set(program.state_dict) == set(model.state_dict())
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.allclose(model(IMAGES).float(), exact, atol=0.05)
        last = copy.deepcopy(model).to(memory_format=torch.channels_last)
        assert torch.allclose(last(IMAGES.contiguous(memory_format=torch.channels_last)), exact, atol=1e-5)


def test_a_graph_of_the_plain_model_is_not_taken_for_the_pooled_one() -> None:
    torch.compiler.reset()
    models = [host_of("tiny"), attached("tiny", "discrete")]
    with torch.no_grad():
        for model in models:
            compiled = torch.compile(model, backend="eager", fullgraph=True)
            assert torch.allclose(compiled(IMAGES), model(IMAGES), atol=1e-6)


@pytest.mark.parametrize(
    ("where", "pool", "message"),
    [
        ("stages.3", DiscretePool, r"makes \(2, 96, 8, 8\) of .*, so it is no pooling"),
        ("classifier", DiscretePool, r"'classifier' is given \(2, 96\), not a feature map"),
        ("global_pool", fv.RectangularAttention, r"'global_pool' returns \(2, 96\), not a feature map"),
        ("global_pool", DiscretePool(7), r"does not fit layer 'global_pool', whose input is \(96, 8, 8\)"),
    ],
)
def test_errors_are_clear_and_leave_the_model_as_it_was(where: str, pool, message: str) -> None:
    host = host_of("tiny")
    before = host(IMAGES)
    with pytest.raises(AttachError, match=message):
        fv.attach(host, where, pool, example=IMAGES)
    assert torch.equal(host(IMAGES), before)
    assert not any("foveate" in name for name in host.state_dict())


def test_a_pooling_that_returns_a_map_is_an_error() -> None:
    class Wrong(nn.Identity):
        pools = True

    with pytest.raises(AttachError, match=r"must return \(2, 96\) here, one vector per image, but Wrong returned"):
        fv.attach(host_of("tiny"), "global_pool", Wrong(), example=IMAGES)
