"""attach on ten published networks: one line each, and everything that is promised about the host."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import foveate as fv

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

LAYER = {  # where the last features come out, by the name that the network itself gives it
    "timm:resnet18": "layer4",
    "timm:vgg11_bn": "features",
    "timm:densenet121": "features.denseblock4",
    "timm:mobilenetv3_large_100": "blocks.6",
    "timm:efficientnet_b0": "blocks.6",
    "timm:tf_efficientnet_lite0": "blocks.6",
    "timm:convnext_atto": "stages.3",
    "timm:regnety_002": "s4",
    "torchvision:resnet18": "layer4",
    "torchvision:mobilenet_v3_large": "features",
}
QUICK_TO_COMPILE = ["timm:resnet18", "timm:convnext_atto"]


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    kind, _, model = name.partition(":")
    maker = timm.create_model if kind == "timm" else torchvision.models.get_model
    host = maker(model, num_classes=10)
    if isinstance(host, nn.Module) and model == "vgg11_bn":
        host.pre_logits = timm.models.vgg.ConvMlp(512, 64, 1)  # the published one alone has 100 million parameters
        host.head.fc = nn.Linear(64, 10)
    return host.eval()


def images(batch: int = 2) -> torch.Tensor:
    return torch.rand(batch, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def attached(name: str, **options) -> nn.Module:
    options = {"widths": (8, 8, 8), **options}
    return fv.attach(build(name), LAYER[name], fv.RectangularAttention, example=images(), **options)


@pytest.mark.parametrize("name", LAYER)
def test_a_host_keeps_its_names_its_checkpoint_and_its_outputs(name: str) -> None:
    host = build(name)
    with torch.no_grad():
        before, names = host(images()), list(host.state_dict())
        fv.attach(host, LAYER[name], fv.RectangularAttention, widths=(8, 8, 8), example=images())
        with fv.watch(host) as gazes:
            during = host(images())
    assert [n for n in host.state_dict() if ".foveate." not in n] == names
    outcome = host.load_state_dict(fv.detach(copy.deepcopy(host)).state_dict(), strict=False)
    assert outcome.unexpected_keys == []
    assert outcome.missing_keys
    assert all(".foveate." in n for n in outcome.missing_keys)
    assert not torch.equal(during, before)
    assert list(gazes) == [LAYER[name]]
    assert gazes[LAYER[name]].map.shape == (2, 1, 2, 2)
    with torch.no_grad():
        assert torch.equal(fv.detach(host)(images()), before)


@pytest.mark.parametrize("name", LAYER)
def test_gradients_reach_the_attention_in_training(name: str) -> None:
    model = attached(name).train()
    with fv.watch(model) as gazes:
        logits = model(images())
    nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if ".foveate." in n}
    assert len(gradients) == 8
    assert all(g is not None and g.isfinite().all() for g in gradients.values())
    assert any(g.abs().sum() > 0 for g in gradients.values())
    assert gazes[LAYER[name]].map.requires_grad


@pytest.mark.parametrize("name", LAYER)
def test_channels_last_and_bf16(name: str) -> None:
    model = attached(name)
    with torch.no_grad():
        exact = model(images())
        model = model.to(memory_format=torch.channels_last)
        assert torch.allclose(
            model(images().contiguous(memory_format=torch.channels_last)), exact, rtol=1e-3, atol=1e-4
        )
        with torch.autocast("cpu", torch.bfloat16), fv.watch(model) as gazes:
            half = model(images())
    assert half.isfinite().all()
    assert gazes[LAYER[name]].center.dtype == torch.float32


@pytest.mark.parametrize("name", QUICK_TO_COMPILE)
def test_one_graph_without_breaks(name: str) -> None:
    model = attached(name)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager")(images())
        assert torch.allclose(compiled, model(images()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QUICK_TO_COMPILE)
def test_export(name: str) -> None:
    check_export(attached(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYER)
def test_every_host_compiles_exports_and_runs_in_onnxruntime(name: str, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = attached(name, widths=(64, 128, 256))
    with torch.no_grad():
        expected = model(images())
        compiled = torch.compile(model, fullgraph=True)(images())
    assert torch.allclose(compiled, expected, rtol=1e-3, atol=1e-4)
    check_export(model)
    torch.onnx.export(model, (images(),), str(tmp_path / "model.onnx"), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: images().numpy()})
    assert np.abs(logits - expected.numpy()).max() < 1e-4


def check_export(model: nn.Module) -> None:
    with torch.no_grad():
        program = torch.export.export(model, (images(),))
        assert torch.allclose(program.module()(images()), model(images()), rtol=1e-4, atol=1e-5)
    assert set(program.state_dict) == set(model.state_dict())
