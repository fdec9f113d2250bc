"""attach and detach: what they promise about the host."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import SmallCNN, small_cnn
from torch import Tensor, nn

import foveate as fv
from foveate.attach import AttachError

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(7))
LAYER = "stages.1"


@pytest.fixture
def host() -> SmallCNN:
    return small_cnn()


@pytest.fixture
def model(host: SmallCNN) -> SmallCNN:
    return fv.attach(host, LAYER, fv.RectangularAttention, widths=(4, 6, 8))


def everything_of(model: nn.Module) -> tuple[list[str], list[int], list[bool], Tensor]:
    """What must be as before after a failure or a detach: names, hooks, modes, random state."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    names = [f"{name}.{own}" for name, module in model.named_modules() for own in vars(module)]
    return names, hooks, [m.training for m in model.modules()], torch.get_rng_state()


# --- names, checkpoints, and back ---------------------------------------------------------------------------------


def test_names_of_the_host_stay_and_only_those_of_the_attention_are_added(host: SmallCNN) -> None:
    before = {name: value.clone() for name, value in host.state_dict().items()}
    after = fv.attach(host, LAYER, fv.RectangularAttention).state_dict()
    added = [name for name in after if name not in before]
    assert [name for name in after if name in before] == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert added
    assert all(".foveate." in name and name.startswith(LAYER) for name in added)


def test_a_published_checkpoint_of_the_host_loads(model: SmallCNN) -> None:
    published = small_cnn(seed=1)
    outcome = model.load_state_dict(published.state_dict(), strict=False)
    assert outcome.unexpected_keys == []
    assert all(".foveate." in name for name in outcome.missing_keys)
    assert torch.equal(fv.detach(model)(IMAGES), published(IMAGES))


def test_attach_changes_the_output_and_detach_restores_it_bit_for_bit(host: SmallCNN) -> None:
    before, whole = host(IMAGES), everything_of(host)
    attached = fv.attach(host, [LAYER, "stem"], fv.RectangularAttention)
    assert attached is host
    assert not torch.allclose(host(IMAGES), before)
    assert fv.detach(host) is host
    assert torch.equal(host(IMAGES), before)
    assert everything_of(host)[:3] == whole[:3]


def test_detach_leaves_what_is_not_ours(host: SmallCNN) -> None:
    host.head.foveate = nn.Linear(2, 2)
    handle = host.stages.register_forward_hook(lambda *_: None)
    fv.detach(fv.attach(host, LAYER, fv.RectangularAttention))
    assert isinstance(host.head.foveate, nn.Linear)
    assert handle.id in host.stages._forward_hooks


def test_detach_works_after_the_host_has_grown(model: SmallCNN) -> None:
    model.stages.append(nn.ReLU())
    fv.detach(model)
    assert not any("foveate" in name for name in model.state_dict())


def test_attach_again_after_detach(model: SmallCNN) -> None:
    fv.attach(fv.detach(model), LAYER, fv.PositionwiseAttention)
    assert model(IMAGES).shape == (3, 5)


def test_the_attention_modulates_what_the_layer_returns(model: SmallCNN) -> None:
    attention = model.stages[1][-1].foveate
    features = fv.detach(copy.deepcopy(model)).stages(model.stem(IMAGES))
    assert torch.equal(model.stages(model.stem(IMAGES)), attention(features))


@pytest.mark.parametrize("training", [True, False])
def test_attaching_leaves_training_modes_and_random_numbers_alone(host: SmallCNN, training: bool) -> None:
    host.train(training)
    host.stem.eval()
    statistics = host.stages[0][1].running_mean.clone()
    before = everything_of(host)
    fv.attach(host, LAYER, nn.Identity)
    after = everything_of(host)
    assert after[2].count(True) == before[2].count(True) + training
    assert torch.equal(after[3], before[3])
    assert torch.equal(host.stages[0][1].running_mean, statistics)
    assert host.stages[1][-1].foveate.training is training


# --- copies, files, averages --------------------------------------------------------------------------------------


