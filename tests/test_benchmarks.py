"""The benchmark runs, and its ratios are ratios."""

import importlib.util
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

from foveate.metrics import cost

FOLDER = Path(__file__).parents[1] / "benchmarks"


def test_a_ratio_of_two_sleeps(monkeypatch) -> None:
    monkeypatch.setattr(cost.torch, "get_num_threads", lambda: 2)  # wall time, which sleeping takes
    measured = cost.ratio(lambda: time.sleep(0.09), lambda: time.sleep(0.03), seconds=0.0, at_least=9)
    assert measured.value == pytest.approx(3, rel=0.3)
    assert measured.low <= measured.value <= measured.high
    assert measured.pairs == 9
    assert measured.seconds > 0.09 > measured.reference_seconds > 0.03


def test_one_thread_is_measured_in_processor_time() -> None:
    def work(times: int) -> None:
        sum(range(times * 1_000_000))

    measured = cost.ratio(lambda: work(3), lambda: (work(1), time.sleep(0.1)), seconds=0.0, at_least=9)
    assert measured.value == pytest.approx(3, rel=0.3)  # sleeping costs nothing


def test_the_cost_script_writes_its_table(tmp_path) -> None:
    pytest.importorskip("timm")
    out = tmp_path / "new" / "cost.md"
    tiny = ["--size", "32", "--batches", "2", "--seconds", "0", "--threads", "1", "--no-compile"]
    outcome = subprocess.run(
        [sys.executable, str(FOLDER / "cost.py"), *tiny, "--out", str(out)], capture_output=True, text=True
    )
    assert outcome.returncode in (0, 1), outcome.stderr  # 1: a bound does not hold, as for images so small it need not
    rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip("| ") for row in rows] == [
        "the map's share of the module, eager, batch 2",
        "latency, eager, batch 2",
        "training step, batch 2",
    ]
    assert all(float(row[1]) > 0 for row in rows)
    assert (outcome.returncode == 0) == all(row[4] == "yes" for row in rows)
    assert out.read_text() in outcome.stdout + "\n"


def test_the_script_for_draws_writes_its_table(tmp_path) -> None:
    out = tmp_path / "new" / "bottleneck-cost.md"
    tiny = ["--width", "0.0625", "--batch", "2", "--seconds", "0", "--out", str(out)]
    outcome = subprocess.run([sys.executable, str(FOLDER / "bottleneck.py"), *tiny], capture_output=True, text=True)
    assert outcome.returncode in (0, 1), outcome.stderr
    rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    assert all(float(row[1]) > 0 for row in rows)
    bounded = [row for row in rows if row[3] != "–"]
    assert len(bounded) == 2
    assert (outcome.returncode == 0) == all(row[4] == "yes" for row in bounded)


def test_the_script_for_full_attention_writes_its_table(tmp_path) -> None:
    out = tmp_path / "new" / "attentive-cost.md"
    words = [sys.executable, str(FOLDER / "attentive.py"), "--small", "--seconds", "0", "--out", str(out)]
    outcome = subprocess.run(words, capture_output=True, text=True)
    assert outcome.returncode in (0, 1), outcome.stderr  # 1: at sizes so small, time and memory go elsewhere
    rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip("| ").split(",")[0] for row in rows] == [
        "difference",
        "difference",
        "time of the plain layer over ours",
        "time of ours over a group convolution",
        "that of attention='channel'",
        "that of attention='spatial'",
        "that of attention='input'",
        "that of attention='poses'",
        "memory of the plain layer over ours",
        "GB for a training step of the α-p4 All-CNN on 2 images",
    ]
    assert [row[3] for row in rows[:2]] == ["yes", "yes"]  # at every size they agree
    assert all(float(row[1]) > 0 for row in rows)
    bounded = [row for row in rows if row[2] != "–"]
    assert (outcome.returncode == 0) == all(row[3] == "yes" for row in bounded)


def script(name: str) -> ModuleType:
    """A benchmark as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown text: rows of cells, the heads left out."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    return [[[c.strip() for c in line.strip("|").split(" | ")] for line in b.splitlines()[2:]] for b in blocks]


def test_expectations_five_ways_and_ours(capsys) -> None:
    pytest.importorskip("scipy")
    tiny = ["--count", "6", "--slow", "1", "--batch", "3", "--functions", "9", "--seconds", "0", "--no-compile"]
    assert script("expectations").main(tiny) in (0, 1)
    methods, layer, errors = tables(capsys.readouterr().out)
    largest = {row[0]: float(row[3]) for row in methods}
    assert list(largest)[:5] == ["2D-Num", "2D-Num-Circle", "2D-Num-Polar", "1D-Num", "1D-Naive"]
    assert largest["ours, float64"] < 1e-8
    assert largest["ours, float32"] < 1e-5
    assert largest["1D-Num"] < 1e-8 < 1e-4 < largest["1D-Naive"]
    assert [float(cell) > 0 for cell in layer[0][2:4]] == [True, True]
    ours, twice, once = ([float(cell) for cell in row[1:]] for row in errors)
    assert all(a < 1e-5 and 1_000 * a < b for a, b in zip(ours, twice, strict=True))
    assert all(a < b for a, b in zip(once, twice, strict=True))


def test_fits_of_a_batch(capsys) -> None:
    pytest.importorskip("sklearn")
    assert script("mixtures").main(["--batch", "2", "--size", "5", "--steps", "3", "--seconds", "0"]) in (0, 1)
    (rows,) = tables(capsys.readouterr().out)
    assert len(rows) == 4
    assert all(math.isfinite(float(row[1])) for row in rows)


def test_growth_with_the_positions(capsys) -> None:
    tiny = ["--sides", "4", "8", "--channels", "8", "--heads", "2", "--basis", "9", "--seconds", "0"]
    assert script("transformer").main(tiny) in (0, 1)
    (rows,) = tables(capsys.readouterr().out)
    assert [row[:2] for row in rows] == [["4×4", "16"], ["8×8", "64"]]
    assert all(float(cell) > 0 for row in rows for cell in row[2:])


def test_tvmax_and_the_value_function(capsys) -> None:
    assert script("tvmax").main(["--batch", "2", "--size", "4", "--seconds", "0"]) == 0
    assert len(tables(capsys.readouterr().out)[0]) == 6
    assert script("value_function").main() == 0
    (rows,) = tables(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["14×14, 100", "14×14, 49", "7×7, 100", "7×7, 49"]


def test_the_script_for_recorded_steps_writes_its_table_or_says_that_it_needs_a_gpu(tmp_path) -> None:
    out = tmp_path / "recorded-cost.md"
    words = [sys.executable, str(FOLDER / "recorded.py"), "--batch", "2", "--seconds", "0", "--out", str(out)]
    outcome = subprocess.run(words, capture_output=True, text=True)
    if torch.cuda.is_available():
        rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| ")][1:]
        assert [row[0].strip("| ") for row in rows] == [
            f"{name}, batch 2" for name in ("p4", "α_F", "α_CH", "α_SP", "α")
        ]
        assert all(float(row[1]) > 0 for row in rows)
    else:
        assert outcome.returncode == 2
        assert "a CUDA device is what this measures" in outcome.stderr
        assert not out.exists()
