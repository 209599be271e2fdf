"""One convolution as C: created once, run on raw pointers, destroyed."""

from __future__ import annotations

from pathlib import Path

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem
from convwright.emit.about import about_plan, adds_zeros, cudnn_version, on_the_host
from convwright.emit.chosen import AUTO, best, by_name, gpu
from convwright.emit.emitted import EmittedC
from convwright.emit.literals import check_dtype, choice_literal, is_engine, problem_literal
from convwright.emit.templates import assemble, check_name, header
from convwright.errors import BadInput
from convwright.store.store import Store

_BEGIN = ("head.c", "failure.c", "problem.c")
_ENGINE = ("graph.c", "operations.c", "engine.c", "pack.c")
_ALGORITHM = ("classic.c",)
_ZEROS_PARTS = ("device.c", "zeros.c")
_END = ("data.c", "plan.c")
_ZEROS = "cuDNN adds a bias that the problem does not have: {bytes:,} bytes of zeros are allocated on the device, too."


def emit_c(
    problem: ConvProblem | str,
    *,
    algorithm: str = AUTO,
    device: str | DeviceFacts | None = None,
    name: str = "conv",
    policy: Policy | None = None,
    store: Store | Path | str | None = None,
) -> EmittedC:
    """A convolution of cuDNN as a C source file and its header, which need neither Python nor PyTorch.

    ``algorithm`` is an algorithm of cuDNN's classic API or an engine of its graph API that ``policy`` allows. "auto" is
    the best that ``store``, a ``Store``, its path or its URL, has under ``policy``, or else the first that cuDNN's
    heuristic proposes. ``device`` is the GPU that the file will run on; it need not be in this machine. ``name`` is the
    name of the files, and the prefix of every name in the header.

    >>> emitted = emit_c("mb32ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc ep:bias+relu", device="h200")
    >>> "int conv_run(conv_plan *plan, const void *first" in emitted.header
    True
    """
    asked = ConvProblem.parse(problem) if isinstance(problem, str) else problem
    if not isinstance(asked, ConvProblem):
        raise BadInput(f"emit_c takes a problem or its text, got {problem!r}")
    check_name(name)
    check_policy(policy)
    check_dtype(asked.dtype)
    facts, allowed = gpu(device), policy or Policy()
    if algorithm == AUTO:
        candidate, by = best(asked, facts, allowed, store)
    else:
        candidate, by = by_name(algorithm, asked, facts, allowed), "by name"
    return emitted(candidate, facts, name, by)


def emitted(candidate: Candidate, device: DeviceFacts, name: str, by: str) -> EmittedC:
    """The files that run ``candidate``, a candidate of cuDNN; ``by`` says how it was chosen."""
    problem, engine, zeros = candidate.problem, is_engine(candidate), adds_zeros(candidate.problem)
    words = {
        "about": about_plan(name, candidate, device, by),
        "host": on_the_host(engines=engine),
        "zeros": _ZEROS.format(bytes=problem.k * problem.dtype.nbytes) if zeros else "Nothing else is allocated there.",
        "data": _data(candidate),
    }
    parts = [*_BEGIN, *(_ZEROS_PARTS if zeros else ()), *(_ENGINE if engine else _ALGORITHM), *_END]
    source = assemble(parts, name, words)
    return EmittedC(name, header("plan.h", name, words), source, (candidate,))


def _data(candidate: Candidate) -> str:
    engine, zeros = is_engine(candidate), adds_zeros(candidate.problem)
    return f"""/* {candidate.problem.key} */
static const struct problem PROBLEM = {problem_literal(candidate)};

/* {candidate.id} */
static const struct {"graph" if engine else "classic"}_choice CHOICE = {choice_literal(candidate)};

#define PLAN(word) {"graph" if engine else "classic"}_##word

/* The version of cuDNN that the engine's number is for, 0 without an engine. */
#define CHOSEN_WITH_CUDNN {cudnn_version() if engine else 0}

/* Whether cuDNN adds a bias that the problem does not have. */
#define ADDS_ZEROS {int(zeros)}"""
