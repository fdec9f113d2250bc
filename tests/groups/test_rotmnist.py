"""The paper's rot-MNIST networks: parameters as printed, invariant logits, and the authors' own weights."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foveate.groups import P4, P4M, load_published, p4cnn, z2cnn

PUBLISHED = Path(os.environ.get("FOVEATE_PUBLISHED", Path(__file__).parents[3] / "shared" / "published"))
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the authors' weights are not here: FOVEATE_PUBLISHED")
KINDS = [None, "full", "channel", "spatial", "input", "poses"]


@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (lambda: p4cnn(), 24.61), (lambda: p4cnn("poses"), 24.85), (lambda: p4cnn("full"), 73.13),
        (lambda: p4cnn("channel"), 48.63), (lambda: p4cnn("spatial"), 49.11), (lambda: p4cnn("input"), 29.46),
        (lambda: p4cnn(width=19), 77.54), (lambda: p4cnn(width=15), 50.42), (lambda: p4cnn(width=11), 29.05),
        (lambda: z2cnn(), 21.62),
    ],
)  # fmt: skip
def test_parameters_are_the_papers(make, printed: float) -> None:
    thousands = sum(parameter.numel() for parameter in make().parameters()) / 1000
    assert abs(thousands - printed) <= 0.005 + 1e-9  # Table 1, to the last printed digit


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("group", [P4, P4M], ids=lambda group: group.name)
def test_logits_do_not_change_when_images_are_moved(attention, group) -> None:
    model = p4cnn(attention, width=4, group=group).eval()
    x = torch.randn(2, 1, 28, 28)
    y = model(x)
    assert y.shape == (2, 10)
    for h in range(len(group)):
        assert (model(group.transform(x, h)) - y).abs().max() < 1e-5 * y.abs().max()


def test_images_of_another_size_are_an_error() -> None:
    with pytest.raises(ValueError, match="28×28"):
        p4cnn(width=2)(torch.zeros(1, 1, 32, 32))


# --- the authors' layout ------------------------------------------------------------------------------------------


def authors_state(attention: str | None, width: int) -> dict[str, Tensor]:
    """A random state dict in the names and shapes of the authors' networks."""
    state = {}
    for k in range(1, 8):
        before, after = (1 if k == 1 else width), (10 if k == 7 else width)
        size, poses = (4 if k == 7 else 3), (() if k == 1 else (4,))
        hidden = max(1, before // 2)
        state[f"c{k}.weight"] = torch.randn(after, before, *poses, size, size) / (before * 4 * size**2) ** 0.5
        inside = (after,) if attention in ("full", "channel", "spatial") else ()
        if attention in ("full", "channel", "input"):
            state[f"c{k}.channel_attention.weight_fc1"] = torch.randn(*inside, hidden, before, *poses)
            state[f"c{k}.channel_attention.weight_fc2"] = torch.randn(*inside, before, hidden, *poses)
        if attention in ("full", "spatial", "input"):
            state[f"c{k}.spatial_attention.weight"] = torch.randn(after if inside else 1, 2, *poses, 7, 7) / 7
        if attention == "poses":
            state[f"c{k}.spatial_attention.weight"] = torch.randn(1, before, *poses, 1, 1)
        if k < 7:
            state[f"bn{k}.weight"], state[f"bn{k}.bias"] = torch.rand(width) + 0.5, torch.randn(width)
            state[f"bn{k}.running_mean"], state[f"bn{k}.running_var"] = torch.randn(width), torch.rand(width) + 0.5
            state[f"bn{k}.num_batches_tracked"] = torch.tensor(7)
    return state


def turned(weight: Tensor, i: int, poses: int | None = None) -> Tensor:
    weight = torch.rot90(weight, i, (-2, -1))
    return weight if poses is None else weight.roll(i, poses)


def authors_layer(x: Tensor, state: dict[str, Tensor], k: int) -> Tensor:
    """One layer by the table of facts: filters by rot90 and roll, responses kept; x is an image where k is 1."""
    names = "weight", "channel_attention.weight_fc1", "channel_attention.weight_fc2", "spatial_attention.weight"
    weight, fc1, fc2, filters = (state.get(f"c{k}.{name}") for name in names)
    lifts, features = k == 1, x.unsqueeze(2) if k == 1 else x
    poses_of = (lambda w: w.unsqueeze(-1)) if lifts else (lambda w: w)
    spread = (lambda w: w.unsqueeze(-3)) if lifts else (lambda w: w)
    inside = (fc1 is not None and fc1.ndim == (3 if lifts else 4)) or (
        fc1 is None and filters is not None and len(filters) > 1
    )
    if not inside and filters is not None:
        features = features - authors_input_attention(features, fc1, fc2, filters, lifts) * features
    maps = []
    for i in range(4):
        ws = spread(turned(weight, i, None if lifts else 2))  # (out, in, T, k, k)
        size = ws.shape[-1]
        seen = features.unfold(3, size, 1).unfold(4, size, 1)  # (B, in, T, H', W', k, k)
        f = torch.einsum("bithwuv,oituv->boithw", seen, ws)
        attended = f
        if inside and fc1 is not None:
            w1, w2 = (poses_of(w) if lifts else w.roll(i, -1) for w in (fc1, fc2))
            scores = 0
            for s in (f.mean((-2, -1)), f.amax((-2, -1))):
                scores = scores + torch.einsum("oirt,bort->boit", w2, torch.einsum("orit,boit->bort", w1, s).relu())
            attended = scores.sigmoid()[..., None, None] * attended
        if inside and filters is not None:
            psi = spread(turned(filters, i, None if lifts else 2))  # (out, 2, T, 7, 7)
            statistics = torch.stack([attended.mean(2), attended.amax(2)], 2)  # (B, out, 2, T, H', W')
            z = torch.conv2d(
                statistics.flatten(1, 3), psi.reshape(-1, 1, 7, 7), padding=3, groups=statistics[0, ..., 0, 0].numel()
            )
            attended = z.reshape(statistics.shape).sum(2).sigmoid()[:, :, None] * attended
        result = f - attended if inside else f
        maps.append(result.sum((2, 3)) * (1 if lifts else 2 * torch.pi / 4))
    return torch.stack(maps, 2)


def authors_input_attention(x: Tensor, fc1: Tensor | None, fc2: Tensor | None, filters: Tensor, lifts: bool) -> Tensor:
    """α_F and α_RH on features (B, in, T, H, W); an image has one pose, and one map: the maximum over its four."""
    alpha = torch.ones(())
    if fc1 is not None:
        scores = 0

        def linear(s: Tensor, w: Tensor) -> Tensor:
            w = w[..., None] if lifts else w
            return torch.stack([torch.einsum("bit,oit->bo", s, w.roll(i, -1)) for i in range(w.shape[-1])], -1)

        for s in (x.mean((-2, -1)), x.amax((-2, -1))):
            scores = scores + linear(linear(s, fc1).relu(), fc2)
        alpha = scores.sigmoid()[..., None, None]
    seen = alpha * x
    if filters.shape[-1] > 1:
        seen = torch.stack([seen.mean(1), seen.amax(1)], 1)
    dilation = 4 if lifts and filters.shape[-1] > 1 else 1
    padding = filters.shape[-1] // 2 * dilation
    measure = 1 if lifts else 2 * torch.pi / 4
    poses = []
    for i in range(4):
        w = turned(filters, i, None if lifts else 2)
        w = w if lifts else w.flatten(1, 2)
        poses.append(measure * torch.conv2d(seen.flatten(1, 2), w, padding=padding, dilation=dilation))
    z = torch.stack(poses, 2)
    return alpha * (z.amax(2, keepdim=True) if lifts else z).sigmoid()


def authors_network(state: dict[str, Tensor], x: Tensor) -> Tensor:
    for k in range(1, 7):
        x = authors_layer(x, state, k)
        mean, variance, gain, bias = (
            state[f"bn{k}.{n}"][:, None, None, None] for n in ("running_mean", "running_var", "weight", "bias")
        )
        x = ((x - mean) / (variance + 2e-5).sqrt() * gain + bias).relu()
        if k == 2:
            x = torch.max_pool2d(x.flatten(1, 2), 2).unflatten(1, x.shape[1:3])
    return authors_layer(x, state, 7).amax(2).flatten(1)


@pytest.mark.parametrize("attention", KINDS)
def test_any_of_the_authors_networks_is_read(attention, tmp_path) -> None:
    state = authors_state(attention, 6)
    torch.save(state, tmp_path / "weights.pth")
    model = load_published(tmp_path / "weights.pth")
    x = torch.randn(2, 1, 28, 28).double()
    with torch.no_grad():
        logits = model.double()(x)
    expected = authors_network({n: v.double() if v.is_floating_point() else v for n, v in state.items()}, x)
    assert (logits - expected).abs().max() < 1e-9
    assert not model.training


def test_the_authors_z2cnn_is_read(tmp_path) -> None:
    ours = z2cnn(width=6).eval()
    state = {n: v.squeeze(2) if n.startswith("c") and v.ndim == 5 else v for n, v in ours.state_dict().items()}
    torch.save(state, tmp_path / "z2.pth")
    x = torch.randn(1, 1, 28, 28)
    assert torch.equal(load_published(tmp_path / "z2.pth")(x), ours(x))


@published
@pytest.mark.parametrize("name", ["p4cnn", "att_p4cnn"])
def test_published_weights_give_the_published_logits(name: str) -> None:
    numpy = pytest.importorskip("numpy")
    model = load_published(PUBLISHED / f"{name}.pth")
    given = numpy.load(PUBLISHED / f"{name}.npz")
    images, logits = torch.from_numpy(given["images"])[:, None], torch.from_numpy(given["logits"])
    with torch.no_grad():
        assert (model(images) - logits).abs().max() < 1e-4
        assert (model.double()(images.double()) - logits).abs().max() < 1e-9


class Harmful:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_files_that_are_something_else_say_so(tmp_path, capsys) -> None:
    with pytest.raises(FileNotFoundError, match="no weights at"):
        load_published(tmp_path / "none.pth")
    for content in ({"a": torch.zeros(1)}, [1, 2], Harmful()):
        torch.save(content, tmp_path / "other.pth")
        with pytest.raises(ValueError, match=r"other\.pth is not a state dict"):
            load_published(tmp_path / "other.pth")
    (tmp_path / "other.pth").write_bytes(b"PK not really")
    with pytest.raises(ValueError, match=r"other\.pth is not a state dict"):
        load_published(tmp_path / "other.pth")
    torch.save({**authors_state(None, 4), "c3.weight": torch.zeros(4, 3, 4, 3, 3)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"other\.pth does not fit the network"):
        load_published(tmp_path / "other.pth")
    assert capsys.readouterr().out == ""
