"""The explorer page without a browser: what it computes, and that what it serves answers."""

import json
import math
import urllib.request

import pytest
import torch
from PIL import Image

import foveate as fv
from foveate.data import Scenes
from foveate.figures import explorer
from foveate.figures.look import load_onlookers
from foveate.geometry import similarity, warp
from foveate.metrics import functional
from foveate.metrics.modifications import band

STILL = (0.0, 1.0, 0.0, 0.0)
SCENE = Scenes(10, 64)[3].image
PICTURE = Image.fromarray((SCENE * 255).round().byte().permute(1, 2, 0).numpy())


@pytest.fixture(scope="module")
def looking():
    return explorer.Explorer(load_onlookers(["scenes-rectangular"]))


def test_an_image_that_nothing_is_done_to_is_seen_as_it_is(looking):
    shown, rows = looking.look(PICTURE, *STILL, explorer.NOTHING, "overlay")
    model = fv.load("scenes-rectangular")
    shares = model(model.preprocess(PICTURE)[None]).softmax(1)[0]
    says = f"{model.class_names[int(shares.argmax())]} {shares.max():.0%}"
    assert rows == [["rectangular", says, "1.00", "0.000"]]
    assert shown.width > 1.7 * shown.height  # the image and one gaze, side by side


def test_rows_say_how_the_gaze_bears_moves_and_modifications(looking):
    _, (row,) = looking.look(PICTURE, 40.0, 1.2, 0.1, -0.05, "r > 4", "outline")
    model = fv.load("scenes-rectangular")
    matrix = similarity(torch.tensor([math.radians(40)]), torch.tensor([1.2]), torch.tensor([[-0.05, 0.1]]))
    plain = model.preprocess.resize(PICTURE).float()[None] / 255
    moved = warp(plain, matrix, padding="border")
    gazes = []
    for images in (plain, moved):
        with fv.watch(model) as seen, torch.no_grad():
            model(model.preprocess.normalise(images))
        gazes.append(seen["stages.3"])
    with fv.watch(model) as seen, torch.no_grad():  # what `foveate evaluate` feeds: a band of the normalised image
        logits = model(band(model.preprocess.normalise(moved), above=4))
    assert row[1].startswith(model.class_names[int(logits.argmax())])
    assert float(row[2]) == pytest.approx(float(functional.map_cosine(gazes[1], seen["stages.3"])), abs=0.006)
    assert float(row[3]) == pytest.approx(float(functional.equivariance_error(*gazes, matrix)), abs=6e-4)


def test_every_modification_is_shown_for_every_network_and_nothing_for_no_picture(looking):
    one = looking.trials(PICTURE)
    two = explorer.Explorer(looking.onlookers * 2).trials(PICTURE)
    assert two.size == (one.width, 2 * one.height)
    assert looking.trials(None) is None


def test_a_picture_is_turned_before_every_network_and_nothing_for_no_picture(looking):
    one = looking.turns(PICTURE)
    two = explorer.Explorer(looking.onlookers * 2).turns(PICTURE)
    assert two.size == (one.width, 2 * one.height)
    assert looking.turns(None) is None
    assert looking.look(None, *STILL, explorer.NOTHING, "overlay") == (None, [])


@pytest.mark.parametrize("name", list(explorer.modifications(64)))
def test_each_choice_on_the_page_works(looking, name):
    shown, rows = looking.look(PICTURE.convert("RGBA"), 10.0, 0.9, 0.0, 0.1, name, "spotlight+contour")
    assert shown is not None
    assert len(rows) == 1


def test_the_page_is_served_and_answers(looking):
    gradio = pytest.importorskip("gradio")
    client = pytest.importorskip("gradio_client")
    blocks = explorer.page(looking)
    assert isinstance(blocks, gradio.Blocks)
    try:
        _, url, _ = blocks.launch(prevent_thread_lock=True, quiet=True)
        assert json.load(urllib.request.urlopen(f"{url}config"))["title"] == "foveate explore"
        asked = client.Client(url, verbose=False)
        shown, table = asked.predict(None, *STILL, explorer.NOTHING, "overlay", api_name="/look")
        assert shown is None
        assert table["headers"] == list(explorer.COLUMNS)
    finally:
        blocks.close()


def test_the_command_serves_the_networks_that_it_is_given(monkeypatch):
    from foveate.cli import run

    served = []
    monkeypatch.setattr(explorer, "serve", lambda *arguments: served.append(arguments))
    assert run(["explore", "--checkpoint", "a.safetensors", "b.safetensors", "--port", "7870"]) == 0
    assert run(["explore"]) == 0
    assert served == [(["a.safetensors", "b.safetensors"], 7870, False), (["scenes-rectangular"], None, False)]
