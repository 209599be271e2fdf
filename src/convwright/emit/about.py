"""The comment at the beginning of an emitted file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from convwright.backends.cudnn.library import Missing, in_figures, load
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.emit.emitted import MARK
from convwright.emit.literals import is_engine

_WIDTH = 116
_SIZES = "Sizes are batch, channels, space; a weight has k, c / groups, taps. Strides are in elements, in this order."
_PACKS = (
    "cuDNN reads the operands' addresses from a pack on the host. The packs of the last 16 different "
    "sets of addresses are kept, and a run with one of them allocates nothing here. A run with other addresses "
    "replaces the oldest pack, for which cuDNN allocates 4 kB on the host (cuDNN 9.19). cuDNN may also allocate "
    "on the host inside cudnnBackendExecute."
)
_ONE_CALL = (
    "On the host a run is one call of cuDNN and allocates nothing here; cuDNN may allocate on the host inside "
    "that call."
)


def cudnn_version() -> int:
    """cuDNN's version as cuDNN counts it, 91900 for 9.19.0; 0 without cuDNN."""
    library = load()
    return 0 if isinstance(library, Missing) else library.version


def about_plan(name: str, candidate: Candidate, device: DeviceFacts, by: str) -> str:
    """The comment of a file for one convolution."""
    needs = "known once it is built" if candidate.workspace_bytes is None else f"{candidate.workspace_bytes:,} bytes"
    needs = f"at most {needs}" if candidate.workspace_is_bound else needs
    entries = [
        ("problem", candidate.problem.key),
        ("candidate", f"{candidate.id}, {by}"),
        ("computes in", f"{candidate.arithmetic}; {_determinism(candidate)}"),
        ("workspace", f"{needs} on {device.name}"),
        ("built for", f"{_version()}; {_condition(name, engines=is_engine(candidate))}"),
        ("operands", f"of {name}_run, on the device:"),
        *_operands(candidate.problem),
    ]  # fmt: skip
    return comment(name, "one convolution", entries, _links(*["libcudart"] * adds_zeros(candidate.problem)))


def about_cache(
    name: str, problem: ConvProblem, layout: Layout, device: DeviceFacts, rows: int, permissions: Sequence[str]
) -> str:
    """The comment of a file for convolutions of any sizes; ``problem`` is any of them."""
    order = {Layout.NCHW: "n c h w, the weight k c r s", Layout.NHWC: "n h w c, the weight k r s c"}[layout]
    epilogue = problem.epilogue
    entries = [
        ("computes", f"y = {_formula(problem)}, forward, in two dimensions"),
        ("operands", f"{problem.dtype}, dense, in memory in the order {order}, the last index moving fastest"),
        ("bias", "k numbers, one after the other" if epilogue.bias else "NULL"),
        ("residual", "as y" if epilogue.residual else "NULL"),
        ("arithmetic", ", ".join(permissions)),
        ("table", f"{rows} sizes, chosen for {device.name}"),
        ("built for", f"{_version()}; with another version the heuristic replaces the table's engines"),
    ]
    return comment(name, "convolutions of any sizes", entries, _links("libcudart", "POSIX threads (-pthread)"))


def comment(name: str, what: str, entries: Iterable[tuple[str, str]], end: str) -> str:
    lines = [f"/* {name}: {what} by cuDNN; {MARK}.", ""]
    for word, text in entries:
        indent = f"   {word:<12}"
        lines += textwrap.wrap(
            text, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
        )  # fmt: skip
    return "\n".join([*lines, "", *textwrap.wrap(end, _WIDTH, initial_indent="   ", subsequent_indent="   ")]) + " */"


def adds_zeros(problem: ConvProblem) -> bool:
    """Whether cuDNN's pattern adds a bias that the problem does not have."""
    return bool(problem.epilogue) and not problem.epilogue.bias


def on_the_host(*, engines: bool) -> str:
    """A run's allocations on the host, as lines of a header's comment."""
    return textwrap.fill(_PACKS if engines else _ONE_CALL, _WIDTH, subsequent_indent="   ")


def _determinism(candidate: Candidate) -> str:
    if candidate.deterministic is None:
        return "not known to be deterministic"
    return "deterministic" if candidate.deterministic else "not deterministic"


def _version() -> str:
    number = cudnn_version()
    return f"cuDNN {in_figures(number)}" if number else "cuDNN 9"


def _condition(name: str, *, engines: bool) -> str:
    if not engines:
        return "any cuDNN 9 with the classic API works"
    return f"its engine numbers are not valid for others, unless this is compiled with -D{name.upper()}_ANY_CUDNN"


def _links(*libraries: str) -> str:
    linked = " and ".join(("libcudnn.so.9", *libraries))
    return f"Compile it as C11 or C++17 against the headers of cuDNN and CUDA, and link it with {linked}."


def _formula(problem: ConvProblem) -> str:
    epilogue = problem.epilogue
    added = " + residual" * epilogue.residual + " + bias" * epilogue.bias
    return f"{epilogue.activation}(x * weight{added})" if epilogue.activation != "none" else f"x * weight{added}"


def _operands(problem: ConvProblem) -> list[tuple[str, str]]:
    (first, second), operands = problem.direction.operands, problem.operands
    places = {"first": first, "second": second, "bias": Role.BIAS, "residual": Role.RESIDUAL}
    places["out"] = problem.direction.output
    lines = [(f"  {place}", _operand(role, operands.get(role))) for place, role in places.items()]
    return [*lines, ("", _SIZES)]


def _operand(role: Role, spec: TensorSpec | None) -> str:
    if spec is None:
        return "NULL"
    sizes, strides = (", ".join(map(str, numbers)) for numbers in (spec.shape, spec.strides))
    return f"{role}: {spec.dtype}, sizes {sizes}, strides {strides}, aligned to {spec.alignment} bytes"
