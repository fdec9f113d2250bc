"""The page of results of narrow.py, and its figure: what the runs' JSON files say."""

import datetime
import math
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foveate.figures.style import colors, styled
from foveate.metrics.interpretability import CURVE

TITLES = {
    "vgg": "VGG", "vgg_gap": "VGG-GAP", "vgg_dvib": "VGG-DVIB", "vgg_att3": "VGG-att3", "vgg_aib": "VGG-aib",
    "vgg_aib_qt": "VGG-aib-qt",
}  # fmt: skip
LEVELS = {"attention.0": "block 3", "attention.1": "block 4", "attention.2": "block 5"}  # where att3 looks
BETA = 0.01
MAPS, CODES = 4, 12  # drawn for a prediction
THRESHOLDS = {"curve": (0.8, 0.9, 0.95, 0.99), "centred": (0.5, 0.7, 0.9)}  # printed; JSON files hold whole curves
WORDS = {"curve": "cosine", "centred": "correlation"}
DRAWN = ("color p=8", "patch p=8", "r > 4", "r < 12")  # the modifications of Fig. 3
Gazes = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]  # (network, gaze) -> the results of its seeds


def page(about: str, results: Sequence[Mapping[str, Any]], command: str, figure: str | None = None) -> str:
    """What came out, as Markdown.

    Args:
        about: what all runs have in common.
        results: of the runs.
        command: that made them.
        figure: the name of the file that `curves` were drawn to.
    """
    main = [r for r in results if r["run"]["beta"] == BETA]
    lines = [
        "# The information bottleneck on CIFAR-10, narrow",
        "",
        *_text(about),
        "",
        "## Test error (Table 1)",
        "",
        *_text(
            "Mean ± standard deviation over the seeds, in %. Predictions average the logits of",
            f"{MAPS} maps × {CODES} codes; beside it the error of the mean map and the mean code, which draws nothing.",
        ),
        "",
        "| network | error | without draws | training accuracy, last epoch | seconds a run | seeds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in TITLES:
        rows = [r for r in main if r["run"]["network"] == name]
        if rows:
            cells = [_mean([100 * r[key] for r in rows], 2) for key in ("error", "error_of_means")]
            accuracy = _mean([100 * r["history"][-1]["accuracy"] for r in rows], 1)
            seconds = statistics.mean(r["seconds"] for r in rows)
            lines.append(f"| {TITLES[name]} | {' | '.join(cells)} | {accuracy} | {seconds:.0f} | {len(rows)} |")
    lines += ["", *_scores(main, figure), "", *_anchors(main), "", *_sweep(results)]
    device = ", ".join(sorted({r["device"] for r in results}))
    took, today = sum(r["seconds"] for r in results), datetime.date.today().isoformat()
    return "\n".join([*lines, f"{today}, {device}, torch {torch.__version__}, {took:.0f} s: `{command}`", ""])


def _scores(results: Sequence[Mapping[str, Any]], figure: str | None) -> list[str]:
    lines = [
        "## Interpretability (Table 2)",
        "",
        *_text(
            "Among the test images whose class survives a modification, the share (%) whose map keeps its cosine,",
            "averaged over the seeds. The paper does not say at which cosine, so here is a table for each of several.",
            "Patches come from other images of the test set. A map that hardly varies over the plane (second column:",
            "its deviation over its mean) keeps any cosine, whatever it looks at. So there are tables for the",
            "correlation of the maps too, which is the cosine of what is left of them when their means are taken off.",
        ),
    ]
    rows = _gazes(results)
    if not rows:
        return [*lines, "", "No attention was measured."]
    for part in (_verdict(rows), [f"![scores over their thresholds]({figure})"] if figure else []):
        lines += ["", *part] if part else []
    modifications = _modifications(rows)
    for kind, threshold in _levels():
        lines += [
            "",
            f"{WORDS[kind].capitalize()} ≥ {threshold}:",
            "",
            f"| network | varies | {' | '.join(modifications)} |",
        ]
        lines.append("|---|---:" + "|---:" * len(modifications) + "|")
        for (network, gaze), of in rows.items():
            varies = statistics.mean(r["relative_deviation"][gaze] for r in of)
            shares = [f"{100 * _score(of, gaze, m, kind, threshold):.1f}" for m in modifications]
            lines.append(f"| {_title(network, gaze)} | {varies:.2f} | {' | '.join(shares)} |")
    survived = [
        f"{TITLES[n]} {_mean([100 * r['scores'][g][m]['survived'] for r in of for m in modifications], 1)}"
        for (n, g), of in rows.items()
    ]
    return [*lines, "", f"Classes that survive, over all modifications, in %: {', '.join(dict.fromkeys(survived))}."]


def _verdict(rows: Gazes) -> list[str]:
    """Whether aib-qt's scores are above att3's, counted."""
    ours = [key for key in rows if key[0] == "vgg_aib_qt"]
    theirs = [key for key in rows if key[0] == "vgg_att3"]
    if not ours or not theirs:
        return []
    modifications = _modifications(rows)
    lines = [
        *_text(
            f"In how many of the {len(modifications)} modifications VGG-aib-qt scores higher than each map of",
            "VGG-att3, and by how many percentage points on average:",
        ),
        "",
        f"| | {' | '.join(f'{WORDS[kind]} ≥ {threshold}' for kind, threshold in _levels())} |",
        "|---" + "|---:" * len(list(_levels())) + "|",
    ]
    for key in theirs:
        cells = []
        for kind, threshold in _levels():
            pairs = [[_score(rows[k], k[1], m, kind, threshold) for k in (ours[0], key)] for m in modifications]
            lead = 100 * statistics.mean(a - b for a, b in pairs)
            cells.append(f"{sum(a > b for a, b in pairs)}, {lead:+.0f}")
        lines.append(f"| against {_title(*key)} | {' | '.join(cells)} |")
    return lines


def _gazes(results: Sequence[Mapping[str, Any]]) -> Gazes:
    """The results that each attention has, in the order of tables."""
    found = {(r["run"]["network"], gaze) for r in results for gaze in r.get("scores", {})}
    order = sorted(found, key=lambda key: (list(TITLES).index(key[0]), key[1]))
    return {key: [r for r in results if r["run"]["network"] == key[0]] for key in order}


def _modifications(rows: Gazes) -> list[str]:
    (_, gaze), of = next(iter(rows.items()))
    return list(of[0]["scores"][gaze])


def _levels() -> Iterator[tuple[str, float]]:
    return ((kind, threshold) for kind, thresholds in THRESHOLDS.items() for threshold in thresholds)


def _title(network: str, gaze: str) -> str:
    return TITLES[network] + (f", {LEVELS[gaze]}" if gaze in LEVELS else "")


def _score(rows: Sequence[Mapping[str, Any]], gaze: str, modification: str, kind: str, threshold: float) -> float:
    return statistics.mean(r["scores"][gaze][modification][kind][round(100 * threshold)] for r in rows)


def _anchors(results: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["## Anchors", ""]
    for result in results:
        if usage := result["usage"]:
            used = sum(share > 1e-3 for share in usage)
            entropy = -sum(share * math.log(share) for share in usage if share > 0)
            run, equal = result["run"], math.exp(entropy)
            lines.append(
                f"- {TITLES[run['network']]}, seed {run['seed']}: {used} of {len(usage)} anchors get more than 0.1 % "
                f"of the positions of the mean maps; their shares have the entropy of {equal:.1f} equal ones."
            )
    return lines


def _sweep(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fig. 4(a), where more than one price was tried."""
    priced = [r for r in results if r["run"]["network"] == "vgg_aib"]
    first = min((r["run"]["seed"] for r in priced), default=0)
    tried = sorted((r for r in priced if r["run"]["seed"] == first), key=lambda r: -r["run"]["beta"])
    if len(tried) < 2:
        return []
    lines = [
        "## β (Fig. 4(a), coarse)",
        "",
        f"VGG-aib with seed {first}.",
        "",
        "| β | accuracy (%) | cross-entropy, last epoch | penalty, last epoch | what the code says, in nats |",
        "|---:|---:|---:|---:|---:|",
    ]
    for r in tried:
        beta, last, accuracy = r["run"]["beta"], r["history"][-1], f"{100 * (1 - r['error']):.2f}"
        nats = last["penalty"] / beta
        lines.append(f"| {beta:g} | {accuracy} | {last['cross_entropy']:.3f} | {last['penalty']:.3f} | {nats:.1f} |")
    return [*lines, ""]


@styled()
def curves(results: Sequence[Mapping[str, Any]]) -> Figure:
    """The scores of every attention over their thresholds, by cosine and by correlation, for Fig. 3's modifications."""
    rows = _gazes([r for r in results if r["run"]["beta"] == BETA])
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(DRAWN), sharey=True)
    color = colors([_title(*key) for key in rows])
    for row, (kind, word) in zip(axes, WORDS.items(), strict=True):
        for ax, modification in zip(row, DRAWN, strict=True):
            for (network, gaze), of in rows.items():
                scores = np.mean([r["scores"][gaze][modification][kind] for r in of], axis=0)
                ours = network in ("vgg_aib", "vgg_aib_qt")
                dashes = "-" if ours else (0, (1, 1.5)) if network == "vgg_gap" else (0, (4, 2))
                style = {"linestyle": dashes, "linewidth": 2.2 if ours else 1.4}
                ax.plot(CURVE, 100 * scores, color=color[_title(network, gaze)], label=_title(network, gaze), **style)
            ax.set(xlabel=f"threshold of the {word}", xlim=(0.5 if kind == "curve" else 0, 1), ylim=(0, 102))
            ax.xaxis.set_major_locator(MaxNLocator(2))
            ax.grid(axis="y")
            if ax in axes[0]:
                ax.set_title(modification.replace(" p=8", ", 8 pixels"))
        row[0].set_ylabel("interpretability score (%)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8.5)
    return figure


def _text(*sentences: str) -> list[str]:
    return textwrap.wrap(" ".join(sentences), 118)


def _mean(values: Sequence[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
