"""Convolutions of any sizes as C: what a compiler's runtime calls, with a table of choices and a cache of plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.emit.about import about_cache, adds_zeros, cudnn_version, on_the_host
from convwright.emit.chosen import best, check_epilogue, gpu
from convwright.emit.emitted import EmittedC
from convwright.emit.literals import (
    NO_ALGORITHM,
    NO_ENGINE,
    NO_SIZES,
    check_dtype,
    kind_literal,
    row_literal,
    row_sizes,
)
from convwright.emit.templates import assemble, header
from convwright.errors import BadInput, Refused
from convwright.naming import one_of
from convwright.tuning.find import resolved
from convwright.tuning.keeping.store import Store
from convwright.tuning.session import session

_BEGIN = ("head.c", "failure.c", "problem.c", "device.c")
_REST = (
    "graph.c", "operations.c", "engine.c", "pack.c", "classic.c",
    "kind.c", "sizes.c", "heuristic.c", "cache_parts.c", "data.c", "planning.c", "cache.c",
)  # fmt: skip
_FUSED = (Activation.NONE, Activation.RELU)
_ZEROS = "Zeros for the bias that cuDNN adds go to the device."
_NO_ZEROS = "On the device it takes what its kernels take."
# C has no empty arrays.
_NO_ROW = f"{{{NO_SIZES}, false, {NO_ENGINE}, {NO_ALGORITHM}}}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is the same for all sizes."""

    dtype: DType
    layout: Layout
    epilogue: Epilogue

    def problem(self) -> ConvProblem:
        """Any problem of this kind."""
        return ConvProblem.of((1, 8, 8, 8), (8, 8, 3, 3), dtype=self.dtype, epilogue=self.epilogue, layout=self.layout)

    def objection(self, problem: ConvProblem) -> str | None:
        """Why ``problem`` is none of this kind, or None where it is."""
        if problem.rank != 2 or problem.direction is not Direction.FORWARD or problem.flip:
            return "the table is of forward convolutions in two dimensions"
        if (problem.dtype, problem.epilogue) != (self.dtype, self.epilogue):
            return f"the table is of {self.dtype} with the epilogue {self.epilogue}"
        if problem.symmetric_padding is None:
            return f"the table is of padding that is the same on both sides, got {problem.padding}"
        if problem != problem.in_layout(self.layout):
            return f"the table is of operands that are dense in {self.layout} and aligned to 16 bytes"
        return None


def emit_c_dynamic(
    table: Iterable[ConvProblem | str] | None = None,
    *,
    dtype: str = "fp32",
    layout: str = "nchw",
    epilogue: str = "none",
    device: str | DeviceFacts | None = None,
    name: str = "conv",
    policy: Policy | None = None,
    store: Store | None = None,
) -> EmittedC:
    """Forward convolutions in two dimensions, of sizes that are told at the call, as a C source file and its header.

    What runs for the sizes of the problems in ``table`` is chosen now, as ``emit_c`` chooses, and written into the
    file; by default these are all problems of this kind that ``store`` knows on ``device``. For other sizes cuDNN's
    heuristic is asked when they are met, within the arithmetic that ``policy`` permits. ``left_out`` of the result says
    which of the problems have no row, and why.

    >>> emitted = emit_c_dynamic(["mb1ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc"], dtype="fp16", layout="nhwc", device="h200")
    >>> len(emitted.chosen), "int conv_run(conv_cache *cache, int64_t n" in emitted.header
    (1, True)
    """
    kind = _Kind(
        DType.parse(dtype), one_of(Layout, "layout", layout, but=Layout.STRIDED), Epilogue.parse(epilogue)
    )  # fmt: skip
    check_dtype(kind.dtype)
    if kind.epilogue.activation not in _FUSED:
        raise BadInput(f"cuDNN's compiled pattern can fuse relu, not {kind.epilogue.activation}")
    check_epilogue(kind.problem())
    check_policy(policy)
    facts, allowed = gpu(device), policy or Policy()
    known = store or session().store
    problems = _asked(table) if table is not None else list(_stored(kind, facts, known))
    rows, left_out = _rows(problems, kind, facts, allowed, known)
    permitted = resolved(allowed, kind.problem(), facts)
    return _emitted(kind, facts, name, permitted, rows, left_out)


