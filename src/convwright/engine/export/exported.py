"""Export a model: `torch.export`, then each operator as an operation of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.engine.export.builder import Builder, Unknown
from convwright.engine.export.inputs import why_uncallable
from convwright.engine.export.operators import TRANSLATIONS, computed_now, draws, foreign, is_known
from convwright.engine.export.reports import without_reports
from convwright.engine.network import Network
from convwright.engine.structure import Structure, structure_of
from convwright.errors import BadInput, Refused, first_line, place_of
from convwright.tensors import core_dtype


class NotExported(Refused):
    """The model cannot be exported as a whole. Parts of it may be."""


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """``structure`` is how the model nests its outputs. ``names`` are the constants that are parameters and buffers of
    the model. ``fixed`` are copies of those whose numbers are part of the graph, such as indices."""

    network: Network
    structure: Structure
    names: tuple[str, ...]
    fixed: Mapping[str, Tensor]


def exported(model: nn.Module, example: tuple[Any, ...], tensors: Sequence[Tensor]) -> Exported:
    """The network of ``model`` for an example, whose tensors in order are ``tensors``. Weights are the model's own
    tensors, not copies."""
    try:
        with torch.no_grad(), catch_warnings(), without_reports():
            # The exporter itself uses a class that PyTorch has deprecated.
            filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            program = torch.export.export(model, example, strict=False).run_decompositions({})
    except Exception as error:  # a model can raise anything
        if (why := why_uncallable(model, example, first_line(error))) is not None:
            raise BadInput(
                f"the model cannot be called with the example: {why.rstrip('.')}; `example` is a tensor, or a tuple of "
                f"the model's arguments{_got(example)}"
            ) from error
        raise NotExported(f"the model cannot be exported as a whole: {_why(error)}") from error
    (network, fixed), nesting = _network(program, tensors), program.call_spec.out_spec
    places = torch_api.unflatten(list(range(len(network.graph.outputs))), nesting)
    own = set(_own(program.graph_signature).values())
    names = tuple(name for name in network.graph.constants if name in own)
    return Exported(network, structure_of(places), names, {name: fixed[name] for name in fixed if name in own})


def _got(example: tuple[Any, ...]) -> str:
    """A list or a dict in place of a tuple of arguments."""
    is_one = len(example) == 1 and not isinstance(example[0], Tensor)
    return f", got a {type(example[0]).__name__}" if is_one else ""


def _why(error: Exception) -> str:
    """The exporter's error. A branch on a tensor's value gets our own words, with its line."""
    if "data-dependent" not in (said := first_line(error)):
        return said
    place = place_of(error)
    return "what it does next depends on the values in a tensor" + ("" if place is None else f" ({place})")


def _own(signature: Any) -> dict[str, str]:
    """The names of the model's parameters and buffers, by node name."""
    return {**signature.inputs_to_parameters, **signature.inputs_to_buffers}


def _network(program: Any, example: Sequence[Tensor]) -> tuple[Network, dict[str, Tensor]]:
    """The network, and copies of the tensors whose numbers are part of its graph."""
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    own = _own(signature)
    named = {**own, **signature.inputs_to_lifted_tensor_constants}
    changed = (signature.buffers_to_mutate, signature.parameters_to_mutate, signature.user_inputs_to_mutate)
    if written := [name for each in changed for name in each.values()]:
        raise NotExported(f"the model writes to {written[0]} while it runs, which a network planned once cannot do")
    builder, given = Builder(), iter(example)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in named:
            name = named[node.name]
            builder.constant(node, name, held[name].detach(), is_weight=node.name in own)
        elif node.op == "placeholder":
            builder.input(node, _spec_of_input(node, next(given)))
        elif node.op == "call_function" and node.users:  # unused nodes are assertions of the exporter
            _translate(builder, node)
        elif node.op == "output":
            builder.outputs(node.args[0], [_spec_of_fake(each) for each in node.args[0]])
    return builder.network(), {name: held[name].detach().clone() for name in builder.fixed}


def _translate(builder: Builder, node: Any) -> None:
    try:
        if draws(node):
            raise Unknown("it draws random numbers")
        if is_known(builder, node):
            computed_now(builder, node)
        else:
            _translate_or_compute(builder, node)
    except Unknown as unknown:
        where = node.meta.get("stack_trace", "").strip().splitlines()
        line = f", at {' '.join(each.strip() for each in where[-2:])}" if where else ""
        raise NotExported(f"{node.target} cannot be planned: {unknown}{line}") from None


def _translate_or_compute(builder: Builder, node: Any) -> None:
    """Translate a node. One that no graph can hold, such as a mask, is computed now if it depends on weights alone."""
    translation = TRANSLATIONS.get(str(node.target))
    try:
        if translation is None or not translation(builder, node):
            foreign(builder, node)
    except Unknown:
        if any(builder.tensor(each) is None for each in node.all_input_nodes):
            raise
        computed_now(builder, node)


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), core_dtype(tensor.dtype), tensor.stride())


def _spec_of_input(node: Any, tensor: Tensor) -> TensorSpec:
    try:
        return _spec(tensor)
    except BadInput:
        raise NotExported(
            f"an engine takes no inputs of {tensor.dtype}, and `{node.name}` is one: plan the part of the model after "
            "the layers that read it"
        ) from None


def _spec_of_fake(node: Any) -> TensorSpec:
    """The spec of an output in the model's own layout: dense, in the order of its dimensions or channels last."""
    if not isinstance(node, torch.fx.Node):
        raise NotExported(f"the model returns {node!r}, and a planned network returns only tensors")
    spec = _spec(node.meta["val"])
    return spec if spec.layout is not Layout.STRIDED else spec.dense(Layout.NCHW)
