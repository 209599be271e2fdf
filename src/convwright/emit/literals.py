"""Problems and candidates as C initialisers of the structs in ``c/problem.c``, ``c/graph.c`` and ``c/classic.c``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convwright.backends.cudnn.classic.descriptors import sizes_and_strides
from convwright.backends.cudnn.classic.listing import FAMILIES
from convwright.backends.cudnn.classic.operands import filter_layout
from convwright.backends.cudnn.graph.tensor import GraphTensor, common_layout
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.fusing import has_extended_epilogue
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput

_DATA_TYPE = {
    DType.FP64: "CUDNN_DATA_DOUBLE",
    DType.FP32: "CUDNN_DATA_FLOAT",
    DType.FP16: "CUDNN_DATA_HALF",
    DType.BF16: "CUDNN_DATA_BFLOAT16",
}
# FMA is the only math type that forbids TF32; the default type allows it.
_MATH_TYPE = {
    Arithmetic.FP64: "CUDNN_DEFAULT_MATH",
    Arithmetic.FP32: "CUDNN_FMA_MATH",
    Arithmetic.TF32: "CUDNN_DEFAULT_MATH",
    Arithmetic.FP16_ACC32: "CUDNN_TENSOR_OP_MATH",
    Arithmetic.BF16_ACC32: "CUDNN_TENSOR_OP_MATH",
}
_FORMAT = {Layout.NCHW: "CUDNN_TENSOR_NCHW", Layout.NHWC: "CUDNN_TENSOR_NHWC"}
_FUSED = (Activation.NONE, Activation.RELU)
_ENGINE = "engine-"
# Placeholders in rows that lack these.
NO_SIZES, NO_ENGINE = "{" + ", ".join("0" * 14) + "}", "{0, 0, {{0, 0}}}"
NO_ALGORITHM = "{0, CUDNN_DEFAULT_MATH, CUDNN_TENSOR_NCHW}"
_NOTHING = GraphTensor((0,), (0,), 0, DType.FP32)


def is_engine(candidate: Candidate) -> bool:
    """True for an engine of the graph API, False for an algorithm of the classic one."""
    return candidate.algorithm.startswith(_ENGINE)


def problem_literal(candidate: Candidate) -> str:
    """The candidate's problem, as ``struct problem``."""
    problem = candidate.problem
    return _problem(problem, _graph_tensors(problem) if is_engine(candidate) else _classic_tensors(problem))


def kind_literal(problem: ConvProblem) -> str:
    """The properties that all sizes of a dynamic convolution share, as ``struct problem``."""
    return _problem(problem, dict.fromkeys(("x", "w", "y", "bias"), _NOTHING), sized=False)


def choice_literal(candidate: Candidate) -> str:
    """The candidate, as ``struct graph_choice`` or ``struct classic_choice``."""
    return _engine(candidate) if is_engine(candidate) else _algorithm(candidate)


def check_dtype(dtype: DType) -> None:
    """Raise if C files do not support the dtype."""
    if dtype not in _DATA_TYPE:
        raise BadInput(f"a C file computes only {', '.join(_DATA_TYPE)}, got {dtype}")


def check_epilogue(problem: ConvProblem) -> None:
    """Raise if no template computes the epilogue."""
    if has_extended_epilogue(problem) or problem.epilogue.activation not in _FUSED:
        raise BadInput(
            "a C file fuses only residual, bias and relu after a forward convolution, "
            f"got the epilogue {problem.epilogue} on {problem.direction}"
        )


def row_literal(candidate: Candidate) -> str:
    """The candidate, its problem's sizes and its id, as ``struct row``."""
    engine, sizes = is_engine(candidate), _braced(row_sizes(candidate.problem))
    choices = (_engine(candidate), NO_ALGORITHM) if engine else (NO_ENGINE, _algorithm(candidate))
    return _braced((sizes, _boolean(not engine), *choices, f'"{candidate.id}"'))


