"""A convolution and its epilogue as an operation graph of cuDNN."""

from __future__ import annotations

from convwright.backends.cudnn.faults import fault_of
from convwright.backends.cudnn.graph.attributes import Attribute, Kind
from convwright.backends.cudnn.graph.descriptor import Descriptor
from convwright.backends.cudnn.graph.device import Target
from convwright.backends.cudnn.graph.tensor import DATA_TYPE, INT32, GraphTensor, common_layout
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation
from convwright.core.fusing import why_not_fused
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import Refused

UID = {role: number for number, role in enumerate(Role, start=1)}
_FIRST_VIRTUAL_UID = 101
_TRUE_CONVOLUTION, _CROSS_CORRELATION = 0, 1
_ADD, _IDENTITY = 0, 21
# cuDNN has kernels for ReLU and compiles other fused activations at run time.
_POINTWISE_MODE = {Activation.RELU: 100, Activation.GELU: 104, Activation.SILU: 106}

_KIND = {
    Direction.FORWARD: Kind.CONVOLUTION_FORWARD,
    Direction.BACKWARD_DATA: Kind.CONVOLUTION_BACKWARD_DATA,
    Direction.BACKWARD_WEIGHT: Kind.CONVOLUTION_BACKWARD_WEIGHT,
}
_WINDOW = {
    Direction.FORWARD: Attribute.FORWARD_CONVOLUTION,
    Direction.BACKWARD_DATA: Attribute.BACKWARD_DATA_CONVOLUTION,
    Direction.BACKWARD_WEIGHT: Attribute.BACKWARD_WEIGHT_CONVOLUTION,
}
_OPERAND = {
    (Direction.FORWARD, Role.X): Attribute.FORWARD_X,
    (Direction.FORWARD, Role.W): Attribute.FORWARD_W,
    (Direction.FORWARD, Role.Y): Attribute.FORWARD_Y,
    (Direction.BACKWARD_DATA, Role.DY): Attribute.BACKWARD_DATA_DY,
    (Direction.BACKWARD_DATA, Role.W): Attribute.BACKWARD_DATA_W,
    (Direction.BACKWARD_DATA, Role.DX): Attribute.BACKWARD_DATA_DX,
    (Direction.BACKWARD_WEIGHT, Role.X): Attribute.BACKWARD_WEIGHT_X,
    (Direction.BACKWARD_WEIGHT, Role.DY): Attribute.BACKWARD_WEIGHT_DY,
    (Direction.BACKWARD_WEIGHT, Role.DW): Attribute.BACKWARD_WEIGHT_DW,
}


def graph_operands(problem: ConvProblem) -> dict[Role, TensorSpec]:
    """Every tensor in memory that the graph refers to, the output last.

    cuDNN's compiled pattern always adds a bias, so every fused graph has one.
    """
    operands = dict(problem.operands)
    output = operands.pop(problem.direction.output)
    if problem.epilogue:
        # Some engines read the bias in vectors regardless of its stated alignment; an unaligned bias is a device fault.
        operands[Role.BIAS] = TensorSpec((1, problem.k, *(1,) * problem.rank), problem.dtype.added, alignment=16)
    return {**operands, problem.direction.output: output}


def operation_graph(problem: ConvProblem, device: Target) -> Descriptor:
    """The finalized graph. Raises with the reason if cuDNN refuses it or cannot describe it."""
    activation = problem.epilogue.activation
    if (reason := why_not_fused(problem)) is not None:
        raise Refused(reason)
    if activation not in (Activation.NONE, *_POINTWISE_MODE):
        raise Refused(f"cuDNN can fuse {', '.join(_POINTWISE_MODE)}, not {activation}")
    operands = graph_operands(problem)
    if any(spec.numel == 0 for spec in operands.values()):
        raise Refused("cuDNN has no descriptors for empty tensors")
    if (reason := fault_of(problem)) is not None:
        raise Refused(reason)
    layout = common_layout(problem)
    seen = {role: GraphTensor.of(spec, layout) for role, spec in operands.items()}
    tensors = {role: tensor.descriptor(UID[role]) for role, tensor in seen.items()}
    output = problem.direction.output
    steps = _epilogue(problem, tensors)
    between = [_summed_in(problem), *[DATA_TYPE[_compute_dtype(problem)]] * len(steps)][: len(steps)]
    results = [seen[output].virtual(_FIRST_VIRTUAL_UID + i, data_type) for i, data_type in enumerate(between)]
    results.append(tensors[output])
    operations = [_convolution(problem, {**tensors, output: results[0]})]
    for (mode, other), source, target in zip(steps, results, results[1:], strict=False):
        operations.append(_pointwise(problem, mode, source, other, target))
    graph = Descriptor(Kind.OPERATION_GRAPH).set(Attribute.GRAPH_OPERATIONS, *operations)
    return device.of_graph(graph).finalize()


