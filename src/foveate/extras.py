"""Extras: parts of foveate need more than torch, and say which extra brings it."""

import importlib
from types import ModuleType

EXTRA_OF = {
    "captum": "explain",
    "gradio": "app",
    "jsonargparse": "train",
    "lightning": "train",
    "matplotlib": "train",
    "numpy": "train",
    "pandas": "train",
    "PIL": "train",
    "rich": "train",
    "safetensors": "train",
    "scipy": "train",
    "timm": "train",
    "torchmetrics": "train",
    "torchvision": "train",
    "onnx": "export",
}


class MissingExtra(ImportError):
    """A package is missing that one of foveate's extras installs."""


def require(module: str) -> ModuleType:
    """Import a module, or say which extra installs it.

    >>> require("torch").__name__
    'torch'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top:
            raise
        extra = EXTRA_OF.get(top, "all")
        raise MissingExtra(f'this needs {top}, which is not installed: pip install "foveate[{extra}]"') from error
