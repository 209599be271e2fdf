"""How an engine's constants follow from a model's weights, so that they can be computed again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from convwright.engine.export.exported import Exported
from convwright.engine.model_settings import check_settings, settings_of
from convwright.engine.network import Network
from convwright.engine.passes.listed import passed
from convwright.engine.precision.lowering import Lowering, lowered
from convwright.errors import BadInput
from convwright.graph.graph import Graph
from convwright.tensors import core_dtype, is_like


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The graph before all passes, and the ``lowering`` applied after them. ``names`` maps constants to the model's
    parameters and buffers; ``made`` are the other constants, and ``fixed`` what some of the model's tensors must stay,
    since the graph holds their numbers. ``settings`` are the model's. Holds none of its tensors."""

    graph: Graph
    names: tuple[str, ...]
    made: Mapping[str, Tensor]
    fixed: Mapping[str, Tensor]
    settings: Mapping[str, str]
    lowering: Lowering = field(default_factory=Lowering)

    @classmethod
    def of(cls, exported: Exported, model: nn.Module) -> Origin:
        graph, held = exported.network.graph, exported.network.constants
        made = {name: held[name] for name in graph.constants if name not in exported.names}
        return cls(graph, exported.names, made, exported.fixed, settings_of(model))

    def network(self, model: nn.Module) -> Network:
        """The network after passes and lowering, with the model's current weights."""
        named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        own = {name: tensor.detach() for name, tensor in named}
        for name in self.names:
            spec, now = self.graph.values[name], own.get(name)
            if now is None and f"_orig_mod.{name}" in own:
                raise BadInput("the model is wrapped by torch.compile: give the model itself")
            if not is_like(now, spec):
                has = "has none" if now is None else f"has {core_dtype(now.dtype)} {tuple(now.shape)}"
                raise BadInput(f"the model must have a `{name}` of {spec.dtype} {spec.shape}, and it {has}")
        for name, fixed in self.fixed.items():
            if name not in own or own[name].shape != fixed.shape or not torch.equal(own[name].to(fixed), fixed):
                raise BadInput(f"`{name}` has changed, and the plan depends on its numbers: plan the model again")
        check_settings(self.settings, settings_of(model))
        held = {name: own[name] for name in self.names}
        device = next((tensor.device for tensor in held.values()), None)
        made = {name: tensor if device is None else tensor.to(device) for name, tensor in self.made.items()}
        network = passed(Network(self.graph, made | held)).network
        network = lowered(network, self.lowering.dtypes).network
        # Constants that no pass changed still share memory with the model.
        constants = network.constants.items()
        return Network(network.graph, {name: each.clone() if name in self.names else each for name, each in constants})
