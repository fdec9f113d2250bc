"""The benchmark runs, and its ratios are ratios."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import timing

    return timing


def test_a_ratio_of_two_sleeps(timing) -> None:
    measured = timing.ratio(lambda: time.sleep(0.03), lambda: time.sleep(0.01), seconds=0.0, at_least=9)
    assert measured.value == pytest.approx(3, rel=0.3)
    assert measured.low <= measured.value <= measured.high
    assert measured.pairs == 9
    assert measured.seconds > 0.03 > measured.reference_seconds > 0.01


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
        "latency, eager, batch 2",
        "the map's share of the module, eager, batch 2",
        "training step, batch 2",
    ]
    assert all(float(row[1]) > 0 for row in rows)
    assert (outcome.returncode == 0) == all(row[4] == "yes" for row in rows)
    assert out.read_text() in outcome.stdout + "\n"
