"""An assignment as JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.finding import Interval
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.record import as_record
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.planning.assignment import Assignment, RunnerUp, Step
from convwright.errors import BadInput, ConvwrightError, Refused
from convwright.graph.graph import Graph, Node
from convwright.graph.operations import NO_PROBLEM, Foreign, Join, Operation, Part, View
from convwright.measuring.compare import Outcome
from convwright.measuring.paired import Paired
from convwright.tuning.asked import named
from convwright.tuning.find import resolved


def written(assignment: Assignment) -> dict[str, Any]:
    return {
        "inputs": assignment.inputs,
        "outputs": assignment.outputs,
        "modelled_us": assignment.modelled_us,
        "greedy_us": assignment.greedy_us,
        "uniform_us": assignment.uniform_us,
        "beside_model": as_record(assignment.beside_model, infinite=str),
        "tensors": {name: spec_written(spec) for name, spec in assignment.tensors.items()},
        "constants": {name: spec_written(spec) for name, spec in assignment.constants.items()},
        "slices": assignment.slices,
        "wholes": {name: spec_written(spec) for name, spec in assignment.wholes.items()},
        "steps": [
            {
                "name": step.name,
                "operation": _operation_text(step.operation),
                "candidate": None if step.candidate is None else step.candidate.id,
                "reads": dict(step.reads),
                "writes": step.writes,
                "time_us": step.time_us.to_json(),
                "runner_up": None if step.runner_up is None else step.runner_up.to_json(),
                "reason": step.reason,
            }
            for step in assignment.steps
        ],
    }


def read(plan: Mapping[str, Any], device: DeviceFacts) -> Assignment:
    greedy_us, uniform_us = (None if plan[name] is None else float(plan[name]) for name in ("greedy_us", "uniform_us"))
    return Assignment(
        {name: _spec(data) for name, data in plan["tensors"].items()},
        tuple(_step(data, device) for data in plan["steps"]),
        tuple(plan["inputs"]),
        tuple(plan["outputs"]),
        {name: _spec(data) for name, data in plan["constants"].items()},
        {name: (str(whole), int(start)) for name, (whole, start) in plan["slices"].items()},
        {name: _spec(data) for name, data in plan["wholes"].items()},
        float(plan["modelled_us"]),
        greedy_us,
        uniform_us,
        _paired(plan.get("beside_model")),  # older plans have none
    )


def graph_written(graph: Graph) -> dict[str, Any]:
    """A graph without its constants, which the assignment has."""
    return {
        "values": {name: spec_written(spec) for name, spec in graph.values.items() if name not in graph.constants},
        "nodes": [
            {"name": node.name, "operation": _operation_text(node.operation), "reads": dict(node.reads),
             "writes": node.writes}
            for node in graph.nodes
        ],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }  # fmt: skip


def graph_read(plan: Mapping[str, Any]) -> Graph:
    """The graph of a plan."""
    data = plan["graph"]
    constants = {name: _spec(spec) for name, spec in plan["constants"].items()}
    nodes = (
        Node(each["name"], _of_graph(each["operation"]), tuple(each["reads"].items()), tuple(each["writes"]))
        for each in data["nodes"]
    )
    values = constants | {name: _spec(spec) for name, spec in data["values"].items()}
    return Graph(values, tuple(nodes), tuple(data["inputs"]), tuple(data["outputs"]), tuple(constants))


def _step(data: Mapping[str, Any], device: DeviceFacts) -> Step:
    operation = _operation(data["operation"])
    candidate = None
    if data["candidate"] is not None:
        if isinstance(operation, NO_PROBLEM):
            raise BadInput(f"no candidate computes {operation.key[:200]}")
        try:
            candidate = named(data["candidate"], operation, device, resolved(Policy(), operation, device))
        except ConvwrightError as why:  # another version of this package may have other kernels
            raise Refused(str(why)) from why
    time_us = _interval(data["time_us"])
    reads = tuple((str(role), str(name)) for role, name in data["reads"].items())
    second = data["runner_up"]
    runner_up = None if second is None else RunnerUp(str(second["id"]), float(second["times"]))
    writes, reason = tuple(data["writes"]), str(data["reason"])
    return Step(data["name"], operation, reads, writes, candidate, time_us, runner_up, reason)


def _interval(data: Mapping[str, Any]) -> Interval:
    return Interval(*(float(data[name]) for name in ("value", "low", "high")))


def _paired(data: Mapping[str, Any] | str | None) -> Paired | str | None:
    if data is None or isinstance(data, str):
        return data
    before_us, after_us, ratio = (_interval(data[name]) for name in ("before_us", "after_us", "ratio"))
    return Paired(before_us, after_us, ratio, Outcome(data["outcome"]), int(data["rounds"]), data["unstable"])


def _operation_text(operation: Operation) -> Any:
    if isinstance(operation, Foreign):
        return {
            "target": operation.target, "arguments": operation.arguments,
            "inputs": [spec_written(spec) for spec in operation.inputs],
            "results": [spec_written(spec) for spec in operation.results],
        }  # fmt: skip
    if isinstance(operation, View):
        return {"view": spec_written(operation.x), "as": spec_written(operation.y)}
    if isinstance(operation, Join):
        return {
            "join": [spec_written(spec) for spec in operation.inputs], "as": spec_written(operation.y),
            "dim": operation.dim,
        }  # fmt: skip
    if isinstance(operation, Part):
        x, y = map(spec_written, (operation.x, operation.y))
        return {"part": y, "of": x, "dim": operation.dim, "start": operation.start}
    return operation.key


def _operation(data: Any) -> Operation:
    if isinstance(data, str):
        return parse(data)
    if "view" in data:
        return View(_spec(data["view"]), _spec(data["as"]))
    if "join" in data:
        return Join(tuple(map(_spec, data["join"])), _spec(data["as"]), int(data["dim"]))
    if "part" in data:
        return Part(_spec(data["of"]), _spec(data["part"]), int(data["dim"]), int(data["start"]))
    inputs, results = (tuple(map(_spec, data[name])) for name in ("inputs", "results"))
    return Foreign(str(data["target"]), str(data["arguments"]), inputs, results)


def _of_graph(data: Any) -> Operation:
    operation = _operation(data)
    if isinstance(operation, Part):
        raise BadInput("a graph copies parts; only a plan reads them in place")
    return operation


def spec_written(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, spec.shape, spec.strides]


def _spec(data: Any) -> TensorSpec:
    dtype, shape, strides = data
    return TensorSpec(tuple(shape), DType.parse(dtype), tuple(strides))
