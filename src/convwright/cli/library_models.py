"""Models of timm and torchvision by name, with random weights: ``timm:resnet50``."""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING

from convwright.errors import BadInput, in_words

if TYPE_CHECKING:
    from torch import nn

_TARGET = re.compile(r"(timm|torchvision):(.*)")
# Without them a model is made without a request to a server.
_NO_WEIGHTS = ("weights", "weights_backbone")
_LISTING = {"timm": "list_models()", "torchvision": "models.list_models()"}


def names_library_model(target: str) -> bool:
    """Whether a target is a model of a library.

    >>> names_library_model("timm:resnet50"), names_library_model("torchvision.models:resnet50")
    (True, False)
    """
    return _TARGET.fullmatch(target) is not None


def check_installed(target: str) -> None:
    """Refuse a target whose library is not installed, without importing it."""
    library = _parts(target)[0]
    if sys.modules.get(library) is None and find_spec(library) is None:
        raise _missing(target, library)


def library_model(target: str) -> nn.Module:
    """The model that ``target`` names."""
    library, name = _parts(target)
    models = "torchvision.models" if library == "torchvision" else library
    try:
        module = import_module(models)
    except Exception as error:  # a build for another PyTorch raises a RuntimeError
        if isinstance(error, ModuleNotFoundError) and error.name in (library, models):
            raise _missing(target, library) from None
        why = f"which cannot be imported: {in_words(error)}; {_install(library)} installs one for this PyTorch"
        raise BadInput(f"{target!r} needs {library}, {why}") from error
    known = module.list_models()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        nearest = f", the nearest is {near[0]!r}" if near else f": {library}.{_LISTING[library]} lists all"
        raise BadInput(f"{library} has no model called {name!r}{nearest}")
    try:
        return _made(module, library, name)
    except Exception as error:  # whatever a library raises
        raise BadInput(f"{target!r} cannot be made: {in_words(error)}") from error


def _parts(target: str) -> tuple[str, str]:
    """The library and the name of a model."""
    found = _TARGET.fullmatch(target)
    assert found is not None, "checked by names_library_model"
    return found[1], found[2]


def _missing(target: str, library: str) -> BadInput:
    return BadInput(
        f"{target!r} needs {library}, which is not installed: {_install(library)} ({_torch()} keeps this PyTorch)"
    )


def _install(library: str) -> str:
    return f"pip install {library} {_torch()}"


def _torch() -> str:
    """This PyTorch as pip names it."""
    return f"torch=={version('torch').partition('+')[0]}"


def _made(module: ModuleType, library: str, name: str) -> nn.Module:
    if library == "timm":
        made: nn.Module = module.create_model(name, pretrained=False)
    else:
        build = module.get_model_builder(name)
        taken = signature(build).parameters
        made = build(**{argument: None for argument in _NO_WEIGHTS if argument in taken})
    return made.eval()
