"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import foveate

MODULES = pkgutil.walk_packages(foveate.__path__, "foveate.")
NAMES = [module.name for module in MODULES if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # where an example may write
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0