def test_a_deep_copy_has_an_attention_of_its_own(model: SmallCNN) -> None:
    twin = copy.deepcopy(model)
    before = model(IMAGES)
    assert torch.equal(twin(IMAGES), before)
    optimizer = torch.optim.SGD(twin.stages[1][-1].foveate.parameters(), lr=5.0)
    twin(IMAGES).square().sum().backward()
    optimizer.step()
    assert torch.equal(model(IMAGES), before)
    assert not torch.equal(twin(IMAGES), before)
    fv.detach(twin)
    assert torch.equal(model(IMAGES), before)


def test_state_dict_round_trip(model: SmallCNN) -> None:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = fv.attach(small_cnn(seed=3), LAYER, fv.RectangularAttention, widths=(4, 6, 8))
    assert not torch.equal(other(IMAGES), model(IMAGES))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(IMAGES), model(IMAGES))


def test_pickling_the_whole_model(model: SmallCNN) -> None:
    twin = pickle.loads(pickle.dumps(model))
    assert torch.equal(twin(IMAGES), model(IMAGES))
    with fv.watch(twin) as gazes:
        twin(IMAGES)
    assert list(gazes) == [LAYER]


def test_a_hook_set_after_unpickling_in_a_new_process_does_not_take_the_place_of_the_attention(
    model: SmallCNN, tmp_path
) -> None:
    # torch numbers hooks per process: a new one must not get the number that the unpickled one came with
    torch.save(model, tmp_path / "model.pt")
    script = (
        "import sys, torch; sys.path[:0] = sys.argv[2:]\n"
        "model = torch.load(sys.argv[1], weights_only=False)\n"
        "number = max(model.stages[1]._forward_hooks)\n"
        "for _ in range(number + 1): model.stages[1].register_forward_hook(lambda *_: None)\n"
        "from foveate.gaze import attached\n"
        "assert len(attached(model.stages[1])) == 1, 'the attention is gone'\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model.pt"), *sys.path], check=True)


@pytest.mark.parametrize("version", ["ModelEmaV2", "ModelEmaV3"])
def test_timm_averages(model: SmallCNN, version: str) -> None:
    utils = pytest.importorskip("timm.utils")
    average = getattr(utils, version)(model, decay=0.5)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(model)
    name = next(n for n in before if "foveate" in n)
    assert torch.allclose(average.module.state_dict()[name], before[name] + 0.5)
    with fv.watch(average.module) as gazes:
        average.module(IMAGES)
    assert list(gazes) == [LAYER]


# --- precision, memory format, compilers --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(model: SmallCNN, dtype: torch.dtype) -> None:
    exact = model(IMAGES)
    with torch.autocast("cpu", dtype), fv.watch(model.train()) as gazes:
        logits = model.eval()(IMAGES)
        logits.float().square().sum().backward()
    assert logits.dtype == dtype
    assert torch.allclose(logits.float(), exact, atol=0.05)
    assert gazes[LAYER].center.dtype == gazes[LAYER].map.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model.stages.parameters())


def test_a_host_in_half_precision_gets_an_attention_in_half_precision(host: SmallCNN) -> None:
    model = fv.attach(host.bfloat16(), LAYER, fv.RectangularAttention)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(IMAGES.bfloat16()).dtype == torch.bfloat16


def test_channels_last(model: SmallCNN) -> None:
    exact = model(IMAGES)
    seen: list[Tensor] = []
    model = model.to(memory_format=torch.channels_last)
    model.nothing.register_forward_hook(lambda _, __, output: seen.append(output))
    logits = model(IMAGES.to(memory_format=torch.channels_last))
    assert torch.allclose(logits, exact, atol=1e-5)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_compile_as_one_graph(model: SmallCNN) -> None:
    assert torch.allclose(torch.compile(model, fullgraph=True)(IMAGES), model(IMAGES), atol=1e-5)


