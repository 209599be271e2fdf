"""convwright finds, for any convolution, every way of running it, says what each costs, and runs the best one.

    import convwright as cw

    cw.advise(model, example)                             # what each layer takes, what could be had, and how
    cw.find(x, w, padding=1)                              # every way, measured, in one table
    cw.show(cw.find(x, w, padding=1))                     # printed, as the command prints it
    cw.find("ic64ih56oc64kh3ph1", device="h200")          # from a description, for a GPU that you do not have
    cw.predict("ic64ih56oc64kh3ph1", device="h200")       # what each should take there, without running anything
    cw.learn(device="cuda")                               # what was measured, as a model for such predictions
    cw.why("ic64ih56oc64kh3ph1", "cudnn/fft")             # why this one cannot serve, in cuDNN's own words
    cw.problem(module, (8, 64, 56, 56))                   # what a module, or tensors, ask for, as data
    cw.conv2d(x, w, b, padding=1, activation="relu")      # the best one, differentiable; 1d, 3d, transposed likewise
    cw.conv2d(x, w, algorithm="cudnn/fft-tiling")         # this one, or a clear error
    with cw.algorithms(forward="cudnn/gemm"): ...         # this one, for all calls inside
    with cw.enabled(): model(x)                           # every F.conv* and nn.Conv* of any library, unmodified
    cw.nn.MSDNet(1, 2, depth=100)                         # a mixed-scale dense network in one buffer
    cw.convert(model, choices={"stem": "cudnn/gemm"})     # its layers, each by the algorithm that is named
    cw.tune(model, example)                               # every convolution of a model, remembered
    cw.sample(seconds=480)                                # many candidates of many problems, for predictions
    cw.optimize(model, example)                           # a whole network, planned and run as one; .save(folder)
    cw.load(folder)                                       # the same in another process
    cw.predict(model, example, device="h200")             # what it should take on a GPU that is not in this machine
    cw.place(jobs, devices, estimates)                    # which jobs run where, by times that are given
    cw.register_kernel("mine", kind="conv", ...)          # a kernel of your own, which competes with all others
    cw.quantize(model, samples)                           # its convolutions in int8, and what each costs in accuracy
    cw.plan("ic64ih56oc64kh3ph1")                         # one candidate made ready, on tensors or on addresses
    cw.conv2d_into(buffer[:, 8:12], x, w)                 # into a slice of a larger buffer
    cw.last_choice()                                      # what ran, and what it saved
    cw.emit_c("ic64ih56oc64kh3ph1", device="h200")        # one of cuDNN's as C, for programs without Python
    cw.measure(function)                                  # the timer, for anything

Importing convwright imports neither torch nor CUDA: each name below is fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import convwright.forking  # noqa: F401  from here on, a fork waits for what other threads are importing

__version__ = "0.1.0"

_HOMES = {
    "ConvProblem": "convwright.core.problem",
    "Policy": "convwright.core.policy",
    "Direction": "convwright.core.direction",
    "DeviceFacts": "convwright.core.device",
    "Findings": "convwright.tuning.find",
    "ConvwrightError": "convwright.errors",
    "BadInput": "convwright.errors",
    "Refused": "convwright.errors",
    "StepFailed": "convwright.errors",
    "BackendError": "convwright.errors",
    "StoreError": "convwright.errors",
    "StoreWarning": "convwright.errors",
    "FailureWarning": "convwright.errors",
    "MemoryWarning": "convwright.errors",
    "IgnoredWarning": "convwright.errors",
    "OutOfMemory": "convwright.shortage",
    "Store": "convwright.store.store",
    "find": "convwright.api.finding",
    "Predictions": "convwright.api.predicting",
    "predict_sweep": "convwright.api.predicted_sweep",
    "learn": "convwright.campaign.learning",
    "show": "convwright.report.show",
    "why": "convwright.api.finding",
    "advise": "convwright.advising.advise",
    "tune": "convwright.advising.tuned",
    "sample": "convwright.campaign.sample",
    "optimize": "convwright.engine.optimize",
    "predict": "convwright.engine.predict",
    "load": "convwright.engine.loaded",
    "place": "convwright.placement.place",
    "Engine": "convwright.engine.engine",
    "PlannedEngine": "convwright.engine.planned_engine",
    "quantize": "convwright.quantizing.quantize",
    "last_choice": "convwright.api.finding",
    "register_kernel": "convwright.api.user_kernels",
    "unregister_kernel": "convwright.api.user_kernels",
    "conv1d": "convwright.eager.functional",
    "conv2d": "convwright.eager.functional",
    "conv3d": "convwright.eager.functional",
    "conv_transpose1d": "convwright.eager.functional",
    "conv_transpose2d": "convwright.eager.functional",
    "conv_transpose3d": "convwright.eager.functional",
    "algorithms": "convwright.eager.asking.ambient",
    "enable": "convwright.eager.enable",
    "disable": "convwright.eager.enable",
    "enabled": "convwright.eager.enable",
    "conv2d_into": "convwright.eager.into",
    "convert": "convwright.training.convert",
    "revert": "convwright.training.convert",
    "plan": "convwright.api.plans",
    "BoundPlan": "convwright.api.plans",
    "TensorPlan": "convwright.api.tensor_plans",
    "problem": "convwright.api.posing",
    "problem_of_module": "convwright.api.describe_module",
    "emit_c": "convwright.emit.one",
    "emit_c_dynamic": "convwright.emit.any_sizes",
    "EmittedC": "convwright.emit.emitted",
    "measure": "convwright.measuring.timer",
    "measure_together": "convwright.measuring.timer",
    "compare": "convwright.measuring.compare",
    "Timing": "convwright.measuring.timing",
    "device_facts": "convwright.measuring.hardware.machine",
}

_MODULES = ("nn", "placement")

__all__ = ["__version__", *sorted((*_HOMES, *_MODULES))]

if TYPE_CHECKING:
    from convwright import nn as nn
    from convwright import placement as placement
    from convwright.advising.advise import advise as advise
    from convwright.advising.tuned import tune as tune
    from convwright.api.describe_module import problem_of_module as problem_of_module
    from convwright.api.finding import find as find
    from convwright.api.finding import last_choice as last_choice
    from convwright.api.finding import why as why
    from convwright.api.plans import BoundPlan as BoundPlan
    from convwright.api.plans import plan as plan
    from convwright.api.posing import problem as problem
    from convwright.api.predicted_sweep import predict_sweep as predict_sweep
    from convwright.api.predicting import Predictions as Predictions
    from convwright.api.tensor_plans import TensorPlan as TensorPlan
    from convwright.api.user_kernels import register_kernel as register_kernel
    from convwright.api.user_kernels import unregister_kernel as unregister_kernel
    from convwright.campaign.learning import learn as learn
    from convwright.campaign.sample import sample as sample
    from convwright.core.device import DeviceFacts as DeviceFacts
    from convwright.core.direction import Direction as Direction
    from convwright.core.policy import Policy as Policy
    from convwright.core.problem import ConvProblem as ConvProblem
    from convwright.eager.asking.ambient import algorithms as algorithms
    from convwright.eager.enable import disable as disable
    from convwright.eager.enable import enable as enable
    from convwright.eager.enable import enabled as enabled
    from convwright.eager.functional import conv1d as conv1d
    from convwright.eager.functional import conv2d as conv2d
    from convwright.eager.functional import conv3d as conv3d
    from convwright.eager.functional import conv_transpose1d as conv_transpose1d
    from convwright.eager.functional import conv_transpose2d as conv_transpose2d
    from convwright.eager.functional import conv_transpose3d as conv_transpose3d
    from convwright.eager.into import conv2d_into as conv2d_into
    from convwright.emit.any_sizes import emit_c_dynamic as emit_c_dynamic
    from convwright.emit.emitted import EmittedC as EmittedC
    from convwright.emit.one import emit_c as emit_c
    from convwright.engine.engine import Engine as Engine
    from convwright.engine.loaded import load as load
    from convwright.engine.optimize import optimize as optimize
    from convwright.engine.planned_engine import PlannedEngine as PlannedEngine
    from convwright.engine.predict import predict as predict
    from convwright.errors import BackendError as BackendError
    from convwright.errors import BadInput as BadInput
    from convwright.errors import ConvwrightError as ConvwrightError
    from convwright.errors import FailureWarning as FailureWarning
    from convwright.errors import IgnoredWarning as IgnoredWarning
    from convwright.errors import MemoryWarning as MemoryWarning
    from convwright.errors import Refused as Refused
    from convwright.errors import StepFailed as StepFailed
    from convwright.errors import StoreError as StoreError
    from convwright.errors import StoreWarning as StoreWarning
    from convwright.measuring.compare import compare as compare
    from convwright.measuring.hardware.machine import device_facts as device_facts
    from convwright.measuring.timer import measure as measure
    from convwright.measuring.timer import measure_together as measure_together
    from convwright.measuring.timing import Timing as Timing
    from convwright.placement.place import place as place
    from convwright.quantizing.quantize import quantize as quantize
    from convwright.report.show import show as show
    from convwright.shortage import OutOfMemory as OutOfMemory
    from convwright.store.store import Store as Store
    from convwright.training.convert import convert as convert
    from convwright.training.convert import revert as revert
    from convwright.tuning.find import Findings as Findings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"convwright.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'convwright' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
