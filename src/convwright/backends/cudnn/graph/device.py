"""The device for which cuDNN plans a graph: one of this machine, by its handle, or another, by recorded properties."""

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
    """A handle of a live device, or the recorded properties of an absent one. Descriptors are given one or the other.

    From recorded properties cuDNN proposes the same engines and knobs in the same order. It cannot ask the driver,
    though: engines with clusters (knob k28) report other workspaces, and engines that a driver must compile are
    missing.
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
    """The form of ``device`` that cuDNN's planner takes."""
    if device.kind != "cuda":
        raise BackendError(f"cuDNN needs an NVIDIA GPU, got {device.name}")
    if device.torch_name is not None:
        return Target(handle(torch.device(device.torch_name).index or 0, 0).value, None)
    if device.properties_json is None:
        raise BackendError(f"cuDNN cannot plan for {device.name}, since its properties are unknown: plan on it")
    record = Descriptor(Kind.DEVICE_PROPERTIES).set_text(Attribute.DEVICE_JSON, device.properties_json)
    return Target(None, record.finalize())
