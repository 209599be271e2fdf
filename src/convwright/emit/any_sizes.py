"""Convolutions of any sizes as C, for a compiler's runtime: a table of choices and a cache of plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Epilogue
from convwright.core.limits import too_large
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.emit.about import about_cache, adds_zeros, cudnn_version, on_the_host
from convwright.emit.chosen import best, check_arithmetic, gpu
from convwright.emit.emitted import EmittedC
from convwright.emit.literals import (
    NO_ALGORITHM,
    NO_ENGINE,
    NO_SIZES,
    check_dtype,
    check_epilogue,
    kind_literal,
    row_literal,
    row_sizes,
)
from convwright.emit.templates import assemble, check_name, header
from convwright.errors import BadInput, Refused
from convwright.naming import one_of
from convwright.store.store import Store
from convwright.tuning.find import resolved
from convwright.tuning.session import using

_BEGIN = ("head.c", "failure.c", "problem.c", "device.c")
_REST = (
    "graph.c", "operations.c", "engine.c", "pack.c", "classic.c",
    "kind.c", "sizes.c", "heuristic.c", "cache_parts.c", "data.c", "planning.c", "cache.c",
)  # fmt: skip
# The largest size in a call.
_LARGEST = 2**31 - 1
_ZEROS = "It allocates zeros on the device for the bias that cuDNN adds."
_NO_ZEROS = "On the device it allocates only what its kernels take."
# C has no empty arrays.
_NO_ROW = f'{{{NO_SIZES}, false, {NO_ENGINE}, {NO_ALGORITHM}, ""}}'


@dataclass(frozen=True, slots=True)
class _Kind:
    """The properties that all sizes share."""

    dtype: DType
    layout: Layout
    epilogue: Epilogue

    def problem(self) -> ConvProblem:
        """Any problem of this kind."""
        return ConvProblem.of((1, 8, 8, 8), (8, 8, 3, 3), dtype=self.dtype, epilogue=self.epilogue, layout=self.layout)

    def objection(self, problem: ConvProblem) -> str | None:
        """Why ``problem`` is not of this kind; None if it is."""
        if problem.rank != 2 or problem.direction is not Direction.FORWARD or problem.flip:
            return "the table needs forward convolutions in two dimensions"
        if (problem.dtype, problem.epilogue) != (self.dtype, self.epilogue):
            return f"the table needs {self.dtype} with the epilogue {self.epilogue}"
        if problem.symmetric_padding is None:
            return f"the table needs equal padding on both sides, got {problem.padding}"
        if problem != problem.in_layout(self.layout):
            return f"the table needs operands that are dense in {self.layout} and aligned to 16 bytes"
        if max(row_sizes(problem)) > _LARGEST:
            return f"the table needs sizes of at most {_LARGEST:,}, got {max(row_sizes(problem)):,}"
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
    store: Store | Path | str | None = None,
) -> EmittedC:
    """Forward convolutions in two dimensions, with sizes given at the call, as a C source file and its header.

    The algorithm for each problem in ``table`` is chosen now, as ``emit_c`` chooses, and written into the file. By
    default these are all problems of this kind that ``store``, a ``Store``, its path or its URL, has for ``device``.
    For other sizes the file asks cuDNN's heuristic at their first call, within the arithmetic that ``policy`` allows.
    ``left_out`` of the result has the problems without a row, and the reasons.

    >>> emitted = emit_c_dynamic(["mb1ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc"], dtype="fp16", layout="nhwc", device="h200")
    >>> len(emitted.chosen), "int conv_run(conv_cache *cache, int64_t n" in emitted.header
    (1, True)
    """
    check_name(name)
    kind = _kind_of(dtype, layout, epilogue)
    check_policy(policy)
    facts, allowed = gpu(device), policy or Policy()
    check_arithmetic(kind.dtype, facts)
    with using(store) as known:
        problems = _asked(table) if table is not None else list(_stored(kind, facts, known))
        rows, left_out = _rows(problems, kind, facts, allowed, known)
    permitted = resolved(allowed, kind.problem(), facts)
    return _emitted(kind, facts, name, permitted, rows, left_out)


def _kind_of(dtype: str, layout: str, epilogue: str) -> _Kind:
    """The kind from the user's values; raises if no file can be written for it."""
    if not isinstance(epilogue, str):
        raise BadInput(f"`epilogue` must be a text such as 'bias+relu', got {epilogue!r}")
    kind = _Kind(
        DType.parse(dtype) if isinstance(dtype, str) else one_of(DType, "dtype", dtype),
        one_of(Layout, "layout", layout, but=Layout.STRIDED),
        Epilogue.parse(epilogue),
    )
    check_dtype(kind.dtype)
    check_epilogue(kind.problem())
    return kind


