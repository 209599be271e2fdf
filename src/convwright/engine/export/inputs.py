"""Checks of a model and of the example of its input."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from reprlib import repr as brief
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.policy import Policy
from convwright.errors import BadInput, first_line

# Words of errors that are not the model's: nothing has values on "meta", and not every module can be called there.
_NOT_THE_MODELS = ("meta", "stateless API")


def inputs_of(example: Any) -> tuple[Any, ...]:
    """The arguments of a call of the model: ``example`` is a tensor, or a tuple of arguments."""
    inputs = example if isinstance(example, tuple) else (example,)
    if not (tensors := torch_api.flatten(inputs)[0]) or not all(isinstance(each, Tensor) for each in tensors):
        raise BadInput("`example` must be a tensor, or a tuple of the model's arguments, made of tensors")
    if any(each.layout is not torch.strided for each in tensors):
        raise BadInput("`example` must be made of dense tensors, got a sparse one")
    for tensor in tensors:
        if not tensor.numel():
            raise BadInput(f"`example` must hold numbers, got a tensor of shape {tuple(tensor.shape)}: give an image")
    return inputs


def check_evaluates(model: nn.Module) -> None:
    """Refuse what is no model, and a model in training mode."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"`model` must be an nn.Module, got {_what_else(model)}")
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise BadInput(f"the model is wrapped in {type(model).__name__}: unwrap it, as model.module")
    if model.training:
        raise BadInput("the model is in training mode: call model.eval() first")


def check_has_weights(model: nn.Module) -> None:
    """Refuse a model on "meta"."""
    if any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        raise BadInput('the model is on "meta", where it has no weights: load them, or set plan_only=True to plan')


def policy_of(given: Policy | None) -> Policy:
    """The policy that a user gives, by default one without limits."""
    if given is not None and not isinstance(given, Policy):
        raise BadInput(f"`policy` must be a convwright.Policy, for example Policy(max_error=3), got {brief(given)}")
    return given or Policy()


def why_uncallable(model: nn.Module, example: tuple[Any, ...], said: str) -> str | None:
    """Why the model itself cannot be called with the example; None if it can, or if that is unknown. It is called on
    the "meta" device, where nothing is computed. ``said`` is what the exporter said."""
    tensors, nesting = torch_api.flatten(example)
    given = [each.to("meta") if isinstance(each, Tensor) else each for each in tensors]
    own = {name: each.to("meta") for name, each in (*model.named_parameters(), *model.named_buffers())}
    try:
        # The model printed its own lines when it was exported.
        with torch.no_grad(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            torch.func.functional_call(model, own, torch_api.unflatten(given, nesting))
    except (TypeError, RuntimeError, ValueError, IndexError) as error:
        why = first_line(error)
        if any(word in why for word in _NOT_THE_MODELS):
            return None
        return why.partition(" - got (")[0] if isinstance(error, TypeError) else said
    except Exception:  # a model can raise anything
        return None
    return None


def _what_else(model: Any) -> str:
    """What was given in place of a model, and what to do."""
    if isinstance(model, type):
        return f"the class {model.__name__}: make a model of it, as {model.__name__}(…).eval()"
    if isinstance(model, Mapping):
        return "a dict: load it into the model, as model.load_state_dict(…)"
    if callable(model):
        return f"a callable ({type(model).__name__}): make a module that calls it in `forward`"
    return f"{brief(model)}: make the model first, then load its weights"
