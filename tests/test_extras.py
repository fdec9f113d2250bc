"""A missing package is an error that names the extra which brings it."""

import sys
import tomllib
from pathlib import Path

import pytest

from foveate.extras import EXTRA_OF, MissingExtra, require


def test_require_imports() -> None:
    import json

    assert require("json") is json
    assert require("xml.dom").__name__ == "xml.dom"


@pytest.mark.parametrize("name", EXTRA_OF)
def test_a_missing_package_names_its_extra(name: str, monkeypatch) -> None:
    class Gone:
        def find_spec(self, wanted: str, path=None, target=None):
            if wanted == name:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "meta_path", [Gone(), *sys.meta_path])
    with pytest.raises(
        MissingExtra, match=rf'{name}, which is not installed: pip install "foveate\[{EXTRA_OF[name]}\]"'
    ):
        require(f"{name}.anything" if name == "torchvision" else name)


def test_what_an_installed_package_lacks_is_not_blamed_on_the_extra(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_package.py").write_text("import a_package_that_is_nowhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_nowhere") as caught:
        require("broken_package")
    assert not isinstance(caught.value, MissingExtra)


def test_every_named_extra_installs_its_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    wanted = {"PIL": "torchvision"}  # Pillow comes with torchvision
    for package, extra in EXTRA_OF.items():
        names = " ".join(project["optional-dependencies"][extra])
        assert wanted.get(package, package) in names, f"{package} is not in the extra {extra!r}"
