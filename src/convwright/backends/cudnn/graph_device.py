"""The device that cuDNN plans a graph for: the one at hand, or one that only its property record is known of."""

from __future__ import annotations

from functools import lru_cache

import torch

from convwright.backends.cudnn.graph_attributes import Attribute, Kind
from convwright.backends.cudnn.graph_descriptor import Descriptor
from convwright.core.device import DeviceFacts
from convwright.errors import BackendError


@lru_cache(maxsize=16)
def device_properties(device: DeviceFacts) -> Descriptor:
    """What cuDNN's planner needs to know of ``device``; the same plans come of a record as of the device itself."""
    if device.kind != "cuda":
        raise BackendError(f"cuDNN runs on NVIDIA GPUs, and {device.name} is none")
    properties = Descriptor(Kind.DEVICE_PROPERTIES)
    if device.torch_name is not None:
        return properties.set(Attribute.DEVICE_INDEX, torch.device(device.torch_name).index or 0).finalize()
    if device.properties_json is None:
        raise BackendError(f"nothing can be planned for {device.name}: no record of its properties is known")
    return properties.set_text(Attribute.DEVICE_JSON, device.properties_json).finalize()