def is_compiled_at_run_time(problem: ConvProblem) -> bool:
    """True if cuDNN has no kernel for this, only a compiler that asks the device's driver."""
    return _converts(problem) or problem.epilogue.activation not in (Activation.NONE, Activation.RELU)


def _converts(problem: ConvProblem) -> bool:
    """Whether a separate step stores the sums. Sums of int8 are stored directly as fp32 and int8, sums of fp8 never
    are."""
    return problem.dtype.narrow and not (problem.dtype is DType.INT8 and problem.y.dtype in (DType.FP32, DType.INT8))


def _epilogue(problem: ConvProblem, tensors: dict[Role, Descriptor]) -> list[tuple[int, Descriptor | None]]:
    # The order of cuDNN's own pattern; another order would be compiled at run time or refused.
    steps: list[tuple[int, Descriptor | None]] = []
    if problem.epilogue.residual:
        steps.append((_ADD, tensors[Role.RESIDUAL]))
    if problem.epilogue:
        steps.append((_ADD, tensors[Role.BIAS]))
    if problem.epilogue.activation is not Activation.NONE:
        steps.append((_POINTWISE_MODE[problem.epilogue.activation], None))
    if _converts(problem) and not steps:
        steps.append((_IDENTITY, None))
    return steps


def _convolution(problem: ConvProblem, tensors: dict[Role, Descriptor]) -> Descriptor:
    direction = problem.direction
    alpha, beta = _scales(problem)
    operation = Descriptor(_KIND[direction]).set(_WINDOW[direction], _window(problem)).set(alpha, 1.0).set(beta, 0.0)
    for role in (*direction.operands, direction.output):
        operation.set(_OPERAND[direction, role], tensors[role])
    return operation.finalize()


def _scales(problem: ConvProblem) -> tuple[Attribute, Attribute]:
    """The attributes for the factors of the product and of the output's previous content."""
    name, kind = problem.direction.name, "_FP64" if problem.dtype is DType.FP64 else ""
    return Attribute[f"{name}_ALPHA{kind}"], Attribute[f"{name}_BETA{kind}"]


def _window(problem: ConvProblem) -> Descriptor:
    # One dimension is computed as two with height 1.
    zeros, ones = ((0,), (1,)) if problem.rank == 1 else ((), ())
    before, after = zip(*problem.padding, strict=True)
    return (
        Descriptor(Kind.CONVOLUTION)
        .set(Attribute.CONVOLUTION_COMPUTE_TYPE, _summed_in(problem))
        .set(Attribute.CONVOLUTION_MODE, _TRUE_CONVOLUTION if problem.flip else _CROSS_CORRELATION)
        .set(Attribute.CONVOLUTION_SPATIAL_DIMS, max(problem.rank, 2))
        .set(Attribute.CONVOLUTION_STRIDES, *ones, *problem.stride)
        .set(Attribute.CONVOLUTION_DILATIONS, *ones, *problem.dilation)
        .set(Attribute.CONVOLUTION_PRE_PADDINGS, *zeros, *before)
        .set(Attribute.CONVOLUTION_POST_PADDINGS, *zeros, *after)
        .finalize()
    )


def _pointwise(
    problem: ConvProblem, mode: int, source: Descriptor, other: Descriptor | None, target: Descriptor
) -> Descriptor:
    function = Descriptor(Kind.POINTWISE).set(Attribute.POINTWISE_MODE, mode)
    function.set(Attribute.POINTWISE_COMPUTE_TYPE, DATA_TYPE[_compute_dtype(problem)]).finalize()
    operation = Descriptor(Kind.POINTWISE_OPERATION).set(Attribute.POINTWISE_DESCRIPTOR, function)
    operation.set(Attribute.POINTWISE_X, source).set(Attribute.POINTWISE_Y, target)
    if other is not None:
        operation.set(Attribute.POINTWISE_B, other)
    return operation.finalize()


def _summed_in(problem: ConvProblem) -> int:
    """cuDNN's number for the dtype of the convolution's sums."""
    return INT32 if problem.dtype is DType.INT8 else DATA_TYPE[_compute_dtype(problem)]


def _compute_dtype(problem: ConvProblem) -> DType:
    return DType.FP64 if problem.dtype is DType.FP64 else DType.FP32
