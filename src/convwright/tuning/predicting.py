"""Predict the time of every candidate of a problem on any device. Nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from convwright.backends.torch_native.own import torch_candidate
from convwright.core.candidate import Candidate, Config, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Objective, Policy, Weights
from convwright.core.predictor import Prediction, Predictor
from convwright.core.problem import ConvProblem
from convwright.prediction.predicted_choice import Predicted
from convwright.prediction.rates import rates_of
from convwright.prediction.sums import energy_of
from convwright.tuning import listing
from convwright.tuning.chains import Chain
from convwright.tuning.choose import is_torch

# The suffix of algorithms that read a weight packed by a kernel of its own.
_PACKED = "-packed"


def everything(
    problem: Problem, device: DeviceFacts, policy: Policy, predictor: Predictor
) -> tuple[list[Predicted], list[Refusal]]:
    """The candidates of a problem with their predictions, including rewrites around those predicted to be fastest for
    each backend, and the refusals. For a device not in this machine, PyTorch's own call is added, which no library
    plans."""
    direct = listing.direct(problem, device, policy)
    rows = predicted([*pytorchs_own(problem, device), *listing.candidates(direct)], device, policy, predictor)
    best_us = min((_us(row) for row in rows if row.objection is None), default=inf)
    limit = policy.allowed_workspace_bytes
    short = policy.objective is Objective.WORKSPACE or any(
        _us(row) < best_us and (row.candidate.workspace_bytes or 0) > limit for row in rows
    )

    def promising(inner: Problem) -> list[Candidate]:
        allowed = [
            each for each in listing.candidates(listing.briefly(inner, device, policy))
            if listing.objection(each, policy) is None
        ]  # fmt: skip
        known = zip(allowed, predictor.predict_all(allowed, device), strict=True)
        ranked = sorted(known, key=lambda pair: inf if pair[1] is None else pair[1].time_us.value)
        return list({each.backend: each for each, _ in reversed(ranked)}.values())

    def against(chain: Chain) -> str | None:
        return None if chain.splits and short else chain.cannot_win(best_us, device)

    rewritten = listing.rewritten(problem, device, policy, promising, against)
    rows += predicted(listing.candidates(rewritten), device, policy, predictor)
    return rows, listing.refusals([*direct, *rewritten])


def _us(row: Predicted) -> float:
    return inf if row.prediction is None else row.prediction.time_us.value


def pytorchs_own(problem: Problem, device: DeviceFacts) -> tuple[Candidate, ...]:
    """PyTorch's own call on a GPU that is not in this machine, where PyTorch cannot be asked: with and without TF32 if
    that makes a difference."""
    if device.present or device.kind != "cuda" or problem.dtype.narrow:
        return ()
    switched = problem.dtype is DType.FP32 and problem.kind in ("conv", "linear")
    configs: tuple[Config, ...] = ((("tf32", "on"),), (("tf32", "off"),)) if switched else ((),)
    if isinstance(problem, ConvProblem):
        return tuple(torch_candidate(problem, config) for config in configs)
    return tuple(
        Candidate(
            problem, "torch", "default", config, native_arithmetic(problem.dtype, tf32=("tf32", "on") in config), 0,
            None, Source.RULE,
        ) for config in configs
    )  # fmt: skip


def predicted(
    candidates: Sequence[Candidate], device: DeviceFacts, policy: Policy, predictor: Predictor
) -> list[Predicted]:
    """The prediction for each candidate of a problem."""
    predictions = predictor.predict_all(candidates, device)
    nbytes = sum(spec.span_bytes for spec in candidates[0].problem.operands.values()) if candidates else 0
    return [
        Predicted(
            candidate, _with_packing(prediction, candidate, device, policy),
            None if candidate.workspace_bytes is None else candidate.workspace_bytes + nbytes,
            listing.objection(candidate, policy),
        )
        for candidate, prediction in zip(candidates, predictions, strict=True)
    ]  # fmt: skip


def own_of(rows: Iterable[Predicted]) -> Predicted | None:
    """PyTorch's own call under its current flags."""
    own = (row for row in rows if is_torch(row.candidate))
    return next((each for each in own if each.objection is None), None)


def _with_packing(
    prediction: Prediction | None, candidate: Candidate, device: DeviceFacts, policy: Policy
) -> Prediction | None:
    """The time and energy of a call, including the packing of a weight that changes between calls."""
    leaf = candidate.leaf
    if prediction is None or policy.weights is Weights.CONSTANT or not leaf.algorithm.endswith(_PACKED):
        return prediction
    weight = leaf.problem.operands.get("w")
    if weight is None:
        return prediction
    rates = rates_of(device)
    packing_us = rates.launch_us + 2 * weight.nbytes / rates.bandwidth_bytes_per_us
    time_us = prediction.time_us.plus(Interval(packing_us, packing_us, packing_us))
    watts = prediction.power_w
    return replace(prediction, time_us=time_us, energy_mj=None if watts is None else energy_of(watts, time_us))
