import base64
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from foveate import Gaze
from foveate.attention.rectangular import RectangleGaze
from foveate.figures import Column, Gallery, Illustration, Report, write_report
from foveate.figures.report import render

EVIL = '<script>alert("1")</script> & löwe'


class Reader(HTMLParser):
    """Every tag with its attributes, every text, and a check that tags close in order."""

    void = frozenset({"meta", "img", "br", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def full_report() -> Report:
    rectangles = RectangleGaze.draw(torch.rand(3, 2), torch.rand(3, 2) / 2, torch.rand(3), (7, 7))
    return Report(
        EVIL,
        [Column("accuracy", unit="%", better="higher", about=EVIL), Column("latency", EVIL, "×", "lower", 2)],
        {"none": {"accuracy": [80.0, 82.0]}, "rectangular": {"accuracy": [90.0, 94.0], "latency": 1.08}, EVIL: {}},
        summary=EVIL,
        settings={"data": EVIL, EVIL: "x"},
        curves={name: {0: {1: 0.1, 2: 0.2}, 1: {1: 0.2, 2: 0.4}} for name in ("none", "rectangular", EVIL)},
        curves_label=EVIL,
        galleries=[
            Gallery(
                torch.rand(3, 3, 20, 32),
                {"rectangular": rectangles, EVIL: Gaze(torch.rand(3, 1, 7, 7))},
                labels=["cat", "chien été", EVIL],
                predictions={"none": ["cat", "cat", "cat"], EVIL: [EVIL, EVIL, EVIL]},
                masks=torch.ones(3, 1, 20, 32),
                truth=rectangles,
                title=EVIL,
            )
        ],
        illustrations=[Illustration(EVIL, Figure(figsize=(1, 1)), EVIL)],
        notes=[EVIL],
    )


@pytest.fixture(scope="module")
def html() -> str:
    return render(full_report())


def test_every_attention_is_there_and_every_name_is_escaped(html: str) -> None:
    reader = Reader(html)
    text = " ".join(reader.texts)
    assert all(name in text for name in ("none", "rectangular", "chien été"))
    assert text.count(EVIL) >= 14
    assert [tag for tag, _ in reader.tags].count("script") == 1  # the page's own
    assert "alert" not in html[html.index("<script>") : html.index("</script>")]


def test_nothing_comes_from_elsewhere(html: str) -> None:
    rest = re.sub(r"data:image/png;base64,[\w+/=]+", "", html)
    assert not re.search(r"https?:|//|url\((?!#)|@import", rest)
    for tag, attributes in Reader(html).tags:
        assert tag not in ("link", "iframe", "base", "object")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("data:image/png;base64,", "#"))


def test_images_are_whole_and_as_many_as_there_should_be(html: str) -> None:
    sources = [attributes["src"] or "" for tag, attributes in Reader(html).tags if tag == "img"]
    assert len(sources) == 3 * 3 + 1  # images, two gazes; the illustration
    for source in sources[:9]:
        image = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
        image.load()
        assert image.width / image.height == pytest.approx(32 / 20, rel=0.02)


def test_curves_are_inline_in_the_ink_of_the_page(html: str) -> None:
    svg = html[html.index("<svg") : html.index("</svg>")]
    assert "currentColor" in svg
    assert "viewBox" in svg
    assert "xmlns" not in svg
    assert svg.count("epoch") == 1


def row(page: str, name: str) -> str:
    return re.search(rf'<tr><th scope="row">[^/]*</span>{re.escape(name)}</th>(.*?)</tr>', page, re.DOTALL)[1]  # type: ignore[index]


def test_means_deviations_and_the_best(html: str) -> None:
    assert '<strong>92.0</strong> <span class="dev">± 2.8</span>' in row(html, "rectangular")
    assert '81.0 <span class="dev">± 1.4</span>' in row(html, "none")
    assert "strong" not in row(html, "none")
    assert "1.08" in row(html, "rectangular")
    assert "&ndash;" in row(html, "none")
    assert "over 2 seeds" in html


def test_the_best_follows_the_direction_and_what_is_shown() -> None:
    columns = [Column("cost", better="lower"), Column("size", digits=0), Column("same", better="higher")]
    rows = {
        "a": {"cost": 3.0, "size": 12345.0, "same": 1.0},
        "b": {"cost": 1.04, "size": 1.0, "same": 1.01},
        "c": {"cost": 1.03, "size": math.nan, "same": 1.02},
        "d": {"cost": [math.nan, 2.0], "size": -4},
    }
    page = render(Report("t", columns, rows))
    bold = {name: re.findall(r"<strong>(.*?)</strong>", row(page, name)) for name in "abcd"}
    assert bold == {"a": [], "b": ["1.0"], "c": ["1.0"], "d": []}  # a column of equal values has no best
    assert "12,345" in row(page, "a")
    assert "&ndash;" in row(page, "c")
    assert "\u22124" in row(page, "d")
    assert "±" not in row(page, "d")


def test_predictions_are_marked_right_or_wrong(html: str) -> None:
    captions = re.findall(r'<figcaption class="(\w+)">(.*?)</figcaption>', html)
    assert [kind for kind, _ in captions] == ["right", "wrong", "wrong", "wrong", "wrong", "right"]


def test_the_smallest_report(tmp_path: Path) -> None:
    path = write_report(tmp_path / "new" / "report.html", Report("only a title", [], {}))
    Reader(path.read_text(encoding="utf-8"))
    assert list(path.parent.iterdir()) == [path]


def test_a_report_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.html", Report("old", [], {}))
    empty = Gallery(torch.zeros(0, 3, 8, 8), {})
    with pytest.raises(ValueError, match="no images"):
        write_report(path, Report("new", [], {}, galleries=[empty]))
    short = Gallery(torch.rand(2, 3, 8, 8), {}, labels=["a", "b"], predictions={"none": ["a"]})
    with pytest.raises(ValueError, match="'predictions of none' is for 1 images, but 2 are drawn"):
        write_report(path, Report("new", [], {}, galleries=[short]))
    assert "old" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
