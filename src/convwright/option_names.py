"""The words that options take, as types for signatures: an editor lists them, a type checker finds a wrong one."""

from __future__ import annotations

from typing import Literal

ModeName = Literal["heuristic", "predict", "predict-top", "quick", "full"]
TrustName = Literal["trust", "verify"]
DirectionName = Literal["forward", "backward_data", "backward_weight"]
ActivationName = Literal["none", "relu", "silu", "gelu", "hardswish"]
CacheName = Literal["hot", "cold", "network"]
RangesName = Literal["mse", "largest"]
PrecisionName = Literal["fp16", "bf16", "tf32", "mixed"]
OnFailureName = Literal["raise", "torch"]
OnChangeName = Literal["refuse", "replan"]
PlacementObjectiveName = Literal["makespan", "energy", "latency", "cost"]
