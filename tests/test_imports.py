"""The house: `import foveate` needs torch alone and is quick, and imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import foveate

SOURCE = Path(__file__).parents[1] / "src" / "foveate"
HEAVY = (
    "lightning", "pytorch_lightning", "timm", "torchvision", "matplotlib", "pandas", "pyarrow", "torchmetrics",
    "rich", "jsonargparse", "entmax", "PIL", "safetensors", "yaml", "onnx", "gradio",
)  # fmt: skip

# Who may import whom: a room imports from the rooms below it in this list, and from itself.
ROOMS = ("cli", "training", "figures", "models", "data", "metrics", "attention", "pooling", "groups", "densities")


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def test_import_needs_torch_alone_and_is_quick() -> None:
    script = """
import time, torch, sys
before, start = set(sys.modules), time.process_time()
import foveate
print(time.process_time() - start, "load" in vars(foveate), *set(sys.modules) - before)
"""
    seconds, load_is_there, *loaded = run(script).split()
    assert float(seconds) < 0.5
    assert load_is_there == "False"  # it is brought when it is asked for
    assert "foveate.attach" in loaded
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(HEAVY)
    assert {name.split(".")[1] for name in loaded if name.startswith("foveate.")}.isdisjoint(ROOMS[:6])


def test_import_works_where_nothing_but_torch_is_installed() -> None:
    script = f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Gone())
import torch, foveate as fv
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
fv.attach(model, "1", fv.RectangularAttention)
with fv.watch(model) as gazes:
    model(torch.rand(2, 3, 9, 9))
print(gazes["1"].map.shape)
"""
    assert run(script).strip() == "torch.Size([2, 1, 7, 7])"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert "load" in foveate.__all__
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        foveate.lod  # noqa: B018


# --- one way ------------------------------------------------------------------------------------------------------


def imported(code: str, package: str) -> set[str]:
    """The modules that code inside `package` imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.update({module, *(f"{module}.{alias.name}" for alias in node.names)})
    return names


def room(module: str) -> str:
    """The room of foveate that a module is in; "" for the core and for what is not foveate's."""
    head, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    return name if head == "foveate" and name in ROOMS else ""


def violations(files: dict[str, str]) -> list[str]:
    """Imports that point up, from files by their module name."""
    found = []
    for module, code in files.items():
        package = module if module.endswith("__init__") else module.rpartition(".")[0]
        here = room(module)
        allowed = {"", *ROOMS[ROOMS.index(here) :]} if here else {""}
        found += [
            f"{module} imports {name}"
            for name in sorted(imported(code, package.removesuffix(".__init__")))
            if room(name) not in allowed
        ]
    return found


def test_imports_point_one_way() -> None:
    files = {
        "foveate." + ".".join(path.relative_to(SOURCE).with_suffix("").parts): path.read_text()
        for path in SOURCE.rglob("*.py")
    }
    for door in ("__init__", "__main__"):  # what a user imports or runs comes from wherever it is
        files.pop(f"foveate.{door}", None)
    assert len(files) > 10
    assert violations(files) == []


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("foveate.attach", "from foveate.models import load"),
        ("foveate.attach", "import foveate.attention.rectangular"),
        ("foveate.gaze", "def f():\n    from foveate import figures"),
        ("foveate.attention.base", "from ..models import load"),
        ("foveate.attention.base", "from .. import data"),
        ("foveate.attention.__init__", "from ..metrics import FittingRate"),
        ("foveate.metrics.where", "from foveate.data import Scenes"),
        ("foveate.figures.overlay", "from foveate.training.module import Classifier"),
        ("foveate.models.files", "if True:\n    import foveate.cli as cli"),
    ],
)
def test_an_import_that_points_up_is_found(module: str, code: str) -> None:
    assert len(violations({module: code})) >= 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("foveate.cli", "from foveate.training import fit"),
        ("foveate.training.module", "from foveate import gaze, models"),
        ("foveate.attention.base", "from .rectangular import draw\nfrom ..gaze import Look\nimport torch.nn"),
        ("foveate.attention.__init__", "from .base import Combine"),
        ("foveate.attach", "from foveate.gaze import attached\nfrom torch.utils import data"),
    ],
)
def test_an_import_that_points_down_is_not(module: str, code: str) -> None:
    assert violations({module: code}) == []
