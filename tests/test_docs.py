"""The how-to pages run, and the map from equations to code names what there is."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOW_TO = sorted(ROOT.glob("docs/*.md"))
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *HOW_TO, *ROOT.glob("experiments/*/README.md")]
TEXT = "\n".join(page.read_text() for page in PAGES)


def blocks(page: Path) -> list[str]:
    """The examples of a page; those that need a reader's own files are marked ```python no-run."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    for package in ("timm", "torchmetrics", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)  # where an example may write
    exec(compile("\n".join(blocks(page)), page.name, "exec"), {"__name__": "example"})
    assert "nan" not in capsys.readouterr().out.split()
    assert not [path for path in tmp_path.iterdir() if path.stat().st_size == 0]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(foveate\.[\w.]+)`", TEXT))))
def test_pages_name_code_that_is_there(name: str) -> None:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[count:]:
        thing = getattr(thing, part)


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT))))
def test_pages_name_tests_that_are_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


def test_tests_named_without_their_file_are_there() -> None:
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert {name for name in named if f"def {name}(" not in there} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


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
