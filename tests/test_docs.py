"""The how-to pages run, and the map from equations to code names what there is."""

import importlib
import re
import shlex
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


PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/README.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_example_of_the_readme_runs() -> None:
    pytest.importorskip("timm")
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(block, {})


def _commands() -> list[str]:
    """Every `foveate …` line in a page, continued lines joined."""
    text = "\n".join(page.read_text().replace("\\\n", " ") for page in PAGES)
    shell = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    return sorted({line.split("#")[0].strip() for line in shell.splitlines() if line.startswith("foveate ")})


@pytest.mark.parametrize("command", _commands())
def test_the_commands_of_the_pages_are_ones_that_the_parser_takes(command: str) -> None:
    pytest.importorskip("torchvision")
    from foveate.cli import _parser

    words = shlex.split(command)[1:]
    if words[0] == "train":
        config = words[words.index("--config") + 1]
        assert (ROOT / config).is_file()
    else:
        _parser().parse_args(words)