def _asked(table: Iterable[ConvProblem | str]) -> list[ConvProblem]:
    if isinstance(table, str):
        raise BadInput(f"`table` must be a list of problems, got one text {table!r}")
    if not isinstance(table, Iterable):
        raise BadInput(f"`table` must be a list of problems or their texts, got {table!r}")
    problems = [ConvProblem.parse(each) if isinstance(each, str) else each for each in table]
    for each in problems:
        if not isinstance(each, ConvProblem):
            raise BadInput(f"`table` must hold problems or their texts, got {each!r}")
    return problems


def _stored(kind: _Kind, device: DeviceFacts, store: Store) -> Iterator[ConvProblem]:
    """The store's problems of this kind. Others in the store are not reported as left out."""
    for known in store.problems():
        if known.device == device.key:
            with suppress(BadInput):  # imported findings may be about anything
                problem = ConvProblem.parse(known.problem)
                if kind.objection(problem) is None:
                    yield problem


def _rows(
    problems: Iterable[ConvProblem], kind: _Kind, device: DeviceFacts, policy: Policy, store: Store
) -> tuple[tuple[Candidate, ...], tuple[tuple[str, str], ...]]:
    """A candidate for each size, and the reasons where there is none."""
    rows: dict[tuple[int, ...], Candidate] = {}
    left_out = []
    for problem in problems:
        reason = kind.objection(problem) or too_large(problem, device)
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
    permitted = policy.arithmetic is not None and Arithmetic.TF32 in policy.arithmetic
    tf32 = permitted and device.computes(Arithmetic.TF32)
    said = [_fp32(device, permitted=permitted) if kind.dtype is DType.FP32 else str(kind.dtype)]
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


def _fp32(device: DeviceFacts, *, permitted: bool) -> str:
    """What fp32 is computed in, as text."""
    if not device.computes(Arithmetic.TF32):
        return f"fp32; {device.name} has no TF32"
    return "TF32 is allowed" if permitted else "TF32 is not allowed"


def _kind(problem: ConvProblem, layout: Layout, *, tf32: bool, deterministic: bool) -> str:
    return f"""static const struct problem KIND = {kind_literal(problem)};

/* Whether operands are NHWC, or NCHW. */
#define CHANNELS_LAST {"true" if layout is Layout.NHWC else "false"}

/* The permissions of the heuristic's engines. */
#define ALLOWS_TF32 {int(tf32)}
#define ONLY_DETERMINISTIC {int(deterministic)}

/* Whether cuDNN adds a bias that the problem does not have. */
#define ADDS_ZEROS {int(adds_zeros(problem))}"""


def _table(rows: tuple[Candidate, ...]) -> str:
    lines = [f"    {row_literal(row)}," for row in rows] or [f"    {_NO_ROW},"]
    return "\n".join(
        [
            "/* The version of cuDNN that the table's engine numbers are for. */",
            f"#define CHOSEN_WITH_CUDNN {cudnn_version()}",
            "",
            "/* n c h w k r s, padding, stride, dilation, groups; classic API or not; engine; algorithm; id. */",
            f"#define ROWS {len(rows)}",
            "static const struct row TABLE[] = {",
            *lines,
            "};",
        ]
    )
