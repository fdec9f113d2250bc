"""The report of a comparison: one HTML file with the table, the curves, and what each attention looked at."""

import base64
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from matplotlib.figure import Figure
from torch import Tensor

from foveate.figures.curves import Curves, learning_curves
from foveate.figures.files import encode, write
from foveate.figures.grids import check_counts
from foveate.figures.overlay import Images, draw, image_list
from foveate.figures.page import page
from foveate.figures.style import INK, colors
from foveate.gaze import Gaze


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        name: the key of its values in the rows.
        title: what the table calls it; the name where it is empty.
        unit: "%", "×", "ms"; a value that is a share of 1 is to be given in its unit.
        better: "higher" or "lower": the best value is set bold. None for what is neither.
        digits: after the decimal point.
        about: a sentence that says what it means.
    """

    name: str
    title: str = ""
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    digits: int = 1
    about: str = ""


@dataclass
class Gallery:
    """The same images side by side under each attention.

    Attributes:
        images: (B, 3, H, W) in [0, 1], or a sequence of (3, H, W).
        gazes: by the name of the attention; each of the B images.
        labels: the true class of each image, or any line of text.
        predictions: by the name of the attention, the class it gave each image; right where it is the label. An
            attention without a gaze may have predictions.
        masks: (B, 1, H, W), what is known to be there.
        truth: a gaze known to be right.
        how: a way of drawing, see `foveate.figures.draw`, or one for each name.
        title, about: of the section.
    """

    images: Images
    gazes: Mapping[str, Gaze]
    labels: Sequence[str] | None = None
    predictions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    masks: Images | None = None
    truth: Gaze | None = None
    how: str | Mapping[str, str] = "overlay+outline"
    title: str = "Where they looked"
    about: str = ""


@dataclass
class Illustration:
    """A section with a figure of matplotlib."""

    title: str
    figure: Figure
    about: str = ""


@dataclass
class Report:
    """What a report says; everything but the title, the columns and the rows may be left out.

    Attributes:
        title: of the page.
        columns: of the table.
        rows: attention -> name of a column -> a value, or the values of the seeds. Missing ones show as a dash.
        summary: a sentence or two under the title.
        settings: shown as they are: backbone, data, epochs.
        curves: attention -> seed -> epoch -> value.
        curves_label: of these values.
        galleries: what was looked at.
        illustrations: further figures.
        notes: a list at the end, of what a reader should know.
    """

    title: str
    columns: Sequence[Column]
    rows: Mapping[str, Mapping[str, float | Sequence[float]]]
    summary: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    curves_label: str = "validation accuracy"
    galleries: Sequence[Gallery] = ()
    illustrations: Sequence[Illustration] = ()
    notes: Sequence[str] = ()


def write_report(path: str | os.PathLike[str], report: Report) -> Path:
    """Write a report as one self-contained HTML file.

    >>> import torch
    >>> from tempfile import mkdtemp
    >>> gaze = Gaze(torch.rand(2, 1, 7, 7))
    >>> report = Report(
    ...     "Scenes, 20 epochs",
    ...     columns=[Column("accuracy", unit="%", better="higher"), Column("latency", unit="×", better="lower")],
    ...     rows={"none": {"accuracy": [81.0, 82.0]}, "rectangular": {"accuracy": [90.5, 91.0], "latency": 1.08}},
    ...     curves={"none": {0: {1: 0.5, 2: 0.8}}, "rectangular": {0: {1: 0.6, 2: 0.9}}},
    ...     galleries=[Gallery(torch.rand(2, 3, 32, 32), {"rectangular": gaze}, labels=["cat", "dog"])],
    ... )
    >>> write_report(Path(mkdtemp()) / "report.html", report).name
    'report.html'
    """
    return write(path, render(report).encode())


def render(report: Report) -> str:
    """The page of a report as a string."""
    names = list(dict.fromkeys([*report.rows, *report.curves, *(n for g in report.galleries for n in g.gazes)]))
    color = colors(names)
    sections = [f"<header><h1>{escape(report.title)}</h1>{_paragraph(report.summary, 'lead')}</header>"]
    if report.rows:
        sections.append(_section("Results", _table(report.columns, report.rows, color)))
    sections += [_section(gallery.title, _gallery(gallery)) for gallery in report.galleries]
    if any(values for seeds in report.curves.values() for values in seeds.values()):
        sections.append(_section("Learning curves", _curves(report.curves, report.curves_label)))
    for illustration in report.illustrations:
        picture = f'<img class="illustration" alt="{escape(illustration.title)}" src="{_data(illustration.figure)}">'
        sections.append(_section(illustration.title, picture + _paragraph(illustration.about)))
    if report.settings:
        pairs = (f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in report.settings.items())
        sections.append(_section("Settings", f"<dl>{''.join(pairs)}</dl>"))
    if report.notes:
        sections.append(_section("Notes", "<ul>" + "".join(f"<li>{escape(n)}</li>" for n in report.notes) + "</ul>"))
    return page(report.title, "\n".join(sections))


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>"


def _paragraph(text: str, kind: str = "read") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""


def _table(
    columns: Sequence[Column], rows: Mapping[str, Mapping[str, float | Sequence[float]]], color: Mapping[str, str]
) -> str:
    values = {name: {column.name: _finite(row.get(column.name)) for column in columns} for name, row in rows.items()}
    best = {column.name: _best(column, [row[column.name] for row in values.values()]) for column in columns}
    head = "".join(f'<th scope="col"><button>{_heading(column)}</button></th>' for column in columns)
    body = ""
    for name, row in values.items():
        dot = f'<span class="dot" style="background:{color[name]}"></span>'
        cells = "".join(_cell(column, row[column.name], best[column.name]) for column in columns)
        body += f'<tr><th scope="row">{dot}{escape(name)}</th>{cells}</tr>\n'
    table = f'<table><thead><tr><th scope="col">attention</th>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>' + _how_to_read_table(columns, values)


def _finite(values: float | Sequence[float] | None) -> list[float]:
    many = [] if values is None else list(values) if isinstance(values, Sequence) else [values]
    return [float(value) for value in many if math.isfinite(value)]


def _rounded(column: Column, values: Sequence[float]) -> str:
    return f"{fmean(values):,.{column.digits}f}".replace("-", "\u2212")


def _best(column: Column, rows: Sequence[Sequence[float]]) -> str | None:
    """The best mean of a column as it is shown, so that equal ones are bold alike; None where all are equal."""
    means = {fmean(values): _rounded(column, values) for values in rows if values}
    if column.better is None or len(set(means.values())) < 2:
        return None
    return means[max(means) if column.better == "higher" else min(means)]


def _heading(column: Column) -> str:
    arrow = {"higher": "&nbsp;↑", "lower": "&nbsp;↓", None: ""}[column.better]
    unit = f"<small>{escape(column.unit)}</small>" if column.unit else ""
    return f"{escape(column.title or column.name)}{arrow}{unit}"


def _cell(column: Column, values: Sequence[float], best: str | None) -> str:
    if not values:
        return "<td>&ndash;</td>"
    shown = _rounded(column, values)
    text = f"<strong>{shown}</strong>" if shown == best else shown
    if len(values) > 1:
        text += f' <span class="dev">± {stdev(values):,.{column.digits}f}</span>'
    return f'<td data-value="{fmean(values):.10g}">{text}</td>'


def _how_to_read_table(columns: Sequence[Column], values: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    seeds = max((len(cell) for row in values.values() for cell in row.values()), default=1)
    mean = f"Mean ± deviation over {seeds} seeds. " if seeds > 1 else ""
    text = mean + "↑ higher is better, ↓ lower is better; the best of each column is bold. A heading sorts the table."
    about = (f"<li><b>{escape(c.title or c.name)}</b>: {escape(c.about)}</li>" for c in columns if c.about)
    items = "".join(about)
    return _paragraph(text) + (f'<ul class="read">{items}</ul>' if items else "")


def _curves(curves: Curves, label: str) -> str:
    figure = learning_curves(curves, label, size=(4.7, 3.0))
    figure.set_facecolor("none")
    for ax in figure.axes:
        ax.set_facecolor("none")
    svg = encode(figure, "svg").decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    opening = re.sub(r'\s(?:xmlns(?::\w+)?|width|height)="[^"]*"', "", svg[: svg.index(">")])
    drawing = opening + svg[svg.index(">") :].replace(INK, "currentColor")  # the ink of the page, light or dark
    seeds = max(len(values) for values in curves.values())
    read = "Further up is better from the first epochs on." if seeds == 1 else _READ_BAND
    return f'<div class="curves" role="img" aria-label="learning curves">{drawing}</div>' + _paragraph(read)


_READ_BAND = "Each line is the mean over the seeds, its band reaches from the lowest seed to the highest."


def _gallery(gallery: Gallery) -> str:
    pictures = image_list(gallery.images)
    count, extra = len(pictures), {f"predictions of {k}": v for k, v in gallery.predictions.items()}
    check_counts(count, gallery.gazes, labels=gallery.labels, masks=gallery.masks, truth=gallery.truth, **extra)
    cells = [_name("image")]
    for k, picture in enumerate(pictures):
        label = f"<figcaption>{escape(gallery.labels[k])}</figcaption>" if gallery.labels is not None else ""
        cells.append(_figure(gallery, picture, "image", "image", k, label))
    for name in dict.fromkeys([*gallery.predictions, *gallery.gazes]):
        how = gallery.how if isinstance(gallery.how, str) else gallery.how.get(name, "overlay+outline")
        cells.append(_name(name))
        for k, picture in enumerate(pictures):
            said = _prediction(gallery, name, k)
            there = name in gallery.gazes
            cells.append(_figure(gallery, picture, name, how, k, said) if there else f"<figure>{said}</figure>")
    columns = f"--n:{count};grid-template-columns:7rem repeat({count},minmax(104px,1fr))"
    return (
        f'<div class="scroll"><div class="gallery" style="{columns}">\n'
        + "\n".join(cells)
        + "\n</div></div>"
        + (_paragraph(gallery.about or _how_to_read_gallery(gallery)))
    )


def _name(name: str) -> str:
    return f'<div class="name">{escape(name)}</div>'


def _prediction(gallery: Gallery, name: str, k: int) -> str:
    if name not in gallery.predictions:
        return ""
    said = gallery.predictions[name][k]
    kind = "" if gallery.labels is None else "right" if said == gallery.labels[k] else "wrong"
    return f'<figcaption class="{kind}">{escape(said)}</figcaption>'


def _figure(gallery: Gallery, picture: Tensor, name: str, how: str, k: int, caption: str) -> str:
    figure = Figure(figsize=(1.5, 1.5 * min(picture.shape[1] / picture.shape[2], 2.0)))
    ax = figure.add_axes((0, 0, 1, 1))
    mask = None if gallery.masks is None else gallery.masks[k]
    draw(ax, picture, gallery.gazes.get(name), how, k, mask, gallery.truth)
    source = _data(figure, dpi=144, tight=False)
    return f'<figure><img alt="{escape(name)}, image {k + 1}" src="{source}">{caption}</figure>'


def _how_to_read_gallery(gallery: Gallery) -> str:
    known = gallery.masks is not None or gallery.truth is not None
    return "One column is one test image, one row is one attention; bright is where it looked." + (
        " The green line is the object that is known to be there, which no attention was shown." if known else ""
    )


def _data(figure: Figure, dpi: float = 144, tight: bool = True) -> str:
    return "data:image/png;base64," + base64.b64encode(encode(figure, dpi=dpi, tight=tight)).decode()