@pytest.mark.parametrize("where", [LAYER, "stages.0.0", "stem"])
def test_a_graph_compiled_for_the_plain_model_is_not_taken_for_the_attached_one(host: SmallCNN, where: str) -> None:
    # torch.compile keeps graphs by class and guards, and its guards do not look at hooks
    torch.compiler.reset()
    models = {
        "plain": copy.deepcopy(host),
        "rectangular": fv.attach(copy.deepcopy(host), where, fv.RectangularAttention),
        "multiply": fv.attach(copy.deepcopy(host), where, fv.RectangularAttention, combine="multiply"),
        "sharp": fv.attach(copy.deepcopy(host), where, fv.RectangularAttention, sharpness=20.0),
        "cbam": fv.attach(copy.deepcopy(host), where, fv.CBAMAttention).eval(),
        "detached": fv.detach(fv.attach(copy.deepcopy(host), where, fv.RectangularAttention)),
    }
    with torch.no_grad():
        for name, model in models.items():
            compiled = torch.compile(model, backend="eager", fullgraph=True)(IMAGES)
            assert torch.allclose(compiled, model(IMAGES), atol=1e-6), name


def test_compiled_training_has_the_same_gradients(model: SmallCNN) -> None:
    twin = copy.deepcopy(model)
    model(IMAGES).square().sum().backward()
    torch.compile(twin, fullgraph=True, backend="aot_eager")(IMAGES).square().sum().backward()
    for name, parameter in model.stages.named_parameters():
        assert torch.allclose(parameter.grad, twin.stages.get_parameter(name).grad, atol=1e-5), name


def test_export(model: SmallCNN) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (IMAGES,), dynamic_shapes={"x": {0: batch}})
    assert set(program.state_dict) == set(model.state_dict())
    for images in (IMAGES, torch.randn(5, 3, 32, 32)):
        assert torch.allclose(program.module()(images), model(images), atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"count": 3, "shape": "superellipse"}, {"rescale": False, "combine": "suppress"}]
)
def test_onnx(host: SmallCNN, options: dict, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = fv.attach(host, LAYER, fv.RectangularAttention, **options)
    file = str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (IMAGES,), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    images = torch.randn_like(IMAGES)
    (logits,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert np.abs(logits - model(images).detach().numpy()).max() < 1e-4


def _ddp_worker(rank: int, store: str, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = fv.attach(small_cnn(), LAYER, fv.RectangularAttention, widths=(4, 6, 8))
    del model.unused  # or nothing would be reduced: the host's own affair
    parallel = nn.parallel.DistributedDataParallel(model)
    images, labels = batch_for_two()
    with fv.watch(parallel) as gazes:
        loss = F.cross_entropy(parallel(images[rank::2]), labels[rank::2])
        (loss + gazes[LAYER].map.square().mean()).backward()
    if rank == 1:
        torch.save({name: p.grad for name, p in model.named_parameters()}, folder)
    del parallel  # before the group that it speaks through
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def batch_for_two() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(5)), torch.arange(8) % 5


def test_ddp_on_two_processes_has_the_gradients_of_one(tmp_path) -> None:
    torch.multiprocessing.spawn(_ddp_worker, (str(tmp_path / "store"), str(tmp_path / "gradients.pt")), nprocs=2)
    parallel = torch.load(tmp_path / "gradients.pt", weights_only=True)
    model = fv.attach(small_cnn(), LAYER, fv.RectangularAttention, widths=(4, 6, 8))
    images, labels = batch_for_two()
    with fv.watch(model) as gazes:
        loss = F.cross_entropy(model(images), labels)
        (loss + gazes[LAYER].map.square().mean()).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(parameter.grad, parallel[name], atol=1e-6), name


# --- where and what -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "layers"),
    [
        ("stem", ["stem"]),
        (["stem", "stages.0"], ["stem", "stages.0"]),
        ("stages.[01]", ["stages.0", "stages.1"]),
        (("stem.?", "stages.1"), ["stem.0", "stem.1", "stem.2", "stages.1"]),
    ],
)
def test_several_layers_and_glob_patterns(host: SmallCNN, where, layers: list[str]) -> None:
    fv.attach(host, where, fv.PositionwiseAttention, widths=(4,))
    with fv.watch(host) as gazes:
        host(IMAGES)
    assert sorted(gazes) == sorted(layers)
    kept = {id(m) for m in host.modules() if isinstance(m, fv.PositionwiseAttention)}
    assert len(kept) == len(layers)


def test_channels_are_found_and_options_passed_on(host: SmallCNN) -> None:
    fv.attach(host, ["stem", LAYER], fv.RectangularAttention, widths=(4, 5), count=2)
    looks = [m for m in host.modules() if isinstance(m, fv.Look)]
    assert [look.features[0].weight.shape[:2] for look in looks] == [(4, 8), (4, 12)]
    assert [look.numbers.weight.shape for look in looks] == [(10, 5), (10, 5)]


def test_a_ready_instance(host: SmallCNN) -> None:
    attention = fv.RectangularAttention(12)
    fv.attach(host, LAYER, attention)
    assert host.stages[1][-1].foveate is attention


def test_a_layer_that_runs_twice_attends_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(x))

    model = fv.attach(Twice(), "conv", fv.RectangularAttention)
    attention, conv = model.conv.foveate, fv.detach(copy.deepcopy(model)).conv
    with fv.watch(model) as gazes:
        output = model(IMAGES)
    once = attention(conv(IMAGES))
    assert torch.allclose(output, attention(conv(once)))
    assert torch.allclose(gazes["conv"].map, attention.look(conv(once)).map)  # the last run's


