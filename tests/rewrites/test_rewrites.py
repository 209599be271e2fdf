"""Every rewrite is an identity: around ``reference/gemm`` it gives what ``reference/gemm`` gives, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.backends.reference.backend import Reference
from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.rewrites import REWRITES, rewrite, wrap_plan
from convwright.tensors import spec_of
from problem_space import operands, oracle, problems, run

CPU = DeviceFacts("this CPU", "cpu", "any", "cpu")
Step = tuple[str, Config]


def offered(problem: ConvProblem) -> list[Step]:
    """Each rewrite with each of its arguments."""
    return [
        (each.name, arguments)
        for each in REWRITES
        for arguments in each.arguments(problem, CPU)
        if not isinstance(arguments, Refusal)
    ]


def chains(problem: ConvProblem, depth: int) -> list[tuple[Step, ...]]:
    if depth == 0:
        return [()]
    return [
        (step, *rest)
        for step in offered(problem)
        for rest in chains(rewrite(step[0]).inner(problem, step[1]), depth - 1)
    ]


def wrapped(problem: ConvProblem, steps: tuple[Step, ...]) -> Candidate:
    if not steps:
        (leaf,) = Reference().candidates(problem, CPU, Policy())
        assert isinstance(leaf, Candidate)
        return leaf
    (name, arguments), *rest = steps
    inner = wrapped(rewrite(name).inner(problem, arguments), tuple(rest))
    return rewrite(name).wrap(problem, arguments, inner)


def planned(candidate: Candidate) -> Plan:
    plan = wrap_plan(candidate, lambda leaf: Reference().build(leaf, CPU))
    assert plan.candidate is candidate
    assert plan.workspace_bytes == candidate.workspace_bytes
    return plan


def check_identity(problem: ConvProblem, chosen: list[tuple[Step, ...]], seed: int) -> None:
    given = operands(problem, seed)
    expected = oracle(problem, given)
    for steps in chosen:
        plan = planned(wrapped(problem, steps))
        assert torch.equal(run(plan, given).double(), expected), plan.candidate.id
        assert torch.equal(run(plan, given, own_workspace=True).double(), expected), plan.candidate.id


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 99))
def test_a_rewrite_is_an_identity(problem: ConvProblem, seed: int) -> None:
    check_identity(problem, chains(problem, 1), seed)


@settings(max_examples=40, deadline=None)
@given(problem=problems(least_images=4), pick=st.randoms(use_true_random=False))
def test_a_rewrite_of_a_rewrite_is_an_identity(problem: ConvProblem, pick: Random) -> None:
    check_identity(problem, [pick.choice(chains(problem, 2))], 1)


def test_half_types_survive_a_split() -> None:
    problem = ConvProblem.parse("mb4ic3ih7oc5kh3ph1 dt:bf16 dir:backward_weight tag:nhwc")
    given = operands(problem, 2)
    torch.testing.assert_close(
        run(planned(wrapped(problem, (("split-batch", (("parts", 2),)),))), given).double(),
        oracle(problem, given), rtol=0.02, atol=0.02,
    )  # fmt: skip


def test_ids_nest_as_they_are_written() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    candidate = wrapped(problem, (("relayout", (("layout", "nhwc"),)), ("split-batch", (("parts", 4),))))
    assert candidate.id == "relayout(nhwc, split-batch(4, reference/gemm))"
    assert (candidate.depth, candidate.backend, candidate.leaf.backend) == (2, "rewrite", "reference")


def test_a_workspace_that_only_building_tells_stays_unknown() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    for name, arguments in offered(problem):
        inner = replace(wrapped(rewrite(name).inner(problem, arguments), ()), workspace_bytes=None)
        assert rewrite(name).wrap(problem, arguments, inner).workspace_bytes is None


def test_splitting_needs_less_workspace() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    whole, split = wrapped(problem, ()), wrapped(problem, (("split-batch", (("parts", 8),)),))
    assert whole.workspace_bytes is not None
    assert split.workspace_bytes is not None
    assert split.workspace_bytes < whole.workspace_bytes / 4


@pytest.mark.parametrize("images", [0, 6])
def test_a_batch_that_does_not_divide_is_refused_in_words(images: int) -> None:
    problem = ConvProblem.of((images, 8, 9, 9), (8, 8, 3, 3))
    refusals = [each for each in rewrite("split-batch").arguments(problem, CPU) if isinstance(each, Refusal)]
    assert refusals[-1] == Refusal("split-batch(8)", f"a batch of {images} cannot be split into 8 equal parts")


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_a_layout_that_is_there_already_is_refused(layout: Layout) -> None:
    problem = ConvProblem.of((2, 8, 9, 9), (8, 8, 3, 3), layout=layout)
    refused, other = sorted(rewrite("relayout").arguments(problem, CPU), key=lambda each: isinstance(each, tuple))
    assert refused == Refusal(f"relayout({layout})", f"all operands are dense in {layout} already")
    assert other == (("layout", "nhwc" if layout is Layout.NCHW else "nchw"),)


def test_only_what_lies_otherwise_is_copied() -> None:
    problem = ConvProblem.of((2, 8, 9, 9), (8, 8, 3, 3), epilogue="residual+bias")
    mixed = replace(problem, x=replace(problem.x.dense(Layout.NHWC), alignment=4))
    arguments = (("layout", "nhwc"),)
    inner = rewrite("relayout").inner(mixed, arguments)
    assert inner.x == mixed.x
    assert {inner.w.layout, inner.y.layout} == {Layout.NHWC}
    assert rewrite("relayout").moved_bytes(mixed, arguments) == 4 * problem.y.nbytes  # y and the residual, in and out
    forward = rewrite("relayout").scratch_bytes(problem, arguments)
    backward = rewrite("relayout").scratch_bytes(problem.asking(Direction.BACKWARD_WEIGHT), arguments)
    assert forward - 2 * _aligned(problem.y) == _aligned(problem.x)
    assert backward == _aligned(problem.x) + _aligned(problem.y) + _aligned(problem.w)


@pytest.mark.parametrize(("images", "parts"), [(8, 2), (8, 8), (4, 4)])
def test_the_inner_problem_describes_every_slice(images: int, parts: int) -> None:
    x = torch.empty(images, 3, 5, 5, dtype=torch.float16)
    problem = ConvProblem.of(x.shape, (4, 3, 3, 3), dtype="fp16")
    inner = rewrite("split-batch").inner(replace(problem, x=spec_of(x)), (("parts", parts),))
    for part in x.chunk(parts):
        found = spec_of(part)
        assert found.alignment >= inner.x.alignment
        assert replace(found, alignment=inner.x.alignment) == inner.x


def test_a_repeated_call_carves_no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ConvProblem.of((4, 3, 6, 6), (4, 3, 3, 3), direction=Direction.BACKWARD_WEIGHT)
    given = operands(problem, 1)
    first, second = (given[role] for role in problem.direction.operands)
    for name, arguments in offered(problem):
        plan = planned(wrapped(problem, ((name, arguments),)))
        workspaces = [torch.empty(plan.workspace_bytes, dtype=torch.uint8) for _ in range(2)]
        for used, other in ((0, 1), (0, 1), (1, 0), (0, 1)):
            workspaces[other].fill_(0xFF)
            result = plan(first, second, None, None, None, workspaces[used])
            assert torch.equal(result.double(), oracle(problem, given))
            assert (workspaces[other] == 0xFF).all()
        with monkeypatch.context() as patch:
            patch.setattr("convwright.rewrites.scratch.carve", None)
            plan(first, second, None, None, None, workspaces[0])


@pytest.mark.parametrize("direction", Direction)
def test_every_pair_of_rewrites_of_a_dense_problem(direction: Direction) -> None:
    problem = ConvProblem.of((8, 4, 5, 5), (6, 2, 3, 3), groups=2, padding=1, dtype=DType.FP64, direction=direction)
    check_identity(problem, chains(problem, 2), 5)


def _aligned(spec: TensorSpec) -> int:
    return -(-spec.nbytes // 256) * 256
