"""The how-to pages run, and the map from equations to code names what there is."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs" / "rectangular.md").read_text()


def test_the_examples_of_the_attach_page_run() -> None:
    pytest.importorskip("timm")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "attach.md").read_text(), re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert type(names["model"].layer4[1].foveate).__name__ == "CenterAttention"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(foveate\.[\w.]+)`", MAP))))
def test_the_map_names_code_that_is_there(name: str) -> None:
    parts = name.split(".")
    at = next(n for n, part in enumerate(parts) if part[0].isupper() or n == len(parts) - 1)
    thing = importlib.import_module(".".join(parts[:at]))
    for part in parts[at:]:
        thing = getattr(thing, part)


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(tests/[\w/.:]+)`", MAP))))
def test_the_map_names_tests_that_are_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()
