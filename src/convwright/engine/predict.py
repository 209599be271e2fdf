"""``predict``: the expected time of a problem or a network on a device, which need not be in this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from torch import Tensor, nn

from convwright import torch_api
from convwright.api.predicting import Predictions
from convwright.api.predicting import predict as predict_problem
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.predictor import Predictor
from convwright.core.problem import IntOrTuple
from convwright.core.window import AnyPadding
from convwright.engine.buckets.buckets import resized, shapes_of
from convwright.engine.export.inputs import check_evaluates, inputs_of
from convwright.engine.network_prediction import NetworkPrediction
from convwright.engine.precision.lowering import Precision
from convwright.engine.predicting import planned_engine
from convwright.errors import BadInput
from convwright.naming import is_whole
from convwright.shortage import needing
from convwright.store.store import Store
from convwright.tuning.session import using


class _Network(TypedDict, total=False):
    """Options of ``predict`` for a model."""

    device: str | DeviceFacts | None
    batch: int | None
    precision: Precision | str | None
    policy: Policy | None
    store: Store | Path | str | None
    predictor: Predictor | None


class _Problem(TypedDict, total=False):
    """Options of ``predict`` for a problem."""

    stride: IntOrTuple
    padding: AnyPadding
    dilation: IntOrTuple
    groups: int
    direction: Direction | str | None
    device: str | DeviceFacts | None
    policy: Policy | None
    model: Path | str | None
    store: Store | Path | str | None


# What to do in place of an option that there is not.
_INSTEAD = {
    ("a network", "dtype"): 'give model.half() and x.half(), or precision="fp16" for the layers alone',
    ("a network", "model"): "a model of times is used from beside the store; `predictor` gives another one",
    ("a problem", "dtype"): 'write it in the text of the problem, such as "mb32ic64ih56oc64kh3 dt:fp16"',
    ("a problem", "precision"): 'write the type in the text of the problem, such as "mb32ic64ih56oc64kh3 dt:fp16"',
    ("a problem", "batch"): 'write it in the text of the problem, such as "mb32ic64ih56oc64kh3"',
}


@overload
def predict(what: nn.Module, example: Tensor | dict[str, Any], /, **options: Unpack[_Network]) -> NetworkPrediction: ...


@overload
def predict(
    what: Problem | str | Tensor | nn.Module, weight: Any = None, /, **options: Unpack[_Problem]
) -> Predictions: ...


def predict(what: Any, example: Any = None, /, **options: Any) -> NetworkPrediction | Predictions:
    """Predict a problem, or a whole network, on a device, which need not be in this machine. Nothing runs.

    A model with an example input gives the time, the memory and the ``layers`` of one run of its engine, as planned by
    ``optimize(…, plan_only=True)``. ``print`` and ``show`` show them as a table. ``batch`` replaces the first dimension
    of every input, ``precision`` is as in ``optimize``, and ``predictor`` gives the times of candidates that the
    ``store`` has no findings of.

    A problem gives all candidates with their times, and the choice. It is given in any form that ``problem`` takes: a
    problem of any kind, its text, an input and its ``weight``, or an ``nn.Conv…`` and its input's shape. ``model`` is
    the file of a model made by ``learn``.

    The bounds of each time should hold nine of ten measured times. ``in_domain`` is True if a candidate is like those
    that the model has learned from. Without a model, times follow from the device's data sheet, with wide bounds.

    >>> import torch
    >>> model, x = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3), torch.nn.ReLU()).eval(), torch.ones(8, 64, 32, 32)
    >>> found = predict(model, x, device="h200", precision="fp16")
    >>> found.device, found.time_us.low < found.time_us.value < found.time_us.high
    ('NVIDIA H200', True)
    >>> [layer.name for layer in found.layers]
    ['input as fp16', '0', 'copy of 0', '1']
    >>> found = predict("mb32ic64ih56oc64kh3ph1 dt:fp16", device="h200")
    >>> found.choice.won, found.choice.predicted.prediction.in_domain
    (True, True)
    """
    if isinstance(what, nn.Module) and not _is_shape(example):
        _check_names("a network", options, _Network)
        return predict_network(what, example, **options)
    _check_names("a problem", options, _Problem)
    return predict_problem(what, example, **options)


def _check_names(kind: str, options: Mapping[str, Any], known: type) -> None:
    """Refuse an unknown option, with what to do instead."""
    for name in options:
        if name not in known.__annotations__:
            instead = _INSTEAD.get((kind, name), f"its options are {', '.join(known.__annotations__)}")
            raise TypeError(f"predict() of {kind} has no option {name!r}: {instead}")


def _is_shape(given: Any) -> bool:
    return isinstance(given, Sequence) and all(is_whole(size) for size in given)


def predict_network(
    model: nn.Module,
    example: Any,
    *,
    device: str | DeviceFacts | None = None,
    batch: int | None = None,
    precision: Precision | str | None = None,
    policy: Policy | None = None,
    store: Store | Path | str | None = None,
    predictor: Predictor | None = None,
) -> NetworkPrediction:
    """The predicted run of a model's engine on a device: the sum over the plan of ``optimize(…, plan_only=True)``.
    ``predict`` describes the arguments."""
    inputs = with_batch(inputs_of(example), batch)
    check_evaluates(model)
    with using(store) as kept:
        return planned_engine(
            model, inputs, device, policy or Policy(), kept, precision=precision, predictor=predictor
        ).prediction


def with_batch(inputs: tuple[Any, ...], batch: int | None) -> tuple[Any, ...]:
    """The inputs of a model with another batch size."""
    if batch is None:
        return inputs
    if not (is_whole(batch) and batch > 0):
        raise BadInput(f"`batch` must be a whole number above 0, or None, got {batch!r}")
    tensors, nesting = torch_api.flatten(inputs)
    with needing(f"inputs of a batch of {batch:,}, which are made although nothing runs: give a smaller `batch`"):
        return tuple(torch_api.unflatten(_resized(tensors, batch), nesting))


def _resized(tensors: Sequence[Tensor], batch: int) -> list[Tensor]:
    return [resized(tensor, shape) for tensor, shape in zip(tensors, shapes_of(batch, tensors), strict=True)]