def test_a_module_dict_that_runs_its_items() -> None:
    class Block(nn.ModuleDict):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.values():
                x = layer(x)
            return x

    model = nn.Sequential(Block({"a": nn.Conv2d(3, 4, 1), "b": nn.ReLU()}))
    fv.attach(model, "0", fv.RectangularAttention)
    calls = []
    model[0]["b"].foveate.register_forward_hook(lambda *_: calls.append(1))
    model(IMAGES)
    assert len(calls) == 1
    assert list(model[0]) == ["a", "b"]


def test_an_example_where_no_usual_image_is_an_input() -> None:
    class Picky(SmallCNN):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1:] != (3, 21, 13):
                raise ValueError("only 21 by 13")
            return super().forward(x)

    with pytest.raises(AttachError, match=r"only 21 by 13.*pass `example=`"):
        fv.attach(Picky(), LAYER, fv.RectangularAttention)
    model = fv.attach(Picky(), LAYER, fv.RectangularAttention, example=torch.zeros(1, 3, 21, 13))
    assert model(torch.rand(2, 3, 21, 13)).shape == (2, 5)


def test_the_dry_run_takes_grey_images_and_small_ones() -> None:
    class Grey(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.head = nn.Linear(4 * 28 * 28, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).flatten(1))

    class Check(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.grey = nn.Identity(), Grey()

        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[2] == 28
            return self.grey(self.before(x))

    assert fv.attach(Check(), "grey.conv", fv.RectangularAttention)(torch.rand(2, 1, 28, 28)).shape == (2, 2)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (17, 5)])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("attention", [fv.RectangularAttention, fv.PositionwiseAttention, fv.CBAMAttention])
def test_any_batch_and_size(attention: type, batch: int, size: tuple[int, int]) -> None:
    host = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).eval()
    model = fv.attach(host, "1", attention)
    images = torch.rand(batch, 3, *size, requires_grad=True)
    with fv.watch(model) as gazes:
        features = model(images)
    features.sum().backward()
    assert features.shape == (batch, 4, *size)
    assert gazes["1"].map.shape == (batch, 1, *size)
    assert images.grad.isfinite().all()


# --- errors, after which the model is as it was -------------------------------------------------------------------


class Strict(nn.Module):
    """An attention that breaks while it is built."""

    def __init__(self, channels: int) -> None:
        raise RuntimeError("no such attention")