def _asked(table: Iterable[ConvProblem | str]) -> list[ConvProblem]:
    if isinstance(table, str):
        raise BadInput(f"`table` must be several problems, got one text {table!r}")
    problems = [ConvProblem.parse(each) if isinstance(each, str) else each for each in table]
    strange = next((each for each in problems if not isinstance(each, ConvProblem)), None)
    if strange is not None:
        raise BadInput(f"`table` must hold problems or their texts, got {strange!r}")
    return problems


def _stored(kind: _Kind, device: DeviceFacts, store: Store) -> Iterator[ConvProblem]:
    """What the store knows of this kind. Other kinds in it were not asked for, and are no omission."""
    for known in store.problems():
        if known.device == device.key:
            with suppress(BadInput):  # what was taken in from elsewhere may be about anything
                problem = ConvProblem.parse(known.problem)
                if kind.objection(problem) is None:
                    yield problem


def _rows(
    problems: Iterable[ConvProblem], kind: _Kind, device: DeviceFacts, policy: Policy, store: Store
) -> tuple[tuple[Candidate, ...], tuple[tuple[str, str], ...]]:
    """A candidate for each of the sizes, and the reasons why there is none."""
    rows: dict[tuple[int, ...], Candidate] = {}
    left_out = []
    for problem in problems:
        reason = kind.objection(problem)
        if reason is None and row_sizes(problem) not in rows:
            try:
                rows[row_sizes(problem)] = best(problem, device, policy, store)[0]
            except Refused as refused:
                reason = str(refused)
        if reason is not None:
            left_out.append((problem.key, reason))
    return tuple(rows.values()), tuple(left_out)


def _emitted(
    kind: _Kind,
    device: DeviceFacts,
    name: str,
    policy: Policy,
    rows: tuple[Candidate, ...],
    left_out: tuple[tuple[str, str], ...],
) -> EmittedC:
    problem, zeros = kind.problem(), adds_zeros(kind.problem())
    tf32 = policy.arithmetic is not None and Arithmetic.TF32 in policy.arithmetic
    said = ["TF32 is allowed" if tf32 else "TF32 is not allowed"] if kind.dtype is DType.FP32 else [kind.dtype]
    said += ["only what is deterministic"] * policy.deterministic
    words = {
        "about": about_cache(name, problem, kind.layout, device, len(rows), said),
        "host": on_the_host(engines=True),
        "zeros": _ZEROS if zeros else _NO_ZEROS,
        "kind": _kind(problem, kind.layout, tf32=tf32, deterministic=policy.deterministic),
        "data": _table(rows),
    }
    parts = [*_BEGIN, *(["zeros.c"] if zeros else []), *_REST]
    return EmittedC(name, header("cache.h", name, words), assemble(parts, name, words), rows, left_out)


def _kind(problem: ConvProblem, layout: Layout, *, tf32: bool, deterministic: bool) -> str:
    return f"""static const struct problem KIND = {kind_literal(problem)};

/* Whether operands are dense with the channels last in memory, or after the batch. */
#define CHANNELS_LAST {"true" if layout is Layout.NHWC else "false"}

/* What a heuristic's engines may do. */
#define ALLOWS_TF32 {int(tf32)}
#define ONLY_DETERMINISTIC {int(deterministic)}

/* Whether cuDNN adds a bias that the problem has not. */
#define ADDS_ZEROS {int(adds_zeros(problem))}"""


def _table(rows: tuple[Candidate, ...]) -> str:
    lines = [f"    {row_literal(row)}, /* {row.id} */" for row in rows] or [f"    {_NO_ROW},"]
    return "\n".join(
        [
            "/* The version of cuDNN by which the table's engines are numbered. */",
            f"#define CHOSEN_WITH_CUDNN {cudnn_version()}",
            "",
            "/* n c h w k r s, padding, stride, dilation, groups; algorithm or engine; the engine; the algorithm. */",
            f"#define ROWS {len(rows)}",
            "static const struct row TABLE[] = {",
            *lines,
            "};",
        ]
    )
