"""The networks of the information bottleneck paper: sizes as printed, gazes for all, formulas for each attention."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import foveate as fv
from foveate import models
from foveate.attention.activation import ActivationHead
from foveate.attention.bottleneck import BottleneckGaze
from foveate.attention.branch import BranchAttention, BranchGaze
from foveate.attention.compatibility import CompatibilityAttention
from foveate.models.wide_resnets import Residual

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(7))
GAZES = {  # where each of them looks
    "vgg": [],
    "vgg_gap": ["classifier"],
    "vgg_pan": ["attention1", "attention2", "attention3"],
    "vgg_dvib": [],
    "vgg_att2": ["attention.0", "attention.1"],
    "vgg_att3": ["attention.0", "attention.1", "attention.2"],
    "vgg_aib": ["attention"],
    "vgg_aib_qt": ["attention"],
    "wrn": [],
    "wrn_abn": ["attention"],
    "wrn_aib": ["attention"],
    "wrn_aib_qt": ["attention"],
}


def small(name: str, classes: int = 5, **options) -> nn.Module:
    torch.manual_seed(0)
    shallow = {"depth": 10} if name.startswith("wrn") else {}
    return models.backbone(name).build(classes, width=1 / 16, **shallow, **options)


def on_meta(build, classes: int, size: int = 32) -> tuple[nn.Module, float]:
    """A network without its numbers, and how many billion multiplications an image takes."""
    with torch.device("meta"):
        model = build(classes).eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, 3, size, size))
    return model, counter.get_total_flops() / 2e9


def learned(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# --- sizes as printed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "printed", "printed_100"),
    [
        ("vgg_att3", "19.86", "19.99"),
        ("wrn_abn", "64.35", "64.48"),
        ("wrn_aib", "65.00", "65.11"),
        ("wrn_aib_qt", "65.00", "65.11"),
    ],
)
def test_parameters_as_printed(name: str, printed: str, printed_100: str) -> None:
    for classes, millions in ((10, printed), (100, printed_100)):
        model, _ = on_meta(models.backbone(name).build, classes)
        assert f"{learned(model) / 1e6:.2f}" == millions  # Table 3


@pytest.mark.parametrize("name", ["vgg_aib", "vgg_aib_qt"])
def test_parameters_of_vgg_aib_as_printed_are_all_numbers_of_the_network(name: str) -> None:
    # Table 3 prints 20.05 and 20.07: what is learned, 20.04 and 20.06, and the running statistics of the batch norms
    for classes, millions, alone in ((10, "20.05", "20.04"), (100, "20.07", "20.06")):
        model, _ = on_meta(models.backbone(name).build, classes)
        norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        statistics = sum(norm.running_mean.numel() + norm.running_var.numel() for norm in norms)
        assert statistics == 10_496
        assert f"{(learned(model) + statistics) / 1e6:.2f}" == millions
        assert f"{learned(model) / 1e6:.2f}" == alone


@pytest.mark.parametrize("anchors", [0, 20])
def test_the_form_for_cub_has_the_printed_size(anchors: int) -> None:
    model, billions = on_meta(lambda classes: models.vgg_aib(classes, anchors, size=224), 200, 224)
    assert f"{learned(model) / 1e6:.2f}" == "24.28"  # Table 3
    assert billions == pytest.approx(16.75, rel=0.03)  # Table 4
    kinds = [type(layer) for layer in model.encoder] + [type(layer) for layer in model.head.encode.children()]
    assert kinds == [nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear]  # the encoder only contains a linear layer
    assert sum(isinstance(m, nn.Conv2d) for m in model.features.modules()) == 13  # all of VGG-16


@pytest.mark.parametrize("anchors", [0, 50])
def test_the_wide_form_for_cub_has_the_printed_size_with_a_group_that_nothing_uses(anchors: int) -> None:
    pytest.importorskip("timm")
    model, _ = on_meta(lambda classes: models.wrn_aib(classes, anchors, size=224, latent=256), 200, 224)
    # Table 3 prints 130.73: the published code also makes a third group for the look, and never uses it
    unused = learned(model.features[6])
    assert f"{(learned(model) + unused) / 1e6:.2f}" == "130.73"
    assert f"{learned(model) / 1e6:.2f}" == "109.99"


def test_forms_for_cub_start_from_published_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm")
    asked = []

    def create_model(name: str, pretrained: bool = False, **options):  # random ones in the place of published ones
        asked.append((name, pretrained))
        if name == "vgg16":
            torch.manual_seed(5)
            return SimpleNamespace(features=nn.Sequential(*models.vgg_aib(2, size=64).features, nn.MaxPool2d(2)))
        return real(name, **options)

    real = timm.create_model
    with torch.device("meta"):
        published = real("vgg16", num_classes=0).features.state_dict()
        ours = models.vgg_aib(2, size=64).features.state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in published.items()}
    monkeypatch.setattr(timm, "create_model", create_model)
    model = models.build(models.Recipe("vgg_aib_qt", ["a", "b"], backbone_options={"size": 64}), "pretrained")
    assert asked == [("vgg16", True)]
    expected = create_model("vgg16", pretrained=True).features.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.features.state_dict().items())
    asked.clear()
    with torch.device("meta"):
        models.wrn_aib(2, size=64, pretrained=True)
    assert asked == [("wide_resnet50_2", True), ("wide_resnet50_2", False)]
    for build, options in ((models.vgg_aib, {}), (models.wrn_aib, {}), (models.vgg_aib, {"size": 64, "width": 0.5})):
        with pytest.raises(ValueError, match="published weights"):
            build(2, pretrained=True, **options)
    with pytest.raises(ValueError, match="width 1"):
        models.wrn_aib(2, size=64, width=0.5)


@pytest.mark.parametrize(
    ("name", "printed", "printed_100"),
    [
        ("vgg_aib", 3.79, 3.79),
        ("vgg_aib_qt", 3.79, 3.79),
        ("wrn_aib", 39.14, 39.20),
        ("wrn_aib_qt", 39.14, 39.20),
    ],
)
def test_flops_as_printed(name: str, printed: float, printed_100: float) -> None:
    for classes, billions in ((10, printed), (100, printed_100)):
        _, counted = on_meta(models.backbone(name).build, classes)
        assert counted == pytest.approx(billions, rel=0.002)  # Table 4


def test_width_makes_every_layer_narrower() -> None:
    for name in GAZES:
        full, narrow = (on_meta(lambda c, w=w, n=name: models.backbone(n).build(c, width=w), 10)[0] for w in (1, 0.25))
        assert learned(narrow) < learned(full) / 9
    with pytest.raises(ValueError, match="width must be positive"):
        models.vgg(10, width=0)
    with pytest.raises(ValueError, match="width must be positive"):
        models.wrn(10, width=-1)
    with pytest.raises(ValueError, match="6n \\+ 4"):
        models.wrn(10, depth=27)


# --- what all of them do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GAZES)
def test_logits_gazes_and_gradients(name: str) -> None:
    model = small(name).train()
    with fv.watch(model) as seen:
        logits = model(IMAGES)
    assert logits.shape == (3, 5)
    assert list(seen) == GAZES[name]
    for gaze in seen.values():
        assert gaze.map.shape[:2] == (3, 1)
        assert gaze.map.isfinite().all()
    auxiliary = sum(gaze.branch_logits.square().sum() for gaze in seen.values() if isinstance(gaze, BranchGaze))
    (F.cross_entropy(logits, torch.tensor([0, 3, 1])) + seen.penalty + auxiliary).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("name", GAZES)
@pytest.mark.parametrize("size", [(32, 32), (40, 64)])
@pytest.mark.parametrize("batch", [0, 1])
def test_any_batch_and_images_that_are_not_square(name: str, batch: int, size: tuple[int, int]) -> None:
    model = small(name).eval()
    with torch.no_grad(), fv.watch(model) as seen:
        assert model(torch.rand(batch, 3, *size)).shape == (batch, 5)
    assert all(len(gaze) == batch for gaze in seen.values())


@pytest.mark.parametrize("name", GAZES)
def test_recipes_and_files_reach_them(name: str, tmp_path) -> None:
    options = {"width": 1 / 16, **({"depth": 10} if name.startswith("wrn") else {})}
    recipe = models.Recipe(name, ["cat", "dog", "owl"], backbone_options=options)
    model = models.build(recipe).eval()
    from foveate.data.transforms import Preprocess

    models.save(model, recipe, Preprocess(32), tmp_path / "net.safetensors")
    loaded = models.load(tmp_path / "net.safetensors")
    with torch.no_grad():
        assert torch.equal(loaded(IMAGES), model(IMAGES))
    kind = models.backbone(name)
    head = model.get_submodule(kind.head(model))
    assert isinstance(head, nn.Linear)
    assert head.out_features == 3
    with torch.no_grad():
        assert model.get_submodule(kind.last_feature_map(model)[0])(IMAGES).ndim == 4


@pytest.mark.parametrize("name", ["vgg_att3", "vgg_gap", "vgg_aib_qt", "wrn_abn"])
def test_export(name: str) -> None:
    model = small(name).eval()
    program = torch.export.export(model, (IMAGES,))
    assert torch.allclose(program.module()(IMAGES), model(IMAGES), atol=1e-5)


@pytest.mark.parametrize("name", GAZES)
def test_any_attention_attaches_to_them(name: str) -> None:
    model = fv.attach(small(name).eval(), "features", fv.BottleneckAttention, anchors=4)
    with torch.no_grad(), fv.watch(model) as seen:
        model(IMAGES)
    assert isinstance(seen["features"], BottleneckGaze)


# --- the bottleneck's networks ------------------------------------------------------------------------------------


def test_anchors_of_the_quantised_networks_are_the_papers() -> None:
    for name, count in (("vgg_aib", 0), ("vgg_aib_qt", 20), ("wrn_aib", 0), ("wrn_aib_qt", 50)):
        anchors = small(name).attention.look.anchors
        assert (0 if anchors is None else len(anchors)) == count


@pytest.mark.parametrize("name", ["vgg_aib_qt", "wrn_aib_qt"])
def test_attention_lies_at_full_resolution_and_predictions_are_drawn(name: str) -> None:
    model = small(name).eval()
    with torch.no_grad(), fv.watch(model) as seen:
        model(IMAGES)
        assert seen["attention"].map.shape == (3, 1, 32, 32)
        assert fv.draws(model, IMAGES, 4, 12).shape == (4, 12, 3, 5)


def test_the_forward_pass_of_vgg_aib_by_hand() -> None:
    model = small("vgg_aib").eval()
    features = model.features(IMAGES)
    mean = torch.sigmoid(model.attention.look.scores(features))
    attended = features + mean * features
    code = model.head.encode.numbers(model.encoder(attended))[:, :256]
    assert torch.allclose(model(IMAGES), model.head.decode(code), atol=1e-6)
    assert [type(layer) for layer in model.head.decode] == [nn.Linear, nn.ReLU, nn.Linear]
    assert [type(layer) for layer in small("wrn_aib").head.decode] == [nn.ReLU, nn.Linear]


# --- the baselines ------------------------------------------------------------------------------------------------


def test_the_class_activation_map_is_what_each_position_adds_to_the_logit() -> None:
    head, x = ActivationHead(4, 3), torch.randn(2, 4, 5, 6)
    with fv.watch(head) as seen:
        logits = head(x)
    gaze = seen[""]
    assert torch.allclose(logits, x.mean((2, 3)) @ head.look.classifier.weight.T + head.look.classifier.bias)
    for b in range(2):
        c = int(logits[b].argmax())
        scores = torch.einsum("c,chw->hw", head.look.classifier.weight[c], x[b])
        assert torch.allclose(scores.mean(), logits[b, c] - head.look.classifier.bias[c], atol=1e-5)
        expected = (scores - scores.min()) / (scores.max() - scores.min())
        assert torch.allclose(gaze.map[b, 0], expected, atol=1e-6)
    flat = ActivationHead(4, 3).look(torch.ones(1, 4, 2, 2)).map
    assert flat.isfinite().all()


def test_compatibility_is_a_softmax_of_inner_products_with_the_sum() -> None:
    module = CompatibilityAttention(4, 3)
    x, whole = torch.randn(2, 4, 5, 6), torch.randn(2, 3)
    with fv.watch(module) as seen:
        vector = module(x, whole)
    local = torch.einsum("dc,bchw->bdhw", module.project.weight[:, :, 0, 0], x)
    u = module.look.compatibility.weight[0, :, 0, 0]
    scores = torch.einsum("d,bdhw->bhw", u, local) + (whole @ u)[:, None, None]
    shares = scores.flatten(1).softmax(1).reshape(2, 5, 6)
    assert torch.allclose(seen[""].map[:, 0], shares, atol=1e-6)
    assert torch.allclose(vector, torch.einsum("bhw,bdhw->bd", shares, local), atol=1e-6)
    assert isinstance(CompatibilityAttention(3, 3).project, nn.Identity)


def test_the_global_feature_moves_no_compatibility_map_for_a_softmax_takes_it_away() -> None:
    module, x = CompatibilityAttention(4, 3), torch.randn(2, 4, 5, 6)
    maps = []
    for whole in (torch.zeros(2, 3), torch.randn(2, 3)):
        with fv.watch(module) as seen:
            module(x, whole)
        maps.append(seen[""].map)
    assert torch.allclose(*maps, atol=1e-6)


def test_a_pixel_reaches_as_much_of_a_map_as_the_page_of_results_says() -> None:
    reach = {}
    for name in ("vgg_att3", "vgg_aib"):
        model = small(name).eval().double()
        maps = []
        for change in (0.0, 1.0):
            images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)).double()
            images[:, :, 32, 32] += 100 * change
            with torch.no_grad(), fv.watch(model) as seen:
                model(images)
            maps.append({at: gaze.map[0, 0] for at, gaze in seen.items()})
        for at in maps[0]:
            scores = [values[at].log() if name == "vgg_att3" else values[at] for values in maps]
            changed = scores[1] - scores[0]
            changed = (changed - changed[0, 0]).abs() > 1e-6  # a softmax moves all by the same number
            reach[name, at] = int(changed.any(1).sum()) * (64 // changed.shape[0])
    assert reach["vgg_aib", "attention"] == 17
    assert reach["vgg_att3", "attention.0"] == 15
    assert 15 < reach["vgg_att3", "attention.1"] <= 28
    assert reach["vgg_att3", "attention.2"] > 32


def test_the_branch_sees_the_same_evidence_as_its_map() -> None:
    module, x = BranchAttention(4, 3).eval(), torch.randn(2, 4, 5, 6)
    with fv.watch(module) as seen:
        attended = module(x)
    gaze, branch = seen[""], module.look
    evidence: Tensor = branch.evidence(x)
    assert evidence.shape == (2, 3, 5, 6)
    votes = torch.einsum("dc,bchw->bdhw", branch.vote.weight[:, :, 0, 0], evidence)
    assert torch.allclose(gaze.branch_logits, votes.mean((2, 3)), atol=1e-6)
    assert torch.allclose(attended, x + gaze.map * x)


def test_a_residual_block_by_hand() -> None:
    x = torch.randn(2, 4, 6, 6)
    for after, stride in ((4, 1), (8, 2)):
        block = Residual(4, after, stride).eval()
        first = F.conv2d(block.norm1(x).clamp_min(0), block.conv1.weight, stride=stride, padding=1)
        added = F.conv2d(block.norm2(first).clamp_min(0), block.conv2.weight, padding=1)
        kept = x if after == 4 else F.conv2d(block.norm1(x).clamp_min(0), block.shortcut.weight, stride=stride)
        assert torch.allclose(block(x), kept + added, atol=1e-6)