ERRORS = {
    "unknown layer": ("stagess.1", fv.RectangularAttention, {}, r"no layer 'stagess.1'; near names: .*stages.1"),
    "unknown pattern": ("blocks.*", fv.RectangularAttention, {}, r"no layer 'blocks.\*'; near names: "),
    "second of two unknown": (["stem", "tem"], fv.RectangularAttention, {}, r"no layer 'tem'; near names: .*stem"),
    "no layer": ([], fv.RectangularAttention, {}, "no layer was named"),
    "not a feature map": ("head", fv.RectangularAttention, {}, r"'head' returns \(2, 5\), not a feature map"),
    "one of them not": (["stem", "head"], fv.RectangularAttention, {}, r"'head' returns \(2, 5\), not a feature map"),
    "never runs": ("unused", fv.RectangularAttention, {}, "'unused' did not run"),
    "empty container": ("nothing", fv.RectangularAttention, {}, "'nothing' holds no layers"),
    "the same output": (["stages", "stages.1"], fv.RectangularAttention, {}, "one and the same output"),
    "instance twice": (["stem", LAYER], fv.RectangularAttention(12), {}, "cannot be behind 2 layers"),
    "instance and options": (LAYER, fv.RectangularAttention(12), {"count": 2}, "takes no options, but got count"),
    "wrong channels": (LAYER, fv.RectangularAttention(8), {}, r"does not fit layer 'stages.1', whose output is \(12,"),
    "not a module": (LAYER, torch.sigmoid, {}, "must be a module or its class"),
    "a function's name": (LAYER, "rectangular", {}, "must be a module or its class"),
    "returns no tensor": (LAYER, fv.RectangularAttention(12).look, {}, "must return a tensor"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_clear_and_leave_the_model_as_it_was(host: SmallCNN, case: str) -> None:
    where, attention, options, message = ERRORS[case]
    before, state = host(IMAGES), everything_of(host)
    with pytest.raises(AttachError, match=message):
        fv.attach(host, where, attention, **options)
    after = everything_of(host)
    assert after[:3] == state[:3]
    assert torch.equal(after[3], state[3])
    assert torch.equal(host(IMAGES), before)


@pytest.mark.parametrize(
    ("options", "error"), [({"shape": "star"}, ValueError), ({"width": 3}, TypeError), ({"combine": "add"}, ValueError)]
)
def test_bad_options_leave_the_model_as_it_was(host: SmallCNN, options: dict, error: type) -> None:
    state = everything_of(host)
    with pytest.raises(error, match=next(iter(options))):
        fv.attach(host, ["stem", LAYER], fv.RectangularAttention, **options)
    assert everything_of(host)[:3] == state[:3]


def test_an_attention_that_breaks_leaves_the_model_as_it_was(host: SmallCNN) -> None:
    state = everything_of(host)
    with pytest.raises(RuntimeError, match="no such attention"):
        fv.attach(host, LAYER, Strict)
    assert everything_of(host)[:3] == state[:3]


def test_a_second_attention_at_the_same_place_is_an_error(model: SmallCNN) -> None:
    before = model(IMAGES)
    for where in (LAYER, "stages", "stages.1.1"):  # three names of one output
        with pytest.raises(AttachError, match="has an attention already; call `detach"):
            fv.attach(model, where, fv.RectangularAttention)
    assert torch.equal(model(IMAGES), before)


def test_one_instance_in_two_calls_is_an_error(host: SmallCNN) -> None:
    attention = fv.RectangularAttention(12)
    fv.attach(host, LAYER, attention)
    with pytest.raises(AttachError, match="in the model already"):
        fv.attach(host, "stages.0", attention)


def test_a_layer_with_an_attribute_of_our_name_is_an_error(host: SmallCNN) -> None:
    host.unused.foveate = 3
    with pytest.raises(AttachError, match="an attribute 'foveate' of its own"):
        fv.attach(host, "unused", fv.RectangularAttention)


def test_a_compiled_model_is_an_error(model: SmallCNN) -> None:
    compiled = torch.compile(model)
    with pytest.raises(AttachError, match="compile it afterwards"):
        fv.attach(compiled, "_orig_mod.stem", fv.RectangularAttention)
    with pytest.raises(AttachError, match="compile it afterwards"):
        fv.detach(compiled)
