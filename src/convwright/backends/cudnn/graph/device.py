"""The device that cuDNN plans a graph for: the one at hand, by its handle, or one that only a record is known of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from convwright.backends.cudnn.graph.attributes import Attribute, Kind
from convwright.backends.cudnn.graph.descriptor import Descriptor
from convwright.backends.cudnn.library import handle
from convwright.core.device import DeviceFacts
from convwright.errors import BackendError


@dataclass(frozen=True, slots=True)
class Target:
    """A handle of the live device, or the properties of one elsewhere; each descriptor is told in its own way.

    Planned by a record, cuDNN cannot ask the driver: the same engines and knobs come in the same order, but those
    with clusters (knob k28) need other workspaces, and engines that a driver must compile are missing.
    """

    handle: int | None
    properties: Descriptor | None

    def of_graph(self, graph: Descriptor) -> Descriptor:
        return graph if self.handle is None else graph.set(Attribute.GRAPH_HANDLE, self.handle)

    def of_heuristics(self, heuristics: Descriptor) -> Descriptor:
        return self._described(heuristics, Attribute.HEURISTICS_DEVICE)

    def of_engine(self, engine: Descriptor) -> Descriptor:
        return self._described(engine, Attribute.ENGINE_DEVICE)

    def of_plan(self, plan: Descriptor) -> Descriptor:
        if self.handle is not None:
            return plan.set(Attribute.PLAN_HANDLE, self.handle)
        return self._described(plan, Attribute.PLAN_DEVICE)

    def _described(self, descriptor: Descriptor, attribute: Attribute) -> Descriptor:
        return descriptor if self.properties is None else descriptor.set(attribute, self.properties)


@lru_cache(maxsize=16)
def target(device: DeviceFacts) -> Target:
    """What cuDNN's planner needs to know of ``device``."""
    if device.kind != "cuda":
        raise BackendError(f"cuDNN computes on NVIDIA's GPUs, and {device.name} is not one")
    if device.torch_name is not None:
        return Target(handle(torch.device(device.torch_name).index or 0, 0).value, None)
    if device.properties_json is None:
        raise BackendError(f"nothing can be planned for {device.name}: no record of its properties is known")
    record = Descriptor(Kind.DEVICE_PROPERTIES).set_text(Attribute.DEVICE_JSON, device.properties_json)
    return Target(None, record.finalize())