def row_sizes(problem: ConvProblem) -> tuple[int, ...]:
    """The sizes of a convolution in two dimensions in the order of ``conv_sizes``."""
    (n, c, h, w), (k, _, r, s) = problem.x.shape, problem.w.shape
    padding = [before for before, _ in problem.padding]
    return (n, c, h, w, k, r, s, *padding, *problem.stride, *problem.dilation, problem.groups)


def _problem(problem: ConvProblem, tensors: Mapping[str, GraphTensor], *, sized: bool = True) -> str:
    check_epilogue(problem)
    epilogue, computed = problem.epilogue, DType.FP64 if problem.dtype is DType.FP64 else DType.FP32
    # One dimension is computed as two with height 1.
    height = 1 if problem.rank == 1 else 0
    window = {
        "padding before": (*(0,) * height, *(before for before, _ in problem.padding)),
        "padding after": (*(0,) * height, *(after for _, after in problem.padding)),
        "stride": (*(1,) * height, *problem.stride),
        "dilation": (*(1,) * height, *problem.dilation),
    }
    lines = [
        (f"{problem.direction.name}, {_DATA_TYPE[problem.dtype]}, {_DATA_TYPE[computed]}, {problem.dtype.nbytes}",
         "direction, stored as, computed in, bytes an element"),
        *((_tensor(tensors[name]), f"{name}: sizes, strides, alignment") for name in ("x", "w", "y", "bias")),
        (str(max(problem.rank, 2) if sized else 0), "spatial dimensions"),
        *((_braced(values if sized else (0,)), name) for name, values in window.items()),
        (str(problem.groups if sized else 1), "groups"),
        (_boolean(problem.flip), "a true convolution"),
        (_boolean(epilogue.residual), "residual"),
        (_boolean(epilogue.bias), "bias"),
        (_boolean(epilogue.activation is Activation.RELU), "relu"),
    ]  # fmt: skip
    return "{\n" + "".join(f"    {value}, /* {comment} */\n" for value, comment in lines) + "}"


def _graph_tensors(problem: ConvProblem) -> dict[str, GraphTensor]:
    layout = common_layout(problem)
    # Some engines read the bias in vectors regardless of its stated alignment.
    bias = TensorSpec((1, problem.k, *(1,) * problem.rank), problem.dtype, alignment=16)
    specs = {"x": problem.x, "w": problem.w, "y": problem.y, "bias": bias}
    return {name: GraphTensor.of(spec, layout) for name, spec in specs.items()}


def _classic_tensors(problem: ConvProblem) -> dict[str, GraphTensor]:
    layout = filter_layout(problem)
    bias = TensorSpec((1, problem.k, *(1,) * problem.rank), problem.dtype)
    specs = {"x": problem.x, "w": problem.w, "y": problem.y}
    seen = {name: (spec, layout) for name, spec in specs.items()} | {"bias": (bias, Layout.NCHW)}
    return {
        name: GraphTensor(*sizes_and_strides(spec, order), spec.alignment, spec.dtype)
        for name, (spec, order) in seen.items()
    }


def _tensor(tensor: GraphTensor) -> str:
    return _braced((len(tensor.sizes), _braced(tensor.sizes), _braced(tensor.strides), tensor.alignment))


def _engine(candidate: Candidate) -> str:
    knobs = [_braced((name.removeprefix("k"), value)) for name, value in candidate.config] or ["{0, 0}"]
    return _braced((candidate.algorithm.removeprefix(_ENGINE), len(candidate.config), _braced(knobs)))


def _algorithm(candidate: Candidate) -> str:
    algorithms = FAMILIES[candidate.problem.direction].algorithms
    number = next(each.number for each in algorithms if each.name == candidate.algorithm)
    return _braced((number, _MATH_TYPE[candidate.arithmetic], _FORMAT[filter_layout(candidate.problem)]))


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _braced(values: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"
