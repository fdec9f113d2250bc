"""The examples of the pages about metrics and theory run, and every test that a page names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["metrics.md", "theory.md"])
def test_examples_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), page, "exec"), {})
    assert "nan" not in capsys.readouterr().out


def test_evidence_that_the_theory_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/theory.md").read_text()))
    there = set(re.findall(r"^def (test_\w+)", (Path(__file__).parent / "test_theory.py").read_text(), re.MULTILINE))
    assert named <= there
    assert len(named) > 15
